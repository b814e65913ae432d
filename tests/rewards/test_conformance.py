"""Every registered reward keeps the interface's promises. A new type is tested by being registered."""

import functools
import os
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.config import AnnotationConfig, Config, EnvConfig, NetworkConfig, RewardConfig
from oni_jax.envs.registry import env_spec
from oni_jax.learner.shares import pack_shares, split_score
from oni_jax.metrics.names import undocumented
from oni_jax.networks import ragged
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.parallel import Replicas, gathered
from oni_jax.preferences.reward_model import QUANTILES, RewardModel, save_reward_model
from oni_jax.rewards.base import Reward
from oni_jax.rewards.registry import REWARD_TYPES, check_reward, make_reward
from oni_jax.types import UNKNOWN, Annotation, CaptionBatch, RewardOutput, Trajectory
from oni_jax.worlds.base import Collected
from tests.rewards.word_vector_files import write_text

T, B = 4, 6
NETWORK = NetworkConfig(encoder_msg_model="lt_cnn_small", encoder_hidden_dim=16)
MESSAGES = [
    b"",
    b"You kill the newt!",
    b"It is dark.",
    b"caf\xe9 \xff\x80 \x01",
    bytes(range(1, 256)) + b"!",  # all 256 bytes used
    b"x" * 300,  # more than a message can hold
]


