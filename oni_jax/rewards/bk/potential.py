"""Potentials of windows, for shaping: an LLM's background knowledge (BK, arXiv 2407.03964).

The scale of a potential is one that its author chose. Shaping pays by phi / c, where c is the standard deviation of phi
over the first `potential_warmup_steps` steps of training: fixed from then on, since a constant factor alone leaves the
optimal policy as it is, and until then nothing is paid.
"""

# BK: c is the running deviation of a discounted sum of phi, which grows with the mean: the shaping fades.

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp

from oni_jax import parallel
from oni_jax.ops.moments import Moments, initial_moments, merge_moments, no_moments
from oni_jax.ops.shaping import Carried, published_shaping
from oni_jax.rewards.base import Reward, Scorer, Seen
from oni_jax.rewards.combine import Paid, Potential
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.fields import UserError
from oni_jax.settings.rewards import PotentialConfig
from oni_jax.types import Array, PyTree, RewardOutput, Trajectory

PUBLISHED = "published"  # a value of --potential_shaping

MIN_DEVIATION = 1e-6  # least deviation of a potential that is not constant


class Scale(NamedTuple):
    """Statistics of a potential, until its scale is fixed."""

    moments: Moments
    num_steps: Array  # [] int32; of the moments


class PotentialState(NamedTuple):
    params: PyTree  # parameters of the potential; never changed
    scale: Scale


class PotentialScorer(Scorer):
    """Values windows by phi / c. Subclasses implement `phi`, and `init_params` where it has parameters.

    Args:
        warmup_steps: environment steps from which c is taken.
    """

    def __init__(self, warmup_steps: int):
        self._warmup_steps = warmup_steps

    def init_params(self) -> PyTree:
        """Returns the parameters on the device."""
        return ()

    def phi(self, params: PyTree, seen: Seen, features: Mapping[str, Array]) -> Array:
        """Returns the potential [S, B] float32 of windows, as its author gave it."""
        raise NotImplementedError

    def init(self, key: Array) -> PotentialState:
        return PotentialState(self.init_params(), Scale(no_moments(), jnp.int32(0)))

    def raw_values(self, state: PotentialState, seen: Seen, features: Mapping[str, Array]) -> Array:
        return self.phi(state.params, seen, features)

    def track(self, state: PotentialState, raw: Array) -> PotentialState:
        before = raw[: len(raw) // 2]  # `raw` has both ends of the steps, see `combine.Potential`
        every = parallel.all_gather(before, axis=1)
        added = Moments(jnp.mean(every), jnp.var(every), jnp.float32(every.size))
        moments, num_steps = state.scale
        is_fixed = num_steps >= self._warmup_steps
        merged = merge_moments(moments, added)
        moments = Moments(*(jnp.where(is_fixed, old, new) for old, new in zip(moments, merged)))
        return state._replace(scale=Scale(moments, jnp.where(is_fixed, num_steps, num_steps + every.size)))

    def normalise(self, state: PotentialState, raw: Array) -> Array:
        return jnp.where(state.scale.num_steps >= self._warmup_steps, raw / _constant(state.scale), 0.0)

    def why_unknown(self, state: PotentialState) -> str:
        is_warm = int(state.scale.num_steps) >= self._warmup_steps
        return "" if is_warm else f"it pays after a warm-up of {self._warmup_steps:,} steps, which takes its scale"

    def state_metrics(self, state: PotentialState) -> Mapping[str, Array]:
        return {"potential_mean": state.scale.moments.mean, "potential_scale": _constant(state.scale)}


def _constant(scale: Scale) -> Array:
    """Returns c; 1 of a potential that is constant so far."""
    deviation = jnp.sqrt(scale.moments.variance)
    return jnp.where(deviation > MIN_DEVIATION, deviation, 1.0)


def shape(context: RewardContext, scorer: PotentialScorer) -> Reward:
    """Makes a potential the reward, by the shaping that the settings name.

    Raises:
        UserError: the published shaping is asked for where rollouts don't follow one another, or the other one where
            truncations count as ends, or the published one is given a warm-up, which it does not have.
    """
    config = context.config
    if config.reward.potential.shaping != PUBLISHED:
        if config.learner.bootstrap == "published":
            raise UserError(
                f"--bootstrap published: takes truncations for ends, where shaping goes on; leave it out, or add "
                f"--potential_shaping {PUBLISHED}"
            )
        return Potential(scorer, config.learner.gamma, context.frozen)
    warmup = config.reward.potential.warmup_steps
    if warmup not in (0, PotentialConfig.warmup_steps):
        raise UserError(
            f"--potential_warmup_steps {warmup}: has no meaning with --potential_shaping {PUBLISHED}, which pays "
            "from the first step on; leave it out"
        )
    if context.environment.device is None:
        raise UserError(
            f"--potential_shaping {PUBLISHED}: carries values over from rollout to rollout, which environments on the "
            f"accelerator alone keep in order, and {config.env.root_env} is none; leave it out"
        )
    return PublishedShaping(scorer, config.learner.gamma, config.learner.batch_size // config.learner.rollout)


class PublishedState(NamedTuple):
    params: PyTree  # parameters of the potential
    carried: Carried


class _Unscaled(Scorer):
    """A potential as its author gave it, with the state of the published shaping."""

    def __init__(self, potential: PotentialScorer, num_envs: int):
        self._potential, self._num_envs = potential, num_envs
        self.other_observations = potential.other_observations
        self.prepare, self.metrics = potential.prepare, potential.metrics

    def init(self, key: Array) -> PublishedState:
        zeros = jnp.zeros(self._num_envs, jnp.float32)
        return PublishedState(self._potential.init_params(), Carried(zeros, zeros, initial_moments()))

    def raw_values(self, state: PublishedState, seen: Seen, features: Mapping[str, Array]) -> Array:
        return self._potential.phi(state.params, seen, features)

    def state_metrics(self, state: PublishedState) -> Mapping[str, Array]:
        moments = state.carried.moments
        return {"potential_mean": moments.mean, "potential_scale": jnp.sqrt(moments.variance)}


class PublishedShaping(Paid):
    """Shaping as BK's published code does it, for comparison; see `ops.shaping.published_shaping`.

    Args:
        potential: potential to shape by.
        gamma: the learner's discount.
        num_envs: B, whose rollouts follow one another in the batches' columns.
    """

    only_in_training = "it carries values over from one rollout of training to the next"

    # BK: before an episode's first step the windows hold the action that is about to be taken; here there is none.

    def __init__(self, potential: PotentialScorer, gamma: float, num_envs: int):
        super().__init__(_Unscaled(potential, num_envs), "before")
        self._gamma, self.pays_for, self.reads_counts = gamma, "", False

    def score(
        self, state: PublishedState, trajectory: Trajectory, features: Mapping[str, Array], key: Array
    ) -> RewardOutput:
        phi = super().score(state, trajectory, features, key).rewards
        shaped, carried = published_shaping(state.carried, parallel.all_gather(phi, axis=1), self._gamma)
        return RewardOutput(parallel.local_shard(shaped, axis=1), state._replace(carried=carried))
