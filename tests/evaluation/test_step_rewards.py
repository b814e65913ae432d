"""An episode of an evaluation has the intrinsic return that training would count for its steps."""

import csv
import dataclasses
import json
import pathlib
import zlib
from collections import Counter
from collections.abc import Sequence

import jax
import numpy as np
import pytest

import oni_jax
from launch import evaluate
from oni_jax.annotation.judge_answers import JUDGE_MODEL
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.prompts import load_prompt
from oni_jax.envs.registry import env_spec, find_environment
from oni_jax.evaluation.intrinsic import Scorer
from oni_jax.evaluation.recording import Replay, replay
from oni_jax.evaluation.results import Evaluation
from oni_jax.evaluation.step_rewards import read_scoring
from oni_jax.learner.update import TrainState
from oni_jax.networks.policy import policy_and_shapes
from oni_jax.networks.registry import policy_observations
from oni_jax.rewards.base import LookUp, Reward
from oni_jax.rewards.combine import Potential
from oni_jax.rewards.registry import REWARD_TYPES, RewardType, make_rewards, observations_read
from oni_jax.runs.checkpointing import Checkpoints, Saved
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config, config_to_json
from oni_jax.settings.fields import UserError, with_values
from oni_jax.types import RewardOutput
from tests.evaluation.runs import CATCH
from tests.support import signals_plugin
from tests.support.labelled import labelled
from tests.support.processes import ROOT

NUM_EPISODES = 70  # more than are played side by side
SIGNALS = {**CATCH, "root_env": signals_plugin.NAME, "plugin": "tests.support.signals_plugin"}
PROMPT = str(ROOT / "tests/support/corridor_prompts/classification_default.json")
DEVICE = {**SIGNALS, "max_episode_steps": 12, "prompt_file": PROMPT}  # some episodes end, and some are cut off
BABYAI = {**CATCH, "root_env": "BabyAI-Text-GoToLocal-RedBall-S20", "max_episode_steps": 40}
PAID = {"llm_reward_coeff": 0.1}
MEASURE = "intrinsic_return/"


def label_of(caption: bytes) -> int:
    return zlib.crc32(caption) % 2


def write_run(folder: pathlib.Path, values: dict, captions: set[bytes] | None = None, also: Sequence[dict] = ()):
    """A run of random parameters of policy and rewards, `also` those; with a label of each of the captions."""
    first, *others = values.get("llm_reward_type", "none").split(",")
    config = with_values(Config(), {**values, "llm_reward_type": first})
    further = [(dataclasses.replace(config.reward, llm_reward_type=name), config.annotation) for name in others]
    further += [(with_values(config.reward, changes), config.annotation) for changes in also]
    config = dataclasses.replace(config, others=tuple(further))
    folder.mkdir()
    (folder / "config.json").write_text(config_to_json(config))
    rewards = make_rewards(config, env_spec(config.env, observations_read(config)))
    rng = np.random.default_rng(0)
    _, shapes = policy_and_shapes(config.network, env_spec(config.env, policy_observations(config.network)))
    params = jax.tree.map(lambda x: rng.normal(scale=0.3, size=x.shape).astype(x.dtype), shapes)
    state = jax.tree.map(np.asarray, rewards.init(jax.random.key(1)))
    checkpoints = Checkpoints(str(folder / "checkpoints"))
    checkpoints.save(640, Saved(TrainState(params, (), state, np.zeros(2, np.uint32)), rewards.save(), {}))
    checkpoints.close()
    if captions is not None:
        write_labels(folder, config, captions)
    return oni_jax.load_run(str(folder))


def write_labels(folder: pathlib.Path, config: Config, captions: set[bytes]) -> None:
    store = LabelStore(str(folder / "labels.sqlite"))
    digest = load_prompt(config.annotation, find_environment(config.env).language, "classification").digest
    store.put_many(JUDGE_MODEL, digest, [(labelled((x,), label_of(x)), "") for x in captions])
    store.close()


def replayed(run: oni_jax.Run, played: Evaluation, index: int, scorer: Scorer | None = None) -> Replay:
    found = replay(run.config.env, played, played.episodes[index], "", (), scorer)
    assert found.mismatch == ""
    return found


def scorer(run: oni_jax.Run) -> Scorer:
    found = read_scoring(Run(run.folder), run.config.env, None).scorer
    assert found
    return found


def paid(captions: list[bytes], at: str) -> float:
    """The labels of the captions before the steps, or after, divided by n^3."""
    counts, total = Counter[bytes](), 0.0
    for i, caption in enumerate(captions):
        counts[caption] += 1
        if i < len(captions) - 1 if at == "obs" else i > 0:
            total += label_of(caption) / counts[caption] ** 3
    return total


