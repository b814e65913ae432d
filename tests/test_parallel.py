"""Eight devices, simulated in a separate process, compute what one does."""

import os

import pytest

from oni_jax.parallel import Replicas
from oni_jax.settings.fields import UserError
from tests.support.processes import equal_on_devices

STEPS = """
import jax, jax.numpy as jnp, numpy as np
from oni_jax.config import RewardConfig
from oni_jax.parallel import Replicas
from oni_jax.rewards.trainer import RewardTrainer
from oni_jax.settings.fields import with_values
from oni_jax.types import ArraySpec

def loss_fn(params, rows, noise):
    error = jnp.tanh(rows["x"] @ params["kernel"]) * noise - rows["y"]
    return jnp.mean(error**2), {"loss": jnp.mean(error**2)}

def trained(replicas):
    config = with_values(
        RewardConfig(), dict(reward_model_batch_size=32, reward_model_lr=1e-2, reward_dataset_size=50)
    )
    columns = {"x": ArraySpec((4,), "float32"), "y": ArraySpec((3,), "float32")}
    noise = lambda key, count: jax.random.bernoulli(key, 0.9, (count, 3)).astype(jnp.float32)
    trainer = RewardTrainer(columns, loss_fn, config, 1, noise, 10.0, replicas)
    state = trainer.init({"kernel": jax.random.normal(jax.random.key(0), (4, 3))})
    rng = np.random.default_rng(0)
    for _ in range(6):  # the data set grows, and goes round
        trainer.append({"x": rng.normal(size=(20, 4)), "y": rng.normal(size=(20, 3))})
        for _ in range(3):
            state = jax.block_until_ready(trainer.train_step(state))
    assert all(len(x.devices()) == len(replicas) for x in jax.tree.leaves(state))
    assert trainer.metrics()["gradient_steps"] == 18
    return state

one, eight = (trained(Replicas(jax.devices()[:count])) for count in (1, 8))
jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6), one, eight)
print("equal")
"""

METRICS = """
from types import SimpleNamespace
import jax, numpy as np
from oni_jax import parallel
from oni_jax.rewards.oni.ranking import RankingScorer
from oni_jax.types import TIE

rng = np.random.default_rng(0)
data = {"x": rng.normal(size=(32, 2, 1)).astype(np.float32), "label": rng.integers(0, 8, 32).clip(0, TIE)}
network = SimpleNamespace(apply=lambda params, flat: flat["x"][:, 0])
reward = SimpleNamespace(_observations=("x",), _reads_messages_alone=False, _network=network)

def told(replicas):
    def step(state, data, argument, device):
        share = 32 // len(replicas)
        rows = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, device * share, share), data)
        return parallel.mean(RankingScorer._loss(reward, state, rows, argument)[1])
    return replicas.stepper(step)((), data, ())

one, eight = (told(parallel.Replicas(jax.devices()[:count])) for count in (1, 8))
rights = ((data["x"][:, 1] > data["x"][:, 0])[:, 0] == data["label"])[data["label"] != TIE]
assert 0 < rights.mean() < 1 and any((data["label"][i : i + 4] == TIE).all() for i in range(0, 32, 4))
np.testing.assert_allclose(one["accuracy"], rights.mean(), rtol=1e-6)
jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, rtol=1e-6), one, eight)
print("equal")
"""

TRAIN = """
import sys
import jax, numpy as np
from oni_jax.config import Config, EnvConfig, NetworkConfig, RewardConfig
from oni_jax.envs.registry import env_spec
from oni_jax.networks import ragged
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.parallel import Replicas
from oni_jax.rewards.oni.classification import ClassificationScorer
from oni_jax.rewards.oni.ranking import RankingScorer
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.fields import with_values
from oni_jax.types import CaptionBatch
from tests.support.labelled import labelled

ragged.LENGTHS = ()  # less to compile
config = with_values(
    Config(env=EnvConfig(root_env="NetHackScore-v1")),
    dict(
        encoder_msg_model="lt_cnn_small",
        encoder_hidden_dim=32,
        reward_model_batch_size=32,
        reward_model_lr=1e-3,
        reward_dataset_size=64,
        online_dataset_subsample=1,
    ),
)
rng = np.random.default_rng(0)
texts = [bytes(rng.integers(97, 123, size)) for size in rng.integers(1, 60, 40)]
captions = CaptionBatch(texts, rng.integers(0, len(texts), (8, 8)).astype(np.int32))

def trained(name, num_steps, replicas):
    if name == "classification":
        reward = ClassificationScorer(config.reward, "lt_cnn_small", 1, replicas)
    else:
        network = make_ranking_network(config.network)
        reward = RankingScorer(RewardContext(config, env_spec(config.env), replicas), network, -0.5)
    state = reward.init(jax.random.key(0))
    for _ in range(num_steps):
        reward.observe_captions(captions)
        reward.ingest([labelled(item, sum(item[0]) % 2) for item in reward.queries()[:30]])
        state = jax.block_until_ready(reward.train_step(state))
    model = getattr(state, "model", state)
    assert all(len(x.devices()) == len(replicas) for x in jax.tree.leaves(model))
    assert reward.metrics()["gradient_steps"] == num_steps
    return model

def assert_close(one, eight, second_moment):
    # Pairs say nothing of what both rewards share: its gradient is what rounding leaves, and Adam makes whole steps of
    # it, so that after the first the runs part.
    tells = np.asarray(second_moment) > 1e-13
    np.testing.assert_allclose(np.asarray(eight)[tells], np.asarray(one)[tells], rtol=1e-4, atol=1e-5)

for name, num_steps in (("classification", 6), ("ranking", 1)):
    one, eight = (trained(name, num_steps, Replicas(jax.devices()[:count])) for count in (1, 8))
    adam = one.opt_state[1][0]
    jax.tree.map(assert_close, one.params, eight.params, adam.nu)
    told = [float(np.mean(np.asarray(x) > 1e-13)) for x in jax.tree.leaves(adam.nu["params"])]
    assert np.median(told) > 0.5, told
print("equal")
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(STEPS, id="steps"),
        pytest.param(METRICS, id="metrics"),
        pytest.param(TRAIN, id="rewards", marks=pytest.mark.slow),
    ],
)
def test_learning_and_metrics_do_not_depend_on_the_number_of_devices(program):
    assert equal_on_devices(8, "-c", program, flags=os.environ.get("XLA_FLAGS", "")) == "equal\n"


def test_a_batch_that_does_not_come_out_even_is_refused():
    with pytest.raises(UserError, match="--reward_model_batch_size 7: must be a multiple of the 2 devices"):
        Replicas([None, None]).shard_size(7, "reward_model_batch_size")
