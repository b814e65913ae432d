"""Inspection of a run's reward: the value of each caption that the run knows."""

import collections
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import jax
import numpy as np

from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.prompts import load_prompt
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.annotation.stored import stored_answers
from oni_jax.answers.answerer import models_of
from oni_jax.envs.history import past_of
from oni_jax.envs.registry import env_spec, find_environment
from oni_jax.host.run_files import CHECKPOINTS
from oni_jax.ops.captions import as_captions
from oni_jax.rewards.base import Scorer, Seen
from oni_jax.rewards.registry import make_rewards, observations_read, questions
from oni_jax.rewards.terms import RewardSum
from oni_jax.runs.checkpointing import restore_reward
from oni_jax.runs.experiment import read_settings
from oni_jax.runs.labels import store_path
from oni_jax.runs.message_counts import MessageCounts
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation, Array, CaptionBatch, EnvSpec, PyTree

NUM_SCORED_AT_ONCE = 1024


class InspectedCaption(NamedTuple):
    """A caption and its reward, before episodic count and coefficient."""

    caption: bytes
    count: int | None  # steps of the run that have it, and times that it was added; None: not recorded
    labels: tuple[int, ...] | None  # `label_columns`: its label, or the number of labelled pairs it was better in, ...
    raw_reward: float  # the raw score: label, probability, similarity, or model output
    reward: float  # normalised and thresholded, as the policy is trained with


class NoRewardError(UserError):
    """A run learns from the environment's reward alone."""


class RunReward(NamedTuple):
    """A run's rewards, as a checkpoint holds them."""

    env_steps: int  # of the checkpoint
    config: Config
    spec: EnvSpec  # with the observations that are read
    rewards: RewardSum
    state: PyTree
    saved: Mapping[str, np.ndarray]  # the host's state, `RewardSum.save`
    annotations: Sequence[Annotation]


class Inspection(NamedTuple):
    """Result of `inspect_reward`."""

    env_steps: int  # of the checkpoint
    label_columns: Sequence[str]
    captions: Sequence[InspectedCaption]  # unique, the most rewarded first
    other_observations: Sequence[str]  # that the reward reads beside captions; zeros here

    def ends(self, num: int) -> list[tuple[str, Sequence[InspectedCaption]]]:
        """Returns ("most rewarded", the first `num`) and, if there are more, ("least rewarded", `num` of the rest)."""
        # The least rewarded first, and of equals the most frequent.
        rest = sorted(self.captions[num:], key=lambda row: (row.reward, row.raw_reward, -(row.count or 0)))
        found = [("most rewarded", self.captions[:num]), ("least rewarded", rest[:num])]
        return [(title, rows) for title, rows in found if rows]


def load_reward(folder: str, env_steps: int | None = None) -> RunReward:
    """Loads the reward of a checkpoint, with the run's labels so far; env_steps None: of the newest readable one.

    Raises:
        NoRewardError: there is no reward but the environment's.
        UserError: there is no such run, or no checkpoint that can be read.
    """
    config = read_settings(folder)
    spec = env_spec(config.env, observations_read(config))
    rewards = make_rewards(config, spec, frozen=True)
    if not rewards.paying:
        raise NoRewardError(f"{folder}: its --llm_reward_type is none, so there is nothing to inspect")
    shapes = jax.eval_shape(rewards.init, jax.random.key(0))
    found, (state, saved) = restore_reward(os.path.join(folder, CHECKPOINTS), shapes, env_steps)
    try:
        rewards.restore(saved)
    except (ValueError, KeyError, TypeError):  # a stranger's, or an older version's
        raise UserError(f"{folder}: checkpoint {found} holds no reward of this version; train the run again") from None
    annotations = read_annotations(config, folder)
    read = {term.question for term in rewards.terms if term.reward.reads_answers}
    rewards.ingest([annotation for annotation in annotations if annotation.question in read])
    return RunReward(found, config, spec, rewards, state, saved, annotations)


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
    run = load_reward(folder)
    index = _valuing_captions(run, folder, name)
    term = run.rewards.terms[index]
    kind = QUERIES[questions(run.config)[term.question][1]] if term.question >= 0 else None
    labels = kind.tally(a for a in run.annotations if a.question == term.question) if kind else {}
    counts = _counts(folder) + collections.Counter(added)
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


def score_texts(run: RunReward, folder: str, texts: Sequence[bytes]) -> np.ndarray:
    """Returns the values of N >= 1 captions, [N] float32, by the first reward that values captions.

    Raises:
        NoRewardError: none does.
    """
    index = _valuing_captions(run, folder)
    scorer, state = run.rewards.terms[index].reward.scorer, run.rewards.states(run.state)[index]
    unique = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    _, values = score_captions(cast(Scorer, scorer), state, run.spec, list(unique))
    return values[[unique[text] for text in texts]]


def _valuing_captions(run: RunReward, folder: str, name: str = "") -> int:
    """Returns the index of the reward of that name, or of the first, that values captions."""
    rewards = zip(run.rewards.labels, run.rewards.rewards)
    known = {  # those of windows value no caption by itself
        label: i for i, (label, own) in enumerate(rewards) if own.scorer and not past_of(own.other_observations)
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


def read_annotations(config: Config, folder: str) -> list[Annotation]:
    """Reads the annotations by the run's models and prompts from its label store."""
    asked, path = questions(config), store_path(config, folder)
    if not asked or not (config.annotation.label_store or os.path.exists(path)):
        return []
    if not os.path.exists(path):
        raise UserError(f"label store {path}: no such file; start in the folder in which the run was started")
    store, language = LabelStore(path), find_environment(config.env).language
    found = []
    try:
        for question, (annotation, kind) in enumerate(asked):
            digest, models = load_prompt(annotation, language, kind).digest, models_of(annotation, language, kind)
            held = stored_answers(store, QUERIES[kind], models, digest)
            found += [row._replace(question=question) for row in held]
    except OSError as error:
        raise UserError(str(error)) from None
    finally:
        store.close()
    return found


def _counts(folder: str) -> collections.Counter[bytes]:
    """Returns caption -> number of steps of the run that have it."""
    met = MessageCounts()
    met.restore(folder)
    return collections.Counter(met.counts())