@pytest.mark.parametrize(
    "at, values, num_workers",
    [
        pytest.param("obs", CATCH, 2, id="obs-host"),
        # A worker would compile for itself.
        pytest.param("next_obs", DEVICE, 1, id="next_obs-device", marks=pytest.mark.slow),
        pytest.param("next_obs", CATCH, 2, id="next_obs-host", marks=pytest.mark.slow),
        pytest.param("obs", BABYAI, 2, id="obs-device", marks=pytest.mark.slow),
    ],
)
def test_labels_pay_as_the_formula_says(tmp_path, values, at, num_workers):
    """Whatever the coefficient is."""
    given = {**values, **PAID, "llm_reward_type": "online_cls", "intrinsic_reward_at": at, "beta_count_exponent": 3.0}
    known = write_run(tmp_path / "known", given)
    unscored = known.evaluate(NUM_EPISODES, num_workers=1)
    chosen = (0, 1, 17, 63, 64, NUM_EPISODES - 1)
    captions = {i: replayed(known, unscored, i).captions for i in chosen}
    run = write_run(tmp_path / "labelled", given, {x for texts in captions.values() for x in texts})
    played = run.evaluate(NUM_EPISODES, num_workers=num_workers)
    assert [x.actions for x in played.episodes] == [x.actions for x in unscored.episodes]
    found, expected = played.measures()[f"{MEASURE}online_cls"], {i: paid([*x], at) for i, x in captions.items()}
    assert found.shape == (NUM_EPISODES,) and any(expected.values()) and len(set(expected.values())) > 2
    np.testing.assert_allclose([found[i] for i in chosen], [*expected.values()], rtol=1e-6)


class Extrinsic(Reward):
    """Pays the environment's reward."""

    def score(self, state, trajectory, features, key):
        return RewardOutput(2.0 * trajectory.rewards, state)


@pytest.mark.parametrize("values", [CATCH, SIGNALS], ids=["host", "device"])
def test_a_registered_reward_that_pays_the_environment_s_gets_its_return(tmp_path, monkeypatch, values):
    monkeypatch.setitem(REWARD_TYPES, "twice", RewardType(lambda context: Extrinsic()))
    run = write_run(tmp_path / "run", {**values, **PAID, "llm_reward_type": "twice"})
    measures = run.evaluate(NUM_EPISODES, num_workers=1).measures()
    np.testing.assert_array_equal(measures[f"{MEASURE}twice"], 2 * measures["return"])
    assert len({*measures["return"].tolist()}) > 1


@pytest.mark.parametrize(
    "values", [pytest.param(CATCH, id="host"), pytest.param(DEVICE, id="device", marks=pytest.mark.slow)]
)
def test_a_reward_of_parameters_pays_what_a_film_shows(tmp_path, values):
    """It reads observations, and at an episode's end the final one."""
    run = write_run(tmp_path / "run", {**values, **PAID, "llm_reward_type": "rnd"})
    played = run.evaluate(NUM_EPISODES, num_workers=1)
    found, rewards = played.measures()[f"{MEASURE}rnd"], scorer(run)
    chosen = [i for i, episode in enumerate(played.episodes) if len(episode.actions) > 3][::20]
    assert len(chosen) > 1
    for index in chosen:
        intrinsic = replayed(run, played, index, rewards).intrinsic
        assert found[index] == pytest.approx(intrinsic.sum(), rel=1e-4) and intrinsic.sum() > 0


class OfText(LookUp):
    """A potential, arbitrary but for most captions not 0."""

    def look_up(self, caption: bytes) -> float:
        return zlib.crc32(caption) % 100 / 100


def test_a_film_of_shaping_pays_no_potential_after_a_terminal_step(tmp_path, monkeypatch):
    monkeypatch.setitem(REWARD_TYPES, "of_text", RewardType(lambda context: Potential(OfText(), 0.9, context.frozen)))
    run = write_run(tmp_path / "run", {**CATCH, **PAID, "llm_reward_type": "of_text"})
    played = run.evaluate(NUM_EPISODES, num_workers=1)
    found, rewards = played.measures()[f"{MEASURE}of_text"], scorer(run)
    for index in (0, 40, 66):
        assert played.episodes[index].end == "finished"
        intrinsic = replayed(run, played, index, rewards).intrinsic
        assert found[index] == pytest.approx(intrinsic.sum(), abs=1e-5)


def test_rewards_of_training_alone_are_not_in_a_film(tmp_path):
    run = write_run(tmp_path / "run", {**DEVICE, **PAID, "llm_reward_type": "rnd,apt"})
    alone = write_run(tmp_path / "alone", {**DEVICE, **PAID, "llm_reward_type": "rnd"})
    assert scorer(run).labels == ["rnd"]
    played = run.evaluate(1, num_workers=1)
    np.testing.assert_allclose(
        *(replayed(run, played, 0, scorer(folder)).intrinsic for folder in (run, alone)), rtol=1e-5
    )


