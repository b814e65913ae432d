"""What a run's reward gives for each message that the run knows of."""

import collections
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import jax
import numpy as np

from oni_jax.annotation.judge_answers import JUDGE_MODEL
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.labeller import checked
from oni_jax.annotation.prompts import load_prompt
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.checkpointing import restore_reward
from oni_jax.config import Config, UserError
from oni_jax.envs.registry import env_spec, find_environment
from oni_jax.experiment import read_settings
from oni_jax.learner.message_counts import MessageCounts
from oni_jax.preferences.dataset import PairDataset
from oni_jax.rewards.base import Reward, Scorer, Seen
from oni_jax.rewards.registry import make_rewards, observations_read, questions
from oni_jax.rewards.terms import RewardSum
from oni_jax.types import Annotation, Array, CaptionBatch, EnvSpec, PyTree

NUM_SCORED_AT_ONCE = 1024
NUM_PAIRS_READ_AT_ONCE = 4096


class InspectedMessage(NamedTuple):
    """A message and its reward, before the count in its episode and the coefficient."""

    message: bytes
    count: int | None  # steps at which the run met it, and those of the data set; None: not recorded
    labels: tuple[int, ...] | None  # `label_columns`: its label, or how many labelled pairs it was better in, ...
    raw_reward: float  # label, probability, similarity, or the model's own number
    reward: float  # normalised and thresholded, as the policy is trained with


class NoRewardError(UserError):
    """A run learns from the environment's reward alone."""


class RunReward(NamedTuple):
    """The rewards that a run has learnt."""

    env_steps: int  # of the checkpoint
    config: Config
    spec: EnvSpec  # with what is read
    rewards: RewardSum
    state: PyTree
    saved: Mapping[str, np.ndarray]  # of its host half
    annotations: Sequence[Annotation]


class Inspection(NamedTuple):
    """What `inspect_reward` found."""

    env_steps: int  # of the checkpoint
    label_columns: Sequence[str]
    messages: Sequence[InspectedMessage]  # each once, the most rewarded first
    other_observations: Sequence[str]  # that the reward reads beside messages; they were zeros

    def ends(self, num: int) -> list[tuple[str, Sequence[InspectedMessage]]]:
        """("most rewarded", the first `num`) and, if there are more, ("least rewarded", `num` of the others)."""
        # The least rewarded first, and of equals the most frequent.
        rest = sorted(self.messages[num:], key=lambda row: (row.reward, row.raw_reward, -(row.count or 0)))
        found = [("most rewarded", self.messages[:num]), ("least rewarded", rest[:num])]
        return [(title, rows) for title, rows in found if rows]


def load_reward(folder: str, env_steps: int | None = None) -> RunReward:
    """The reward of a checkpoint, with the labels that the run has by now; env_steps None: of the newest readable one.

    Raises:
        NoRewardError: there is no reward but the environment\'s.
        UserError: there is no such run, or no checkpoint that can be read.
    """
    config = read_settings(folder)
    spec = env_spec(config.env, observations_read(config))
    rewards = make_rewards(config, spec, frozen=True)
    if type(rewards.rewards[0]) is Reward:
        raise NoRewardError(f"{folder}: its --llm_reward_type is none, so there is nothing to inspect")
    shapes = jax.eval_shape(rewards.init, jax.random.key(0))
    found, (state, saved) = restore_reward(os.path.join(folder, "checkpoints"), shapes, env_steps)
    try:
        rewards.restore(saved)
    except (ValueError, KeyError, TypeError):  # others, or an older version, may have written it
        raise UserError(f"{folder}: checkpoint {found} holds no reward of this version; train the run anew") from None
    annotations = read_annotations(config, folder)
    rewards.ingest(annotations)
    return RunReward(found, config, spec, rewards, state, saved, annotations)


