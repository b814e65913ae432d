"""Two recorded rewards each of ELLM's RND and NovelD (arXiv 2302.06692), computed again by our rewards.

Theirs normalises features by the batch's statistics, before the step and after it apart, which the test does; and
divides by the deviation of all errors so far, which are ours with a discount of 0. Its random network has three layers:
with the predictor it is one network here, whose output is their difference.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.ops.moments import Moments
from oni_jax.rewards.baselines.rnd import RndReward, RndState
from oni_jax.rewards.baselines.rnd_inputs import Inputs, Observations
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.config import Config
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.settings.rewards import RewardConfig, RndConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import ArraySpec, EnvSpec, Trajectory
from tests.golden import data_file
from tests.golden.test_bk_rnd import Flat
from tests.rewards.test_conformance import trajectory_of

WIDTH, SIZE, OUTPUTS = 16, 32, 8
SCALE = 0.5  # scale of the outputs: half the sum of eight squares is then the mean of the squares as they were
WEIGHT = 1e-4 / 10  # weight of the published start, where a batch of ten is 1


class Features(Observations):
    """Reads two rows: before the step, and after it."""

    def __init__(self):
        self.names, self.inputs, self.encoder = ("x",), {"x": ArraySpec((SIZE,), "float32")}, Flat(normalised=False)  # type: ignore

    def read(self, trajectory: Trajectory) -> Inputs:
        return {"x": trajectory.observations["x"][1:]}


def normalised(x: np.ndarray) -> np.ndarray:
    return np.clip((x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5), -5, 5)


def difference(npz) -> dict:
    """Parameters of a network that returns what the random one does, less what the predictor does."""

    def layer(number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        names = [f"param_{name}.{2 * number}" for name in ("target", "predictor")]
        return [(npz[f"{name}.weight"].T, npz[f"{name}.bias"]) for name in names]

    def dense(kernel: np.ndarray, bias: np.ndarray) -> dict:
        return {"kernel": kernel, "bias": bias}

    (first, biases), (second, other), (last, minus) = (zip(*layer(i)) for i in range(3))
    apart = np.zeros((2 * WIDTH, 2 * WIDTH), np.float32)
    apart[:WIDTH, :WIDTH], apart[WIDTH:, WIDTH:] = second
    output = dense(SCALE * np.concatenate([last[0], -last[1]]), SCALE * (minus[0] - minus[1]))
    hidden = dense(np.concatenate(first, axis=1), np.concatenate(biases)), dense(apart, np.concatenate(other))
    return {"params": {"hidden_0": hidden[0], "hidden_1": hidden[1], "output": output}}


@pytest.mark.parametrize("name, alpha, after", [("rnd", 0.0, "features"), ("noveld", 1.0, "next_features")])
def test_recorded_rewards(name, alpha, after):
    npz = np.load(data_file(f"ellm_{name}_reward.npz"))
    network = NetworkConfig(hidden_size=2 * WIDTH, policy_initialization="xavier_uniform")
    settings = RewardConfig(llm_reward_type=name, rnd=RndConfig(output_dim=OUTPUTS, learning_rate=1e-30))
    config = Config(EnvConfig(root_env="Catch-v0"), network=network, reward=settings, learner=LearnerConfig(gamma=0.0))
    reader = Features()
    reward = RndReward(RewardContext(config, EnvSpec(reader.inputs, 7, False, ())), reader, alpha)
    state: RndState = reward.init(jax.random.key(0))
    predictor = state.predictor._replace(params=difference(npz))
    start = Moments(jnp.float32(0), jnp.float32(1), jnp.float32(WEIGHT))
    state = state._replace(target=jax.tree.map(np.zeros_like, state.target), predictor=predictor, sums=start)
    rows = np.stack([normalised(npz["features"]), normalised(npz[after])]).astype(np.float32)
    steps = trajectory_of(observations={"x": rows}, rewards=np.zeros((1, len(rows[0])), np.float32))
    score = jax.jit(reward.score)
    for recorded in npz["rewards_two_calls"]:
        (rewards,), state = score(state, steps, {}, np.zeros(2, np.uint32))
        np.testing.assert_allclose(rewards, recorded, rtol=2e-5, atol=1e-6)
    assert 0 < np.mean(recorded > 0) <= 1 and (name == "rnd" or np.mean(recorded > 0) < 1)
