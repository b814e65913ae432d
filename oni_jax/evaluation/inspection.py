"""Inspection of a run's reward: the value of each caption that the run knows."""

import collections
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import jax
import numpy as np

from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.envs.history import past_of
from oni_jax.ops.captions import as_captions
from oni_jax.rewards.base import Scorer, Seen
from oni_jax.runs.rewards import NoRewardError, RunRewards
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError
from oni_jax.types import Array, CaptionBatch, EnvSpec, PyTree

NUM_SCORED_AT_ONCE = 1024


class InspectedCaption(NamedTuple):
    """A caption and its reward, before episodic count and coefficient."""

    caption: bytes
    count: int | None  # steps of the run that have it, and times that it was added; None: not recorded
    labels: tuple[int, ...] | None  # `label_columns`: its label, or the number of labelled pairs it was better in, ...
    raw_reward: float  # the raw score: label, probability, similarity, or model output
    reward: float  # normalised and thresholded, as the policy is trained with


class Inspection(NamedTuple):
    """Result of `inspect_reward`."""

    env_steps: int  # steps of the checkpoint
    label_columns: Sequence[str]
    captions: Sequence[InspectedCaption]  # unique, the most rewarded first
    other_observations: Sequence[str]  # observations that the reward reads besides captions; zeros here

    def ends(self, num: int) -> list[tuple[str, Sequence[InspectedCaption]]]:
        """Returns ("most rewarded", the first `num`) and, if there are more, ("least rewarded", `num` of the rest)."""
        # The least rewarded first, and of equals the most frequent.
        rest = sorted(self.captions[num:], key=lambda row: (row.reward, row.raw_reward, -(row.count or 0)))
        found = [("most rewarded", self.captions[:num]), ("least rewarded", rest[:num])]
        return [(title, rows) for title, rows in found if rows]


def inspect_reward(folder: str, added: Mapping[bytes, int] | None = None, name: str = "") -> Inspection:
    """Scores all known captions with the reward of a run's newest readable checkpoint. Changes nothing in the run.

    Known are the captions that the run counted, those of its label store and of its reward model's data set, and those
    that are `added`.

    Args:
        folder: <train_dir>/<experiment>; the run may be going on.
        added: further captions, and how often each was met.
        name: label in `RewardSum` of one of several rewards; default: the first that values captions.

    Raises:
        UserError: there is no such run, no checkpoint, no reward but the environment's, or nothing to score.
    """
    trained = Run(folder)
    run = trained.rewards()
    index = _valuing_captions(run, folder, name)
    term = run.rewards.terms[index]
    kind = QUERIES[trained.plan.questions[term.question][1]] if term.question >= 0 else None
    labels = kind.tally(a for a in run.annotations if a.question == term.question) if kind else {}
    counts = trained.captions() + collections.Counter(added)
    learnt_from = [as_captions(rows) for array, rows in run.saved.items() if array.endswith("rows_message")]
    captions = sorted({*counts, *labels, *itertools.chain(*learnt_from)})
    if not captions:
        raise UserError(f"{folder}: no caption is known; train it further, or add captions with --dataset_dir")
    state = run.rewards.states(run.state)[index]
    raw_values, values = score_captions(cast(Scorer, term.reward.scorer), state, run.spec, captions)
    rows = [
        InspectedCaption(caption, counts.get(caption), labels.get(caption), raw, value)
        for caption, raw, value in zip(captions, raw_values.tolist(), values.tolist())
    ]
    rows.sort(key=lambda row: (row.reward, row.raw_reward, row.count or 0), reverse=True)
    return Inspection(run.env_steps, kind.columns if kind else (), rows, term.reward.other_observations)


def score_texts(run: RunRewards, folder: str, texts: Sequence[bytes]) -> np.ndarray:
    """Returns the values of N >= 1 captions, [N] float32, by the first reward that values captions.

    Raises:
        NoRewardError: none does.
    """
    index = _valuing_captions(run, folder)
    scorer, state = run.rewards.terms[index].reward.scorer, run.rewards.states(run.state)[index]
    unique = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    _, values = score_captions(cast(Scorer, scorer), state, run.spec, list(unique))
    return values[[unique[text] for text in texts]]


def _valuing_captions(run: RunRewards, folder: str, name: str = "") -> int:
    """Returns the index of the reward of that name, or of the first, that values captions."""
    rewards = zip(run.rewards.labels, run.rewards.rewards)
    known = {  # those of windows value no caption by itself
        label: i
        for i, (label, reward) in enumerate(rewards)
        if reward.scorer and not past_of(reward.other_observations)
    }
    if not known:
        raise NoRewardError(f"{folder}: its reward values no captions, so there is nothing to inspect")
    if name and name not in known:
        raise UserError(f"--llm_reward_type {name}: the run's rewards that value captions are {', '.join(known)}")
    return known[name or next(iter(known))]


def score_captions(
    scorer: Scorer, state: PyTree, spec: EnvSpec, captions: Sequence[bytes]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (raw scores, values) of N >= 1 unique captions, each [N] float32; running statistics do not change.

    Observations that the scorer reads beside the caption are zeros.
    """
    size = min(NUM_SCORED_AT_ONCE, len(captions))
    shapes = {name: spec.observations[name] for name in scorer.other_observations}
    zeros = {name: np.zeros((1, size, *x.shape), x.dtype) for name, x in shapes.items()}

    @jax.jit
    def score(state: PyTree, index: Array, features: Mapping[str, Array]) -> tuple[Array, Array]:
        raw = scorer.raw_values(state, Seen(index, zeros), features)
        return raw, scorer.normalise(state, raw)

    chunks = [captions[start : start + size] for start in range(0, len(captions), size)]
    # The last chunk is padded with its last caption.
    indices = [np.minimum(np.arange(size, dtype=np.int32), len(chunk) - 1)[None] for chunk in chunks]
    scored = [
        score(state, index, scorer.prepare(CaptionBatch(chunk, index, zeros))) for chunk, index in zip(chunks, indices)
    ]
    raw, values = (np.concatenate([np.asarray(x)[0] for x in parts])[: len(captions)] for parts in zip(*scored))
    return raw, values