def inspect_reward(folder: str, dataset_dir: str = "", name: str = "") -> Inspection:
    """Scores all messages known with the reward of a run's newest readable checkpoint. Changes nothing in the run.

    Those are the messages that the run met and counted, those of its label store and of its reward model's data set,
    and with `dataset_dir` those of an offline data set.

    Args:
        folder: <train_dir>/<experiment>; the run may be going on.
        dataset_dir: holds data/message.npy.
        name: of several rewards, which: its label in `RewardSum`; the first that values messages when left out.

    Raises:
        UserError: there is no such run, no checkpoint, no reward but the environment's, or nothing to score.
    """
    run = load_reward(folder)
    known = {label: i for i, label in enumerate(run.rewards.labels) if run.rewards.rewards[i].scorer}
    if not known:
        raise NoRewardError(f"{folder}: its reward values no messages, so there is nothing to inspect")
    if name and name not in known:
        raise UserError(f"--llm_reward_type {name}: the run's rewards that value messages are {', '.join(known)}")
    index = known[name or next(iter(known))]
    term = run.rewards.terms[index]
    kind = QUERIES[questions(run.config)[term.question][1]] if term.question >= 0 else None
    labels = kind.tally(a for a in run.annotations if a.question == term.question) if kind else {}
    counts = _counts(folder, dataset_dir)
    learnt_from = [_texts(rows) for array, rows in run.saved.items() if array.endswith("rows_message")]
    messages = sorted({*counts, *labels, *itertools.chain(*learnt_from)})
    if not messages:
        raise UserError(f"{folder}: no message is known; train it further, or name messages with --dataset_dir")
    state = run.rewards.states(run.state)[index]
    raw_values, values = score_messages(cast(Scorer, term.reward.scorer), state, run.spec, messages)
    rows = [
        InspectedMessage(message, counts.get(message), labels.get(message), raw, given)
        for message, raw, given in zip(messages, raw_values.tolist(), values.tolist())
    ]
    rows.sort(key=lambda row: (row.reward, row.raw_reward, row.count or 0), reverse=True)
    return Inspection(run.env_steps, kind.columns if kind else (), rows, term.reward.other_observations)


def score_messages(
    scorer: Scorer, state: PyTree, spec: EnvSpec, messages: Sequence[bytes]
) -> tuple[np.ndarray, np.ndarray]:
    """(raw values, values) of N >= 1 distinct messages, each [N] float32; running statistics stay as they are.

    Observations that the scorer reads beside the message are zeros.
    """
    size = min(NUM_SCORED_AT_ONCE, len(messages))
    shapes = {name: spec.observations[name] for name in scorer.other_observations}
    zeros = {name: np.zeros((1, size, *x.shape), x.dtype) for name, x in shapes.items()}

    @jax.jit
    def score(state: PyTree, index: Array, features: Mapping[str, Array]) -> tuple[Array, Array]:
        raw = scorer.raw_values(state, Seen(index, zeros), features)
        return raw, scorer.normalise(state, raw)

    chunks = [messages[start : start + size] for start in range(0, len(messages), size)]
    # The last chunk is filled up with its last message.
    places = [np.minimum(np.arange(size, dtype=np.int32), len(chunk) - 1)[None] for chunk in chunks]
    scored = [
        score(state, index, scorer.prepare(CaptionBatch(chunk, index, zeros))) for chunk, index in zip(chunks, places)
    ]
    raw, values = (np.concatenate([np.asarray(x)[0] for x in parts])[: len(messages)] for parts in zip(*scored))
    return raw, values


def read_annotations(config: Config, folder: str) -> list[Annotation]:
    """What the run's label store holds for its models and prompts."""
    asked, path = questions(config), config.annotation.label_store or os.path.join(folder, "labels.sqlite")
    if not asked or not (config.annotation.label_store or os.path.exists(path)):
        return []
    if not os.path.exists(path):
        raise UserError(f"label store {path}: no such file; start from the folder where the run was started")
    store, language = LabelStore(path), find_environment(config.env).language
    found = []
    try:
        for question, (annotation, kind) in enumerate(asked):
            model = annotation.llm_model if annotation.llm_server_addr else JUDGE_MODEL
            held = checked(QUERIES[kind], store.all(model, load_prompt(annotation, language, kind).digest))
            found += [row._replace(question=question) for row in held]
    except OSError as error:
        raise UserError(str(error)) from None
    finally:
        store.close()
    return found


def _counts(folder: str, dataset_dir: str) -> collections.Counter[bytes]:
    """Message -> how often the run met it, and the data set holds it."""
    met = MessageCounts()
    met.restore(folder)
    counts = collections.Counter(met.counts())
    if dataset_dir:
        dataset = PairDataset(dataset_dir, ["data/message"])
        for start in range(0, dataset.num_pairs, NUM_PAIRS_READ_AT_ONCE):
            counts.update(_texts(dataset.messages(slice(start, start + NUM_PAIRS_READ_AT_ONCE))))
    return counts


def _texts(padded: np.ndarray) -> list[bytes]:
    """[..., M] uint8 -> messages."""
    rows = np.ascontiguousarray(padded).view(f"S{padded.shape[-1]}").ravel()
    return [row.replace(b"\0", b"") for row in rows.tolist()]
