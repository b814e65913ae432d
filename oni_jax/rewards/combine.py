"""Combinators of a scorer's values to rewards: those of one end of a step, by count, or potential-based shaping."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from oni_jax.ops.captions import both_ends
from oni_jax.ops.shaping import episodic_count_bonus
from oni_jax.rewards.base import Reward, Scorer, Seen
from oni_jax.rewards.registry import RewardContext
from oni_jax.types import Array, CaptionBatch, PyTree, RewardOutput, StepCaptions, Trajectory

ENDS = {"obs": "before", "next_obs": "caused"}  # values of --intrinsic_reward_at


def pay(context: RewardContext, scorer: Scorer) -> "Paid":
    """Makes a scorer's values the reward as the settings say: at which end of a step, with which count exponent."""
    reward = context.config.reward
    return Paid(scorer, ENDS[reward.captions.at], reward.captions.count_exponent, context.frozen)


def observations_after(trajectory: Trajectory, name: str) -> Array:
    """Returns an observation after each step [T, B, ...]: at an episode's end its final one, not the next episode's."""
    seen, final = trajectory.observations[name], trajectory.final_observations[name]
    ends = jnp.logical_or(trajectory.terminations, trajectory.truncations)
    return jnp.where(ends.reshape(*ends.shape, *[1] * (final.ndim - ends.ndim)), final, seen[1:])


class _Scored(Reward):
    """A reward from a scorer's values at one or both ends of the steps.

    Args:
        frozen: keeps running statistics as they are.
    """

    def __init__(self, scorer: Scorer, frozen: bool):
        self.scorer = self._scorer = scorer
        self._frozen, self.other_observations = frozen, scorer.other_observations

    def _read(self, captions: StepCaptions) -> CaptionBatch:
        raise NotImplementedError

    def observed_names(self) -> Sequence[str]:
        return () if type(self._scorer).observe_captions is Scorer.observe_captions else self.other_observations

    def observe(self, captions: StepCaptions) -> None:
        self._scorer.observe_captions(self._read(captions))

    def prepare(self, captions: StepCaptions) -> Mapping[str, np.ndarray]:
        read = self._read(captions)
        return {**self._scorer.prepare(read), "caption_index": read.index}

    def _values(
        self, state: PyTree, observations: Mapping[str, Array], features: Mapping[str, Array]
    ) -> tuple[Array, PyTree]:
        index = features["caption_index"]
        raw = self._scorer.raw_values(state, Seen(index, observations), features)
        if jnp.shape(raw) != index.shape:  # it could be broadcast, to wrong rewards
            raise ValueError(f"its raw values are {list(jnp.shape(raw))}, not {list(index.shape)}")
        state = state if self._frozen else self._scorer.track(state, raw)
        return self._scorer.normalise(state, raw), state


class Paid(_Scored):
    """Rewards a step by the value of one caption, divided by n^exponent: n its occurrences in the episode so far.

    Args:
        end: whose caption is valued: `before` or `caused`.
        count_exponent: exponent of the episodic count bonus; 0 turns it off.
    """

    def __init__(self, scorer: Scorer, end: str, count_exponent: float = 0.0, frozen: bool = False):
        super().__init__(scorer, frozen)
        self._end, self._exponent, self.captions_read = end, count_exponent, (end,)
        self.pays_for = end
        self.reads_counts = count_exponent != 0 or type(self).score is not Paid.score
        self.final_observations = scorer.other_observations if end == "caused" else ()

    def _read(self, captions: StepCaptions) -> CaptionBatch:
        return getattr(captions, self._end)

    def score(self, state: PyTree, trajectory: Trajectory, features: Mapping[str, Array], key: Array) -> RewardOutput:
        def at_end(name: str) -> Array:
            return trajectory.observations[name][:-1] if self._end == "before" else observations_after(trajectory, name)

        values, state = self._values(state, {name: at_end(name) for name in self.other_observations}, features)
        if self._exponent:
            values = episodic_count_bonus(values, getattr(trajectory, f"{self._end}_counts"), self._exponent)
        return RewardOutput(values, state)


class Potential(_Scored):
    """Potential-based shaping by a scorer phi: F = gamma phi(caused) (1 - terminated) - phi(before).

    Scaled by a constant alone it leaves the optimal policy unchanged, so there is no count bonus and no clip (Ng,
    Harada and Russell, Policy invariance under reward transformations, 1999). At a truncation phi is that of the final
    observation.

    Args:
        gamma: the learner's discount.
    """

    captions_read, reads_counts = ("before", "caused"), False

    def __init__(self, scorer: Scorer, gamma: float, frozen: bool = False):
        super().__init__(scorer, frozen)
        self._gamma, self.final_observations = gamma, scorer.other_observations

    def _read(self, captions: StepCaptions) -> CaptionBatch:
        return both_ends(captions)

    def score(self, state: PyTree, trajectory: Trajectory, features: Mapping[str, Array], key: Array) -> RewardOutput:
        def at_both_ends(name: str) -> Array:
            return jnp.concatenate([trajectory.observations[name][:-1], observations_after(trajectory, name)])

        values, state = self._values(state, {name: at_both_ends(name) for name in self.other_observations}, features)
        before, caused = jnp.split(values, 2)
        return RewardOutput(self._gamma * caused * (1.0 - trajectory.terminations) - before, state)
