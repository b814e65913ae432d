"""Every registered reward keeps the interface's promises. A new type is tested by being registered."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.config import AnnotationConfig, Config, EnvConfig, NetworkConfig, RewardConfig
from oni_jax.envs.registry import env_spec
from oni_jax.metrics import undocumented
from oni_jax.networks import ragged
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.preferences.reward_model import QUANTILES, RewardModel, save_reward_model
from oni_jax.rewards.registry import REWARD_TYPES, check_reward, make_reward
from oni_jax.types import UNKNOWN, Annotation, CaptionBatch, Trajectory
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
