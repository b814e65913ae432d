"""A model of what an LLM suggests learns from answers, asks about what it does not know, and acts at first sight."""

import dataclasses
import itertools
import os
import shlex
import shutil
import subprocess
import sys

import chex
import jax
import numpy as np
import pytest

from launch import answers, flags, train_goals
from oni_jax.annotation.queries.suggestions import parsed
from oni_jax.answers.answerer import shipped_path
from oni_jax.answers.form import read_answers
from oni_jax.envs.device.goals import SUGGESTED
from oni_jax.envs.registry import env_spec, find_environment, languages
from oni_jax.parallel import Replicas
from oni_jax.rewards.ellm import goal_model
from oni_jax.rewards.ellm.goal_rewards import ModelledGoalReward
from oni_jax.rewards.registry import check_rewards, make_rewards, observations_read, questions
from oni_jax.rewards.terms import RewardSum
from oni_jax.rewards.trained import load_trained, save_trained
from oni_jax.runs.plan import Plan, with_chosen_env
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.rewards import RewardConfig, RewardModelConfig
from oni_jax.settings.worlds import GoalConfig
from oni_jax.types import Annotation, CaptionBatch, StepCaptions
from tests.rewards.ellm.test_ellm import asked, config_of, observe
from tests.support.documented import undocumented
from tests.support.processes import equal_on_devices
from tests.worlds.device.device_worlds import CONFIG, collect, make_world

GRASS = b"you see grass."


def make(**settings) -> RewardSum:
    config = config_of("model", reward_model_lr=3e-3, reward_model_batch_size=64, **settings)
    config = with_chosen_env(config)
    check_rewards(config)
    return make_rewards(config, env_spec(config.env, observations_read(config)))


def trained(rewards: RewardSum, state, given):
    rewards.ingest([Annotation(item, answer) for item, answer in given])
    while rewards.steps_due():
        state = rewards.train_step(state)
    rewards.acting(state)
    return state


@pytest.fixture(scope="module")
def recorded():
    file = read_answers(str(shipped_path("crafter", "suggestions")), languages())
    return list(itertools.islice(file.under("").items(), 2000))


@pytest.fixture(scope="module")
def taught(recorded):
    rewards = make(server="localhost")
    return rewards, trained(rewards, rewards.init(jax.random.key(0)), recorded)


def test_model_agrees_with_answers_that_were_held_out(taught):
    rewards, state = taught
    metrics = {name: float(value) for name, value in rewards.metrics(state).items()}
    assert metrics["goals_agreement"] > 0.85 and metrics["goals_calibration_error"] < 0.02
    assert metrics["goals_reliability_0"] < 0.1 < 0.9 < metrics["goals_reliability_9"]
    assert undocumented(f"reward/{name}" for name in metrics) == []
    assert 1700 < metrics["dataset_rows"] < 1900  # 2,000 in all


def test_untrained_model_agrees_with_few(recorded):
    rewards = make()
    state = rewards.init(jax.random.key(0))
    rewards.ingest([Annotation(item, answer) for item, answer in recorded[:200]])
    rewards.acting(state)
    assert rewards.metrics(state)["goals_agreement"] < 0.4


def test_model_without_answers_suggests_nothing():
    config = with_chosen_env(config_of("model"))
    rewards = make_rewards(config, env_spec(config.env, observations_read(config)))
    env = find_environment(config.env).device(config.env).env  # type: ignore
    params = rewards.acting(rewards.init(jax.random.key(0)))
    found = rewards.goal_model(params, env, env.reset(jax.random.key(1)))  # type: ignore
    assert not (np.asarray(found) > SUGGESTED).any()


@pytest.fixture(scope="module")
def sure_and_unsure(taught):
    """Returns the untaught states of which the model expects the fewest and the most goals wrong."""
    rewards, state = taught
    file = read_answers(str(shipped_path("crafter", "suggestions")), languages())
    states = [item[0] for item, _ in itertools.islice(file.under("").items(), 2000, 2200)]
    doubts = rewards.rewards[0].doubts(state, states)  # type: ignore
    return states[np.argmin(doubts)], states[np.argmax(doubts)]


def test_states_that_are_known_well_are_not_asked_about(taught, sure_and_unsure):
    rewards, state = taught
    sure, unsure = sure_and_unsure
    rewards.acting(state)
    observe(rewards, sure, sure, sure, sure, unsure)
    assert unsure in asked(rewards) and sure not in asked(rewards)


def test_everything_new_is_asked_about_where_the_settings_say_so(taught, sure_and_unsure):
    rewards, state = taught
    reward, (sure, _) = rewards.rewards[0], sure_and_unsure
    batch = CaptionBatch([sure], np.zeros((1, 1), np.int32), {})
    for asks_unsure, told in ((False, [(sure,)]), (True, [])):
        made = ModelledGoalReward(reward.model, asks_unsure, reward._prompt, reward._matcher)  # type: ignore
        made.acting(state)
        made.observe(StepCaptions(batch, batch))
        assert made.queries() == told