@pytest.fixture(scope="module", autouse=True)
def little_to_compile():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged, "LENGTHS", ())
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A reward directory and a file of word vectors."""
    folder = tmp_path_factory.mktemp("reward")
    network = make_ranking_network(NETWORK)
    params = jax.jit(network.init)(jax.random.key(3), {"message": jnp.zeros((1, 256), jnp.uint8)})
    save_reward_model(str(folder), 1, RewardModel(NETWORK, params, 0.01, 0.2, {q: q - 0.5 for q in QUANTILES}), {})
    table = {"you": [1.0, 0.0, 0.1], "kill": [0.0, 1.0, 0.2], "dark": [-1.0, 0.3, 0.0], "monsters": [0.1, 0.9, 0.0]}
    return {"reward_dir": str(folder), "word_vectors": write_text(folder / "words.vec", table)}


def config_of(name, files, **settings) -> Config:
    given = {"motif": {"reward_dir": files["reward_dir"]}, "cosine-bow": {"word_vectors": files["word_vectors"]}}
    sizes = dict(
        reward_model_batch_size=8,
        reward_model_gradient_steps_per_update=1,
        reward_dataset_size=64,
        online_dataset_subsample=1,
    )
    coeff = 0.0 if name == "none" else 0.1
    reward = RewardConfig(llm_reward_type=name, llm_reward_coeff=coeff, **{**sizes, **given.get(name, {}), **settings})
    annotation = AnnotationConfig(llm_batch_size=20)
    return Config(EnvConfig(root_env="NetHackScore-v1"), network=NETWORK, reward=reward, annotation=annotation)


def make(name, files, **settings):
    config = config_of(name, files, **settings)
    check_reward(config)
    return make_reward(config, env_spec(config.env), lambda: "The player wants to kill monsters.")


def captions_of(messages=MESSAGES, seed=0) -> CaptionBatch:
    index = np.random.default_rng(seed).integers(0, len(messages), (T, B)).astype(np.int32)
    index.flat[: len(messages)] = np.arange(len(messages))
    return CaptionBatch(messages, index)


def trajectory_of(captions) -> Trajectory:
    zeros = jnp.zeros((T, B))
    return Trajectory({}, zeros, jnp.asarray(captions.index), *[zeros] * 9, initial_core_state=())  # type: ignore


@functools.cache
def jitted(reward):
    return jax.jit(reward.score)


def score(reward, state, captions):
    return jitted(reward)(state, trajectory_of(captions), dict(reward.prepare(captions)))


def teach(reward, state, rounds=3):
    """Answers what it asks, some of it with UNKNOWN, and makes what gradient steps are due."""
    for i in range(rounds):
        items = reward.requests(captions_of(seed=i))
        reward.ingest([Annotation(item, (0, 1, UNKNOWN)[k % 3], 0.5) for k, item in enumerate(items)])
        state = reward.train_step(state)
    return state


@pytest.fixture(scope="module", params=REWARD_TYPES)
def taught(request, files):
    """(name, reward, state) after some learning."""
    reward = make(request.param, files)
    return request.param, reward, teach(reward, reward.init(jax.random.key(0)))


def test_scores_are_finite_float32_of_the_batch_s_shape(taught):
    _, reward, state = taught
    output = score(reward, state, captions_of())
    chex.assert_shape(output.rewards, (T, B))
    chex.assert_type(output.rewards, jnp.float32)
    chex.assert_tree_all_finite(output)
    chex.assert_trees_all_equal_shapes_and_dtypes(output.state, state)


def test_its_metrics_are_documented(taught):
    _, reward, _ = taught
    assert undocumented(f"reward/{name}" for name in reward.metrics()) == []


def test_a_message_is_scored_alike_wherever_it_stands(taught):
    _, reward, state = taught
    captions = captions_of()
    order = np.random.default_rng(1).permutation(len(MESSAGES))
    other = CaptionBatch([MESSAGES[i] for i in order], np.argsort(order).astype(np.int32)[captions.index])
    outputs = [score(reward, state, batch).rewards for batch in (captions, other)]
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-6)


def test_scoring_is_pure(taught):
    _, reward, state = taught
    captions = captions_of()
    before = jax.tree.map(np.array, state)
    features, trajectory = dict(reward.prepare(captions)), trajectory_of(captions)
    first = jitted(reward)(state, trajectory, features)
    second = jitted(reward)(state, trajectory, features)
    plain = reward.score(state, trajectory, features)
    chex.assert_trees_all_equal(first, second)
    chex.assert_trees_all_close(plain, first, rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_equal(state, before)


def test_features_always_have_the_same_shapes(taught):
    _, reward, state = taught
    shapes = [
        {key: (x.shape, x.dtype) for key, x in reward.prepare(captions_of(messages)).items()}
        for messages in (MESSAGES, MESSAGES[:1], MESSAGES * 4)
    ]
    assert shapes[0] == shapes[1] == shapes[2]


def test_saved_and_restored_it_scores_the_same_bits(taught, files):
    name, reward, state = taught
    saved = {key: np.array(x) for key, x in reward.save().items()}
    assert all(x.size for x in saved.values())
    other = make(name, files)
    like = other.init(jax.random.key(1))
    chex.assert_trees_all_equal_shapes_and_dtypes(like, state)
    other.restore(saved)
    chex.assert_trees_all_equal({key: np.array(x) for key, x in other.save().items()}, saved)
    if name == "online_cls":  # its labels live in the label store, which hands them out again
        other.ingest([Annotation((m,), int(v), 0.5) for m, v in reward._labels.items()])  # type: ignore
    captions = captions_of()
    chex.assert_trees_all_equal(score(other, state, captions).rewards, score(reward, state, captions).rewards)
    assert other.steps_due() == reward.steps_due()
    # And it goes on as the other would have.
    after = [jax.tree.map(np.array, teach(r, jax.tree.map(jnp.copy, state), 1)) for r in (other, reward)]
    chex.assert_trees_all_equal(*after)


def test_equal_keys_give_equal_states(files, taught):
    name, reward, _ = taught
    states = [reward.init(jax.random.key(5)), make(name, files).init(jax.random.key(5))]
    chex.assert_trees_all_equal(*states)


def test_raw_rewards_lead_to_the_rewards(taught):
    _, reward, state = taught
    captions = captions_of()
    output = score(reward, state, captions)
    raw = reward.raw_rewards(state, trajectory_of(captions), dict(reward.prepare(captions)))
    np.testing.assert_allclose(reward.from_raw(output.state, raw), output.rewards, rtol=1e-4, atol=1e-5)


class OwnReward(Reward):
    """As an author writes one: all of `score`, a state that counts, look-ups of captions and of observations."""

    other_observations = ("x",)

    def init(self, key):
        return {"total": jnp.float32(0), "weights": jnp.arange(3.0)}

    def prepare(self, captions):
        worth = np.zeros(8, np.float32)
        worth[: len(captions.messages)] = [len(message) for message in captions.messages]
        return {"worth": worth, "seen": captions.observations["x"].sum(axis=-1)}

    def score(self, state, trajectory, features):
        rewards = features["worth"][trajectory.captions] + features["seen"] * state["weights"].sum()
        return RewardOutput(rewards, {**state, "total": state["total"] + jnp.mean(gathered(rewards, axis=1))})


def scored(reward: Reward, replicas: Replicas) -> tuple[RewardOutput, bool]:
    """What a batch is worth by a reward with random parameters, and whether what it left alone was passed through."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(T, B, 3)).astype(np.float32)
    captions = captions_of()._replace(observations={"x": x})
    reward.ingest([Annotation(item, i % 2, 0.5) for i, item in enumerate(reward.requests(captions))])
    state = jax.tree.map(
        lambda leaf: (
            leaf + rng.normal(scale=0.03, size=leaf.shape).astype(leaf.dtype) if leaf.dtype == np.float32 else leaf
        ),
        jax.device_get(reward.init(jax.random.key(0))),
    )
    collected = Collected((), captions)
    batch = pack_shares(collected, (), reward, replicas)
    zeros = np.zeros((T + 1, B), np.float32)
    known = dict.fromkeys(Trajectory._fields, zeros[:T]) | {"is_first": zeros, "initial_core_state": np.zeros(B)}
    trajectory = Trajectory(**{**known, "observations": {"x": zeros}, "captions": batch.captions})  # type: ignore
    passed = []

    def score(state, trajectory, features):
        output = split_score(reward, replicas)(state, trajectory, features)
        passed.append([a is b for a, b in zip(jax.tree.leaves(output.state), jax.tree.leaves(state))])
        return output

    return jax.device_get(jax.jit(score)(replicas.place(state), trajectory, batch.features)), passed[0]


def two_devices(folder: str) -> None:
    ragged.LENGTHS = ()
    given = {"reward_dir": folder, "word_vectors": f"{folder}/words.vec"}
    for name in (*REWARD_TYPES, "own"):
        soft = {"llm_reward_value": "probability"} if name.startswith("online_cls") else {}
        one, two = (
            scored(OwnReward() if name == "own" else make(name, given, **soft), Replicas(jax.devices()[:count]))
            for count in (1, 2)
        )
        assert one[1] == two[1], name
        assert one[0].rewards.shape == two[0].rewards.shape == (T, B), name
        assert name == "none" or np.any(one[0].rewards), name
        for a, b in zip(jax.tree.leaves(one[0]), jax.tree.leaves(two[0]), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6, err_msg=name)
    print("equal")


def test_two_devices_score_as_one_does(files):
    flags = "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    code = f"from tests.rewards.test_conformance import two_devices; two_devices({files['reward_dir']!r})"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and result.stdout.endswith("equal\n"), result.stderr[-4000:]
