"""Curiosity in three recorded updates of BK's train_rnd.py (arXiv 2407.03964), computed again by our reward.

The recording holds no weights. With networks set by hand the reward shows the inputs that they are given, or pays the
recorded curiosity. Where ours differs on purpose, it starts from a state in which both compute the same:

- Statistics of ours start with the first batch, theirs with mean 0 and variance 1 of the weight of 1e-4 steps.
- Ours normalise a batch with itself included. Theirs do so for the predictor's loss only, and there they don't clip;
  the reward is that of the statistics before.
- Discounted sums of ours start at 0 in each batch. Theirs are carried on, as those of one long batch.

Not computed again: the predictor's loss. It is that of weights that are not recorded, over steps each drawn by chance
(of 3 in 12 minibatches none, with a loss of 0), where ours draws equally many of each trajectory, at least one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from oni_jax.ops.moments import Moments
from oni_jax.rewards.baselines.rnd import RndReward, RndState
from oni_jax.rewards.baselines.rnd_inputs import Inputs, Observations
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.config import Config
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.settings.rewards import RewardConfig, RndConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import ArraySpec, EnvSpec, RewardOutput, Trajectory
from tests.golden import data_file
from tests.rewards.test_conformance import trajectory_of

T, B, VIEW = 12, 3, (3, 7, 7)
NUM_UPDATES = 3
WEIGHT = 1e-4 / (T * B)  # weight of the published start, where a batch's is 1


class Flat(nn.Module):
    """Encoder that leaves observations as they are."""

    normalised: bool

    def is_numeric(self, array: ArraySpec) -> bool:
        return self.normalised

    def __call__(self, observations: dict[str, jax.Array]) -> jax.Array:
        (x,) = observations.values()
        return x.reshape(len(x), -1)


class AsTheyAre(Observations):
    """Reads the rows of a trajectory's observations, none of which is before the first step."""

    def __init__(self, inputs: dict[str, ArraySpec], encoder: nn.Module):
        self.names, self.inputs, self.encoder = tuple(inputs), inputs, encoder  # type: ignore

    def read(self, trajectory: Trajectory) -> Inputs:
        return trajectory.observations


class Known:
    """The reward with networks set by hand, about observations of this shape: curiosity is half the sum of squares."""

    def __init__(self, shape: tuple[int, ...], normalised: bool, frozen: bool = False):
        self.size = int(np.prod(shape))
        network = NetworkConfig(hidden_size=1, policy_initialization="xavier_uniform")
        settings = RewardConfig(llm_reward_type="rnd", rnd=RndConfig(output_dim=self.size))
        config = Config(
            EnvConfig(root_env="Catch-v0"), network=network, reward=settings, learner=LearnerConfig(gamma=0.99)
        )
        inputs = {"x": ArraySpec(shape, "float32")}
        context = RewardContext(config, EnvSpec(inputs, 7, False, ()), frozen=frozen)
        self.reward = RndReward(context, AsTheyAre(inputs, Flat(normalised)))
        self.score = jax.jit(self.reward.score)

    def start(self, **known) -> RndState:
        """The state of a target that returns its inputs, and of a predictor that returns 0."""
        state = self.reward.init(jax.random.key(0))
        target = {"output": {"kernel": np.eye(self.size, dtype=np.float32), "bias": np.zeros(self.size, np.float32)}}
        predictor = state.predictor._replace(params=jax.tree.map(np.zeros_like, state.predictor.params))
        return state._replace(target={"params": target}, predictor=predictor, **known)

    def __call__(self, state: RndState, x: np.ndarray) -> tuple[np.ndarray, RndState]:
        """Returns curiosity [T, B] about x [T, B, ...] by the state, before it is divided, and the next state."""
        output = self.paid(state, x)
        return output.rewards * self.reward.state_metrics(output.state)["deviation"], output.state

    def paid(self, state: RndState, x: np.ndarray) -> RewardOutput:
        steps = trajectory_of(observations={"x": x}, rewards=np.zeros(x.shape[:2], np.float32))
        return self.score(state, steps, {}, np.zeros(2, np.uint32))


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    with np.load(data_file("bk_rnd_training.npz")) as npz:
        return dict(npz)


def moments(mean, variance, weight) -> Moments:
    return Moments(*(jnp.asarray(x, jnp.float32) for x in (mean, variance, weight)))


def half_squares(x: np.ndarray, limit: float = 5.0) -> np.ndarray:
    """Half the sum of squares of inputs [N, *VIEW] within the limit [T, B]."""
    return 0.5 * np.sum(np.clip(x, -limit, limit) ** 2, axis=(-3, -2, -1)).reshape(T, B)


def test_statistics_of_the_observations_and_inputs_by_them(recorded):
    known = Known(VIEW, normalised=True)
    state = known.start(inputs={"x": moments(np.zeros(VIEW), np.ones(VIEW), WEIGHT)})
    for update in range(NUM_UPDATES):
        curiosity, after = known(state, recorded["obs_after/b_obs"][update].reshape(T, B, *VIEW))
        found = after.inputs["x"]
        np.testing.assert_allclose(found.mean, recorded["obs_after/obs_mean"][update], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.variance, recorded["obs_after/obs_var"][update], rtol=1e-4, atol=1e-8)
        inputs = recorded["obs_after/rnd_next_obs"][update]
        np.testing.assert_allclose(curiosity, half_squares(inputs), rtol=1e-4)
        state = known.start(inputs=after.inputs)
    assert np.abs(recorded["obs_after/rnd_next_obs"]).max() > 5  # not clipped, where ours are


@pytest.mark.parametrize("update", [0, 1])
def test_inputs_of_the_reward_by_the_statistics_before(recorded, update):
    known = Known(VIEW, normalised=True, frozen=True)
    mean, variance = np.zeros(VIEW), np.ones(VIEW)
    if update:
        mean, variance = (recorded[f"obs_after/obs_{name}"][update - 1] for name in ("mean", "var"))
    steps = slice(update * T, (update + 1) * T)
    curiosity, _ = known(known.start(inputs={"x": moments(mean, variance, 1)}), recorded["obs/next_obs"][steps])
    inputs = recorded["obs/rnd_next_obs"][steps]
    np.testing.assert_allclose(curiosity, half_squares(inputs), rtol=1e-4)
    assert np.abs(inputs).max() == (5 if update else 1)


@pytest.mark.parametrize("update", range(NUM_UPDATES))
def test_curiosity_by_the_deviation_of_its_discounted_sums(recorded, update):
    """All batches up to this one are taken as one long batch, so that the sums are carried on."""
    known = Known((1,), normalised=False)
    curiosity = recorded["raw/curiosity_rewards"][: update + 1].reshape(-1, B)
    state = known.start(sums=moments(0, 1, WEIGHT / (update + 1)))
    rewards, after = known.paid(state, np.sqrt(2 * curiosity)[..., None])
    mean, variance, count = recorded["adv/reward_rms"][update]
    np.testing.assert_allclose([after.sums.mean, after.sums.variance], [mean, variance], rtol=1e-5)
    assert count == pytest.approx(1e-4 + curiosity.size)
    np.testing.assert_allclose(rewards[-T:], recorded["adv/curiosity_rewards"][update], rtol=1e-5)