def table(tmp_path: pathlib.Path, capfd, experiment: str, *words: str) -> tuple[str, dict, list[dict]]:
    """Returns launch.evaluate's output for four episodes, and its evaluations in JSON and CSV."""
    files = [str(tmp_path / name) for name in ("a.json", "a.csv")]
    base = ["--train_dir", str(tmp_path), "--experiment", experiment, "--episodes", "4", "--num_workers", "1"]
    assert evaluate.main([*base, "--json", files[0], "--csv", files[1], *words]) == 0
    tree, rows = (pathlib.Path(name).read_text() for name in files)
    return capfd.readouterr().out, json.loads(tree), [*csv.DictReader(rows.splitlines())]


def test_intrinsic_return_is_in_the_table_and_in_the_files(tmp_path, capfd):
    run = write_run(tmp_path / "run", {**CATCH, **PAID, "llm_reward_type": "online_cls,rnd"}, {b""})
    out, tree, rows = table(tmp_path, capfd, "run", "--compare", "random")
    expected = run.evaluate(4, num_workers=1).measures()
    for name in ("online_cls", "rnd"):
        assert out.count(f"\n{MEASURE}{name} ") == 1  # not of the random policy, nor in the difference
        (played,) = tree["evaluations"]
        assert played["measures"][MEASURE + name]["mean"] == pytest.approx(expected[MEASURE + name].mean())
        assert [row[MEASURE + name] for row in rows] == [*map(str, expected[MEASURE + name].tolist()), *[""] * 4]
        assert MEASURE + name not in tree["differences"][0]["measures"] | tree["other"]["measures"]
    assert played["not_reported"] == {} and "not reported" not in out


def test_run_without_an_intrinsic_reward_has_no_intrinsic_return(tmp_path, capfd):
    write_run(tmp_path / "run", CATCH)
    out, tree, rows = table(tmp_path, capfd, "run")
    assert MEASURE not in out and MEASURE not in "".join(rows[0])
    assert tree["evaluations"][0]["not_reported"] == {}


class Failing(Extrinsic):
    def prepare(self, captions):
        raise UserError("the server is away")


class Broken(Extrinsic):
    def prepare(self, captions):
        raise ValueError("out of range\nthere")


class ReadsLogits(Reward):
    def score(self, state, trajectory, features, key):
        return RewardOutput(trajectory.behaviour_logits[..., 0], state)


class ReadsPolicy(Reward):
    def score(self, state, trajectory, features, key):
        return RewardOutput(0.0 * trajectory.rewards + sum(trajectory.policy_params["params"]), state)


OWN = {"failing": Failing, "broken": Broken, "reads_logits": ReadsLogits, "reads_policy": ReadsPolicy}


@pytest.mark.parametrize(
    "values, reported, reasons",
    [
        pytest.param(
            {"llm_reward_type": "apt"},
            set(),
            {"apt": "other steps of a batch of training"},
            marks=pytest.mark.slow,
        ),
        ({"llm_reward_type": "rnd,apt,rnd"}, {"rnd", "rnd_2"}, {"apt": "other steps of a batch of training"}),
        ({"llm_reward_type": "rnd", "rnd_features": "policy"}, set(), {"rnd": "policy's parameters"}),
        ({"llm_reward_type": "online_cls"}, set(), {"online_cls": "holds no labels"}),
        (
            {"llm_reward_type": "online_cls", "label_store": "nowhere.sqlite"},
            set(),
            {"online_cls": "nowhere.sqlite: no such file"},
        ),
        ({"llm_reward_type": "failing,rnd"}, set(), dict.fromkeys(("failing", "rnd"), "the server is away")),
        ({"llm_reward_type": "broken"}, set(), {"broken": "ValueError: out of range"}),
        ({"llm_reward_type": "reads_logits"}, set(), {"reads_logits": "behaviour_logits, which only training has"}),
        ({"llm_reward_type": "reads_policy"}, set(), {"reads_policy": "policy_params, which only training has"}),
    ],
)
def test_reward_that_can_t_be_computed_is_reported_and_no_zero(tmp_path, capfd, monkeypatch, values, reported, reasons):
    for name, reward in OWN.items():
        monkeypatch.setitem(REWARD_TYPES, name, RewardType(lambda context, reward=reward: reward()))
    write_run(tmp_path / "run", {**CATCH, **PAID, **values})
    out, tree, rows = table(tmp_path, capfd, "run")
    (played,) = tree["evaluations"]
    assert {x.removeprefix(MEASURE) for x in played["measures"] if x.startswith(MEASURE)} == reported
    assert {x.removeprefix(MEASURE) for x in rows[0] if x.startswith(MEASURE)} == reported
    assert played["not_reported"].keys() == reasons.keys()
    for name, reason in reasons.items():
        (line,) = [line for line in out.splitlines() if line.startswith(f"{MEASURE}{name} is not reported: ")]
        assert reason in line and reason in played["not_reported"][name]
