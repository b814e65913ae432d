"""Inspection of a run's reward shows the reward that the learner is given."""

import json
import os
import pathlib
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.annotation.judge_answers import JUDGE_MODEL
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.prompts import load_prompt
from oni_jax.envs.registry import env_spec, find_environment
from oni_jax.evaluation.inspection import InspectedCaption, NoRewardError, inspect_reward
from oni_jax.learner.update import TrainState
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.offline.dataset import caption_counts
from oni_jax.rewards.oni.ranking import RankingState
from oni_jax.rewards.oni.reward_model import QUANTILES, RewardModel, save_reward_model
from oni_jax.rewards.registry import make_rewards, reward_type
from oni_jax.rewards.terms import RewardSum
from oni_jax.runs.checkpointing import Checkpoints, Saved, restore_reward
from oni_jax.runs.message_counts import MessageCounts
from oni_jax.settings.config import Config, config_to_json
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import Annotation, CaptionBatch, PyTree, StepCaptions, Trajectory
from tests.offline.pairs import MESSAGES, padded, write_dataset
from tests.rewards.built_in import BUILT_IN
from tests.rewards.word_vector_files import write_text
from tests.support.labelled import labelled

ALL_BYTES = bytes(range(1, 256))
MET = {b"You kill the newt!": 7, b"": 30, b"You find gold.": 2, ALL_BYTES: 1}
LABELLED = b"You find gold."
ASKED_ONLY = b"You hear a door open."
LABELS = {
    "": {},
    "classification": {LABELLED: (1,), ASKED_ONLY: (0,)},
    "ranking": {LABELLED: (1, 0, 1), ASKED_ONLY: (0, 2, 0), b"": (1, 0, 0), ALL_BYTES: (0, 0, 1)},  # better, worse, tie
}
WORDS = {"gold": [1.0, 0.2], "kill": [0.3, -1.0], "newt": [0.5, 0.5]}
POTENTIAL = "def compute_reward(obs, past_obs, past_actions): return 0.0, {}"
REWARD_NETWORK = {"encoder_hidden_dim": 8, "encoder_msg_model": "lt_cnn_small"}
SETTINGS = {"root_env": "Catch-v0", "encoder_custom": "mlp_encoder", "hidden_size": 8, "goal": "Find gold, Agent."}


def settings_of(folder: pathlib.Path, name: str, **values: object) -> Config:
    """The settings of a run of this reward type, and the files that they name."""
    settings = {"llm_reward_type": name, "llm_reward_coeff": 0.1}
    if reward_type(with_values(Config(), settings)).needs == "word_vectors":
        settings["word_vectors"] = write_text(folder / "words.vec", WORDS)
    if reward_type(with_values(Config(), settings)).needs == "reward_dir":
        settings["reward_dir"] = str(folder / "model")
        network = with_values(NetworkConfig(), REWARD_NETWORK)
        params = drawn(make_ranking_network(network).init, jax.random.key(3), {"message": np.zeros((1, 256), np.uint8)})
        quantiles = dict(zip(QUANTILES, np.linspace(-1, 1, len(QUANTILES))))
        (folder / "model").mkdir(exist_ok=True)
        (folder / "model" / "potential.py").write_text(POTENTIAL)
        (folder / "model" / "goals.json").write_text(json.dumps({"goals": ["a"], "keys": ["b"], "indices": [[0]]}))
        save_reward_model(settings["reward_dir"], 1, RewardModel(network, params, 0.01, 0.25, quantiles), {})
    return with_values(Config(), {**SETTINGS, **REWARD_NETWORK, **settings, **values})


