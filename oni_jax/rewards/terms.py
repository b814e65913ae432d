"""The sum of a run's intrinsic rewards."""

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.ops.captions import NO_CAPTIONS, LazyRows, only_at
from oni_jax.rewards.base import Reward, Scorer
from oni_jax.rewards.blame import as_features, blaming, shapes_of, stacked
from oni_jax.rewards.reward_type import reward_labels
from oni_jax.settings.fields import UserError
from oni_jax.types import (
    EPISODE_GOAL,
    Annotation,
    Array,
    CaptionBatch,
    EnvSpec,
    GoalModelFn,
    PyTree,
    Query,
    RewardOutput,
    StepCaptions,
    Trajectory,
)

EVERY_GOAL = -1
Features = tuple[Mapping[str, Array], ...]  # features of each reward


class Term(NamedTuple):
    """One reward of the sum."""

    name: str  # name of its type
    reward: Reward
    coeff: float
    question: int = 0  # index of its queries' question in `registry.questions`; -1: it asks nothing
    asks_about_captions: bool = False  # one by one
    goal: int = EVERY_GOAL  # index of the episodes' goal whose steps it pays; see `envs.episode_goals`


class RewardSum:
    """K rewards, each with a device state: the sum's is that of the only one, or a tuple of all."""

    def __init__(self, terms: Sequence[Term]):
        self.terms = tuple(terms)
        self.rewards = tuple(term.reward for term in terms)
        self._learning = tuple(reward.learning for reward in self.rewards)
        self._by_goal = any(term.goal != EVERY_GOAL for term in terms)
        goal = (EPISODE_GOAL,) if self._by_goal else ()
        others = (name for r in self.rewards for name in r.other_observations)
        self.other_observations = list(dict.fromkeys((*others, *goal)))
        self._observed = list(dict.fromkeys(name for r in self.rewards for name in r.observed_names()))
        self.final_observations = list(dict.fromkeys(name for r in self.rewards for name in r.final_observations))
        self.captions_read = {end for reward in self.rewards for end in reward.captions_read}
        self.reads_counts = any(reward.reads_counts for reward in self.rewards if type(reward) is not Reward)
        self.asks_about_captions = any(term.asks_about_captions for term in self.terms)
        self.labels = reward_labels([term.name for term in terms])
        self.paying = () if type(self.rewards[0]) is Reward else self.labels  # not of the type that is always 0
        self.coeffs = dict(zip(self.labels, (term.coeff for term in terms)))

    def read_from(self, spec: EnvSpec) -> EnvSpec:
        """Returns the spec of environments with what the rewards read of their steps."""
        return spec._replace(
            final_observations=tuple(self.final_observations),
            captions_read=tuple(sorted(self.captions_read)),
            reads_counts=self.reads_counts,
        )

    def read(self, captions: StepCaptions, observed: bool = False) -> StepCaptions:
        """Returns the captions that the rewards read, and those before the steps, which every run counts.

        observed: also the observations that `observe` alone reads.
        """
        names = self._observed if observed else self.other_observations

        def kept(end: str, batch: CaptionBatch) -> CaptionBatch:
            if end not in self.captions_read | {"before"}:
                return NO_CAPTIONS
            return batch._replace(observations=LazyRows(names, batch.observations.__getitem__))

        return StepCaptions(*map(kept, StepCaptions._fields, captions))

    def init(self, key: Array) -> PyTree:
        keys = [key, *(jax.random.fold_in(key, i) for i in range(1, len(self.rewards)))]
        return self._joined([part.init(key) for part, key in zip(self._learning, keys)])

    def prepare(self, captions: StepCaptions) -> Features:
        """Looks up what a batch needs, for `score`."""
        features = []
        for label, reward, paid in zip(self.labels, self.rewards, (self._paid_by(x, captions) for x in self.terms)):
            with blaming([reward, reward.learning], f"`prepare` of the reward {label}"):
                features.append(as_features(reward.prepare(paid)))
        return tuple(features)

    def prepare_shards(self, shards: Sequence[StepCaptions]) -> Features:
        """Looks up what the shards of a batch need, each with one more leading axis [L, ...]."""
        features = []
        for label, reward, found in zip(self.labels, self.rewards, zip(*map(self.prepare, shards))):
            with blaming([reward, reward.learning], f"`prepare` of the reward {label}"):
                features.append(stacked(found))
        return tuple(features)

    def _paid_by(self, term: Term, captions: StepCaptions) -> StepCaptions:
        """Returns the captions of the steps that a term pays; all where statistics run over the values of a batch."""
        scorer = term.reward.scorer
        if term.goal == EVERY_GOAL or scorer is None or type(scorer).track is not Scorer.track:
            return captions
        is_paid = captions.before.observations[EPISODE_GOAL] == term.goal
        return StepCaptions(*(only_at(batch, is_paid) if batch.index.size else batch for batch in captions))

    def score(self, state: PyTree, trajectory: Trajectory, features: Features, key: Array) -> RewardOutput:
        """Returns rewards [K, T, B] float32 before the coefficients, and the new state; see `Reward.score`."""
        keys = [jax.random.fold_in(key, i) for i in range(len(self.rewards))]
        scored = []
        rows = zip(self.labels, self.rewards, self.states(state), features, keys, strict=True)
        for label, reward, reward_state, looked_up, reward_key in rows:
            with blaming([reward, reward.learning], f"`score` of the reward {label}, from {shapes_of(looked_up)},"):
                scored.append(reward.score(reward_state, trajectory, looked_up, reward_key))
            if (found := jnp.shape(scored[-1].rewards)) != trajectory.rewards.shape:
                raise UserError(
                    f"--llm_reward_type {label}: scores {list(found)}, not {list(trajectory.rewards.shape)}"
                )
        if self._by_goal:
            goals = trajectory.observations[EPISODE_GOAL][:-1]
            paid = ((goals == term.goal) | (term.goal == EVERY_GOAL) for term in self.terms)
            scored = [
                score._replace(rewards=jnp.where(is_paid, score.rewards, 0.0)) for score, is_paid in zip(scored, paid)
            ]
        return RewardOutput(
            jnp.stack([score.rewards for score in scored]), self._joined([score.state for score in scored])
        )

    def observe(self, captions: StepCaptions) -> None:
        """Takes in a batch's captions as `read` returns them; called once a batch."""
        for reward in self.rewards:
            reward.observe(captions)

    def queries(self, limit: int = sys.maxsize) -> Sequence[Query]:
        """Returns the queries to ask the LLM, each reward's newest last, and at most its newest `limit`."""
        return [Query(item, term.question) for term in self.terms for item in term.reward.learning.queries(limit)]

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        """Takes in answers, and passes each to the rewards that ask its question."""
        for term in self.terms:
            if answers := [annotation for annotation in annotations if annotation.question == term.question]:
                term.reward.learning.ingest(answers)

    def asked_as(self, caption: bytes) -> bytes:
        """Returns a caption as queries word it, by the first reward that asks."""
        asking = next((term.reward.learning for term in self.terms if term.question >= 0), None)
        return asking.asked_as(caption) if asking else caption

    def suggested(self) -> Mapping[bytes, np.ndarray]:
        """Returns what goals are worth in states with these captions, since the last call; see `Learning.suggested`."""
        return {caption: worths for part in self._learning for caption, worths in part.suggested().items()}

    @property
    def goal_model(self) -> GoalModelFn | None:
        """The goal model of the first reward that has one; see `Learning.goal_model`."""
        return next((part.goal_model for part in self._learning if part.goal_model), None)

    def acting(self, state: PyTree) -> PyTree:
        """Takes in the device state before a batch. Returns that model's parameters; (): there is none."""
        states = zip(self._learning, self.states(state), strict=True)
        found = [part.acting(part_state) for part, part_state in states]
        return next((params for params in found if params != ()), ())

    def is_known(self, state: PyTree) -> bool:
        """Returns whether the values of all rewards say something; see `Learning.why_unknown`."""
        return not any(map(lambda part, part_state: part.why_unknown(part_state), self._learning, self.states(state)))

    def steps_due(self) -> int:
        return sum(part.steps_due() for part in self._learning)

    def train_step(self, state: PyTree) -> PyTree:
        """Makes some of the gradient steps that are due."""
        return self._joined(
            [part.train_step(part_state) for part, part_state in zip(self._learning, self.states(state))]
        )

    def merge(self, scored: PyTree, trained: PyTree) -> PyTree:
        """Merges the states that `score` and `train_step` returned for the same one."""
        states = zip(self._learning, self.states(scored), self.states(trained), strict=True)
        return self._joined([part.merge(*both) for part, *both in states])

    def metrics(self, state: PyTree) -> Mapping[str, Array]:
        """Returns scalars and counts, on the host or of the device state."""
        states = zip(self._learning, self.states(state), strict=True)
        return self._named([{**part.metrics(), **part.state_metrics(part_state)} for part, part_state in states])

    def save(self) -> Mapping[str, np.ndarray]:
        """Returns arrays for the checkpoint. Raises UserError: a reward gives Python objects."""
        saved = [part.save() for part in self._learning]
        for label, arrays in zip(self.labels, saved):
            for name, x in arrays.items():
                if np.asarray(x).dtype.hasobject:
                    raise UserError(f"--llm_reward_type {label}: save() gives {name} as Python objects; use arrays")
        return self._named(saved)

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        for label, part in zip(self.labels, self._learning):
            prefix = f"{label}/" if len(self.rewards) > 1 else ""
            part.restore({name.removeprefix(prefix): x for name, x in saved.items() if name.startswith(prefix)})

    def _named(self, found: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
        """Merges the rewards' entries, of several rewards under their labels as prefixes."""
        if len(found) == 1:
            return found[0]
        return {f"{label}/{name}": x for label, arrays in zip(self.labels, found) for name, x in arrays.items()}

    def states(self, state: PyTree) -> tuple[PyTree, ...]:
        return (state,) if len(self.rewards) == 1 else state

    def _joined(self, states: Sequence[PyTree]) -> PyTree:
        return states[0] if len(states) == 1 else tuple(states)