def test_fall_of_the_agreement_is_warned_of(taught, recorded, capfd):
    rewards, state = taught
    sleepless = [((item[0] + b" ",), b"- mine diamond") for item, _ in recorded[:10]]
    assert not any(rewards.rewards[0].model.reader.of_item(item[0]) for item, _ in sleepless)  # type: ignore
    strange = [((b"you see %s. you feel hurt." % name,), b"- mine diamond") for name in _names()]
    model = rewards.rewards[0].model  # type: ignore
    rewards.ingest([Annotation(item, answer) for item, answer in strange])
    model._trainer._schedule.num_due = 0
    for _ in range(goal_model.CHECKED_EVERY + 1):
        rewards.acting(state)
    assert "warning: the goal model agrees with" in capfd.readouterr().out


def _names():
    things = "water grass stone path tree lava coal iron diamond furnace cow zombie skeleton plant".split()
    for number in (3, 4):
        for some in itertools.combinations(things, number):
            yield (", ".join(some[:-1]) + f", and {some[-1]}").encode()


def test_jaccard_index():
    found = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]], bool)
    right = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0]], bool)
    assert goal_model.jaccard(found, right).tolist() == [0.5, 1, 0, 0]


def test_goal_answers_need_a_model():
    with pytest.raises(UserError, match="--goal_answers model: has no meaning without --goal_suggester model"):
        with_chosen_env(config_of(goals={"goal_answers": "model"}))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a model that learnt from few answers, and what the program printed of it."""
    folder = tmp_path_factory.mktemp("goals")
    file, out = str(folder / "few.jsonl"), str(folder / "model")
    assert answers.main(["--show", "crafter_suggestions", "--sample", "400", "--out", file]) == 0
    assert train_goals.main(["--answers", file, "--out", out]) == 0
    return out


def frozen(folder: str, **settings):
    config = with_chosen_env(config_of(**{"suggester": "model", "reward_dir": folder, **settings}))
    check_rewards(config)
    return config, make_rewards(config, env_spec(config.env, observations_read(config)))


def test_saved_model_suggests_and_asks_and_learns_nothing(saved):
    config, rewards = frozen(saved)
    assert questions(config) == []
    state = rewards.init(jax.random.key(0))
    observe(rewards, GRASS)
    assert rewards.queries() == [] and rewards.steps_due() == 0 and rewards.metrics(state) == {}
    env = find_environment(config.env).device(config.env)  # type: ignore
    inner = env.env.reset(jax.random.key(3))  # type: ignore
    found = rewards.goal_model(rewards.acting(state), env.env, inner)  # type: ignore
    names = [goal for goal, p in zip(env.spec.goals, np.asarray(found)) if p > SUGGESTED]
    assert "chop tree" in names or "chop grass" in names
    other, _ = load_trained(saved)
    chex.assert_trees_all_equal(jax.device_get(state), other)


def test_settings_of_answers_have_no_meaning_with_a_saved_model(saved):
    for name, value in (("goal_answers", "model"), ("goal_table_size", 7), ("goal_parser", "strict")):
        with pytest.raises(UserError, match=f"--{name} {value}: has no meaning with --reward_dir"):
            frozen(saved, goals={name: value})


@pytest.mark.parametrize(
    "words",
    [
        "--config score_extrinsic",
        "--config score_retrieval",
        "--config ellm_oracle",
        "--config ellm_llm --goal_suggester llm",
        "--config ellm_llm --reward_dir goals",
    ],
)
def test_asking_what_is_uncertain_needs_a_model(words):
    with pytest.raises(UserError, match="--ask uncertain: has no meaning without a model that learns the answers"):
        check_rewards(chosen(f"{words} --ask uncertain"))


@pytest.mark.parametrize(
    "words",
    [
        "--config ellm_llm",
        "--config score_classification",
        "--config score_retrieval --unanswered model",
        "--config score_retrieval --llm_reward_type online_cls,online_cls_reward_model",
    ],
)
def test_model_of_the_answers_may_ask_what_it_is_unsure_of(words):
    check_rewards(chosen(f"{words} --ask uncertain"))


def chosen(words: str) -> Config:
    """The settings of a command line of launch.train."""
    return with_chosen_env(flags.parse(words.split()))


def test_command_after_the_training_of_a_model_uses_it(saved, tmp_path, capsys):
    file, out = os.path.join(os.path.dirname(saved), "few.jsonl"), str(tmp_path / "mine")
    assert train_goals.main(["--root_env", "Crafter-v1", "--answers", file, "--out", out]) == 0
    _, _, _, *words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    config = flags.parse(words)
    assert (config.env.root_env, config.reward.reward_dir) == ("Crafter-v1", out)
    assert config.run.experiment == "ellm_mine"  # no run of the config's name is gone on with


def test_damaged_model_costs_one_line(saved, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(saved, folder)
    (folder / "reward_model/1/model/manifest.ocdbt").unlink()
    words = f"launch.train --config ellm_llm --reward_dir {folder} --device cpu --train_dir {tmp_path}"
    done = subprocess.run([sys.executable, "-m", *words.split()], capture_output=True, text=True, timeout=120)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1) and "can't be read" in done.stderr, done.stderr


def test_bad_folders_of_a_model_are_told_in_one_line(saved, tmp_path, capsys):
    with pytest.raises(UserError, match="holds no goal model; launch.train_goals writes one"):
        frozen(str(tmp_path))
    with pytest.raises(UserError, match="add --goal_suggester model"):
        frozen(saved, suggester="oracle")
    assert train_goals.main(["--out", saved]) == 2
    assert "holds a model already" in capsys.readouterr().err
    for name, change in (("other", lambda x: x[..., :-1]), ("nan", lambda x: x * np.nan)):
        params, settings = load_trained(saved)
        save_trained(str(tmp_path / name), 1, jax.tree.map(change, params), settings)
        with pytest.raises(UserError, match="of another environment|holds NaN or inf"):
            frozen(str(tmp_path / name))


def test_model_of_captions_without_features_is_not_trained_alone(tmp_path, capsys):
    words = "--plugin", "tests.support.signals_plugin", "--root_env", "Signals-v0", "--out", str(tmp_path / "a")
    assert train_goals.main([*words, "--answers", "recorded"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# A world whose captions have no features: the model reads observations.
def signals(**goals):
    env = dataclasses.replace(CONFIG.env, goals=with_values(GoalConfig(), dict(goal_suggester="model", **goals)))
    reward = RewardConfig(
        llm_reward_type="ellm", llm_reward_coeff=1.0, model=RewardModelConfig(learning_rate=1e-2, batch_size=8)
    )
    return dataclasses.replace(CONFIG, env=env, reward=reward)


def played(num_devices: int = 1, **goals):
    """Rollouts of a world while a model learns that the signals 1 and 3 suggest the last goal, and others none."""
    config = signals(**goals)
    rewards = make_rewards(config, Plan(config).world_spec, Replicas(jax.devices()[:num_devices]))
    world, task, _ = make_world(config, num_devices, ("signal", "open_goals"), goal_model=rewards.goal_model)
    state = rewards.init(jax.random.key(0))
    world.suggest_by(rewards.acting(state))
    world.start()
    batches = []
    for _ in range(6):
        world.suggest_by(rewards.acting(state))
        batches += collect(world, 1)
        rewards.observe(batches[-1].captions)
        found = [query.item for query in rewards.queries()]
        said = [b"- answer 1" if item[0][-2:] in (b"1.", b"3.") else b"- say 0" for item in found]
        rewards.ingest([Annotation(*pair) for pair in zip(found, said)])
        world.suggest(rewards.suggested())
        while rewards.steps_due():
            state = rewards.train_step(state)
    return rewards, state, [jax.device_get(batch.payload) for batch in batches]


def test_model_that_reads_observations_acts_by_them():
    rewards, state, batches = played(goal_answers="model")
    params = jax.device_get(rewards.acting(state))
    model, last = rewards.rewards[0].model, batches[-1]  # type: ignore
    names = [*model.reader.columns]
    assert names == ["signal", "parity"] and not batches[0].observations["open_goals"][..., -1].any()
    inputs = {name: last.observations[name].reshape(-1, *last.observations[name].shape[2:]) for name in names}
    logits = model._network.apply(params, inputs)
    suggested = np.asarray(logits) > SUGGESTED
    shown = last.observations["open_goals"].reshape(len(suggested), -1)
    is_open = shown[:, :-1] > 0
    assert is_open.any() and not (is_open & ~suggested).any()  # some are paid already


def test_llm_s_answer_wins_over_the_model():
    _, _, batches = played()
    last = batches[-1]
    signal = last.observations["signal"][..., 0]
    shown = last.observations["open_goals"][..., :-1] > 0
    for number in (1, 3):
        assert not shown[signal == number][:, :2].any()
    assert shown[np.isin(signal, (1, 3))][:, 2].any()


def on_two_devices() -> None:
    for way in ("first", "model"):
        (_, *one), (_, *two) = (played(number, goal_answers=way) for number in (1, 2))
        for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-4, atol=1e-5)
    print("equal")


@pytest.mark.slow
def test_two_devices_equal_one():
    equal_on_devices(2, "-c", "from tests.rewards.ellm.test_goal_model import *; on_two_devices()")


def test_answers_are_read_as_goals_of_the_environment(recorded):
    goals = {*env_spec(config_of().env).goals}
    assert all({*parsed(answer, False)} <= goals for _, answer in recorded)