def drawn(init: Callable[..., PyTree], *arguments: object) -> PyTree:
    """Random numbers in the shapes of init(*arguments), which would take seconds to compile."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(init, *arguments)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(scale=0.2, size=x.shape), x.dtype), shapes)


def write_run(folder: pathlib.Path, config: Config) -> tuple[RewardSum, PyTree]:
    """A run of 640 steps with labels and counts. Returns its reward as the learner has it: (reward, state)."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(config_to_json(config))
    reward = make_rewards(config, env_spec(config.env))
    state = drawn(reward.init, jax.random.key(5))
    if isinstance(state, RankingState):  # so many values that a batch's make no difference
        moments = state.moments._replace(mean=np.float32(0.02), variance=np.float32(0.25), count=np.float32(1e12))
        state = state._replace(moments=moments)
    annotations = annotations_of(config)
    if annotations:
        store = LabelStore(str(folder / "labels.sqlite"))
        language = find_environment(config.env).language
        prompt = load_prompt(config.annotation, language, reward_type(config).query)
        store.put_many(JUDGE_MODEL, prompt.digest, annotations)
        store.put_many("another model", "another prompt", [(labelled((b"foreign",) * 2, 1), "")])
        store.close()
    reward.ingest([annotation for annotation, _ in annotations])
    checkpoints = Checkpoints(str(folder / "checkpoints"))
    train_state = TrainState({"w": np.zeros(3)}, (), state, np.zeros(2, np.uint32))
    checkpoints.save(640, Saved(train_state, reward.save(), {}))
    checkpoints.close()
    write_counts(folder, MET)
    return reward, state


def write_counts(folder: pathlib.Path, numbers: dict[bytes, int]) -> None:
    folder.mkdir(exist_ok=True)
    counts = MessageCounts()
    index = np.repeat(np.arange(len(numbers), dtype=np.int32), list(numbers.values()))
    counts.add(CaptionBatch(list(numbers), index[None]))
    counts.save(str(folder))


def annotations_of(config: Config) -> list[tuple[Annotation, str]]:
    kind = reward_type(config).query
    single = [((LABELLED,), 1, 0.75), ((ASKED_ONLY,), 0, 0.25)]
    pairs = [((LABELLED, ASKED_ONLY), 0, 1.0), ((ASKED_ONLY, b""), 1, 1.0), ((ALL_BYTES, LABELLED), 2, 1.0)]
    items = {"classification": single, "ranking": pairs, "": []}[kind]
    return [(labelled(*item), "said so") for item in items]  # type: ignore


def learner_gives(rewards: RewardSum, state: PyTree, messages: list[bytes]) -> np.ndarray:
    """Rewards of a batch as in an update."""
    index = np.arange(len(messages), dtype=np.int32)[None]
    nothing = dict.fromkeys(Trajectory._fields)
    ones = np.ones(index.shape, np.float32)
    known = {"observations": {}, "before_counts": ones, "rewards": ones}
    captions = CaptionBatch(messages, index)
    features = rewards.prepare(StepCaptions(captions, captions))
    output = jax.jit(rewards.score)(state, Trajectory(**{**nothing, **known}), features, jax.random.key(0))  # type: ignore
    return np.asarray(output.rewards)[0, 0]


def by_message(folder: pathlib.Path, added: Mapping[bytes, int] | None = None) -> dict[bytes, InspectedCaption]:
    return {row.caption: row for row in inspect_reward(str(folder), added).captions}


@pytest.mark.parametrize("name", ["rnd", "bk-code", "bk-goal"])
def test_a_reward_of_no_captions_has_none_to_show(tmp_path, name):
    embeddings = {"potential_embeddings": "grams"} if name == "bk-goal" else {}
    write_run(tmp_path / "run", settings_of(tmp_path, name, **embeddings))
    with pytest.raises(NoRewardError, match="its reward values no captions"):
        inspect_reward(str(tmp_path / "run"))


@pytest.mark.parametrize(
    "name", [name for name in BUILT_IN if name not in ("none", "rnd", "noveld", "apt", "ellm") and "bk-" not in name]
)
def test_the_learner_gives_what_is_told(tmp_path, monkeypatch, name):
    monkeypatch.setattr("oni_jax.networks.ragged.LENGTHS", ())  # compiles networks once, not for three lengths
    config = settings_of(tmp_path, name)
    reward, state = write_run(tmp_path / "run", config)
    inspection = inspect_reward(str(tmp_path / "run"))
    rows = {row.caption: row for row in inspection.captions}
    labels = LABELS[reward_type(config).query]
    assert {message: row.labels for message, row in rows.items()} == {**dict.fromkeys(MET), **labels}
    assert inspection.env_steps == 640
    given = learner_gives(reward, state, list(rows))
    np.testing.assert_allclose([row.reward for row in rows.values()], given, rtol=1e-4, atol=1e-6)
    assert len({row.raw_reward for row in rows.values()}) > 1
    assert [row.reward for row in inspection.captions] == sorted((row.reward for row in rows.values()), reverse=True)
    assert {message: row.count for message, row in rows.items() if row.count is not None} == MET


def test_probabilities_are_raw_rewards(tmp_path):
    write_run(tmp_path / "run", settings_of(tmp_path, "online_cls", llm_reward_value="probability"))
    rows = by_message(tmp_path / "run")
    assert rows[LABELLED] == InspectedCaption(LABELLED, 2, (1,), 0.75, 0.75)
    assert rows[ASKED_ONLY] == InspectedCaption(ASKED_ONLY, None, (0,), 0.25, 0.25)
    assert rows[b""] == InspectedCaption(b"", 30, None, 0.0, 0.0)


def test_a_data_set_of_pairs_is_scored_too(tmp_path):
    write_run(tmp_path / "run", settings_of(tmp_path, "cosine-bow"))
    texts = [[[LABELLED, MESSAGES[0]], [MESSAGES[3], b""]], [[LABELLED, LABELLED], [b"\xff", b"new"]]]
    write_dataset(tmp_path / "pairs", {"data/message": padded(texts)})
    rows = by_message(tmp_path / "run", caption_counts(str(tmp_path / "pairs")))
    assert rows[LABELLED].count == 2 + 3 and rows[b""].count == 31 and rows[b"new"].count == 1
    assert {MESSAGES[0], MESSAGES[3], b"\xff"} < set(rows)
    with pytest.raises(UserError, match="data/message.npy"):
        caption_counts(str(tmp_path))


def test_more_messages_than_are_scored_at_once(tmp_path, monkeypatch):
    write_run(tmp_path / "run", settings_of(tmp_path, "cosine-bow"))
    expected = by_message(tmp_path / "run")
    monkeypatch.setattr("oni_jax.evaluation.inspection.NUM_SCORED_AT_ONCE", 3)
    assert by_message(tmp_path / "run") == expected


def test_a_run_that_goes_on_is_left_alone(tmp_path):
    """A checkpoint being written stays; a damaged one stays, and the one before it is read."""
    state, saved = {"params": np.arange(3.0), "count": np.int32(5)}, {"rows": np.array([[1, 2]])}
    checkpoints = Checkpoints(str(tmp_path))
    for step in (640, 1280):
        train_state = TrainState({"w": np.zeros(3)}, (), state, np.zeros(2, np.uint32))
        checkpoints.save(step, Saved(train_state, saved, {}))
    checkpoints.close()
    for path in (tmp_path / "1280").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    (tmp_path / "1920.orbax-checkpoint-tmp").mkdir()
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    env_steps, restored = restore_reward(str(tmp_path), jax.tree.map(np.zeros_like, state))
    assert env_steps == 640
    jax.tree.map(np.testing.assert_array_equal, restored, (state, saved))
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def refusal(folder: pathlib.Path) -> str:
    with pytest.raises(UserError) as caught:
        inspect_reward(str(folder))
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def with_counters(count: int, restored: tuple) -> tuple:
    env_steps, (state, saved) = restored
    return env_steps, (state, {**saved, "counters": saved["counters"][:count]})


def test_rewards_that_can_t_be_inspected_are_named_in_a_line(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    assert "config.json" in refusal(folder)
    folder.mkdir()
    (folder / "config.json").write_text(
        config_to_json(with_values(Config(), {"llm_reward_type": "none", "encoder_custom": "nle_rgbcrop_encoder"}))
    )
    assert "nothing to inspect" in refusal(folder)
    config = settings_of(tmp_path, "online_cls")
    (folder / "config.json").write_text(config_to_json(config))
    assert "no checkpoint" in refusal(folder)
    write_run(folder, config)
    model_folder = tmp_path / "model run"
    write_run(model_folder, settings_of(tmp_path, "online_cls_reward_model"))
    with monkeypatch.context() as patch:  # as older versions wrote it
        patch.setattr("oni_jax.runs.rewards.restore_reward", lambda *of: with_counters(2, restore_reward(*of)))
        assert "checkpoint 640 holds no reward of this version" in refusal(model_folder)
    missing = str(tmp_path / "labels elsewhere.sqlite")
    (folder / "config.json").write_text(config_to_json(with_values(config, {"label_store": missing})))
    assert missing in refusal(folder) and not os.path.exists(missing)
    (folder / "config.json").write_text(config_to_json(config))
    (folder / "labels.sqlite").unlink()
    (folder / "messages.npz").unlink()
    assert "no caption is known" in refusal(folder)
