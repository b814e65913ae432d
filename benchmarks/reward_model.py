"""Generalisation of the online reward models to unseen messages: of the classifier, and of the ranking of pairs.

    python -m benchmarks.reward_model --messages messages.jsonl --json reward_model.json

Unique messages from real games, half of them played at random and half by a script, are labelled by the judge's rules.
A fifth of them is held out; of a held-out pair, both messages are. The models learn from the others as in a run, but
with all labels from the start. Held-out messages may differ from others in a name or a number alone, as in any game.
Seconds of training include compiling, and exclude evaluation.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from absl import flags

from benchmarks.harness import JSON, ROOT_ENV, SMOKE, run_app, sized, write_report
from benchmarks.messages import collect
from oni_jax.annotation.queries.choices import encode_label
from oni_jax.envs.nethack.judge_rules import judge_caption, judge_pair, message_value
from oni_jax.envs.registry import env_spec
from oni_jax.evaluation.inspection import score_captions
from oni_jax.rewards.base import Scorer
from oni_jax.rewards.registry import make_rewards
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values
from oni_jax.types import Annotation, CaptionBatch

_NUM_MESSAGES = flags.DEFINE_integer("num_messages", None, "Unique messages. (default: 5000; 300 with --smoke)", 10)
_MESSAGES = flags.DEFINE_string("messages", "", "File of the messages, JSON lines: read if it exists, else written.")
_NUM_PAIRS = flags.DEFINE_integer("num_pairs", None, "Pairs learnt from. (default: 50000; 500 with --smoke)", 1)
_MAX_SECS = flags.DEFINE_float("max_secs", None, "Seconds of training each. (default: 300; 1 with --smoke)", 0.0)
_LR = flags.DEFINE_float("reward_model_lr", Config().reward.model.learning_rate, "Adam's step size.")
_BATCH_SIZE = flags.DEFINE_integer(
    "reward_model_batch_size", Config().reward.model.batch_size, "Messages, or pairs, in a gradient step.", 1
)
_ENCODER = flags.DEFINE_string(
    "encoder_msg_model", None, "Message network. (default: lt_cnn; lt_cnn_small with --smoke)"
)
_MODELS = flags.DEFINE_list("models", ["classification", "ranking"], "Models to measure.")
_SEED = flags.DEFINE_integer("seed", 1, "Seed of games, split, pairs and models.")

GOAL = "defaultgoal"
HELD_OUT_FRACTION = 0.2
NUM_POINTS = 20  # points of the curve
NUM_HELD_OUT_PAIRS = 20_000
BATCH_ROWS = 100  # messages of a batch that ranking draws pairs from
TIE = 2


class Split(NamedTuple):
    """Messages for training, and held-out ones."""

    train: list[bytes]
    held_out: list[bytes]


def load_or_collect(path: str, num_messages: int, seed: int) -> list[bytes]:
    """Reads the messages of the file if it holds enough; else collects and writes them."""
    if path and os.path.exists(path):
        with open(path) as file:
            messages = [json.loads(line).encode("latin-1") for line in file]
        if len(messages) >= num_messages:
            return messages[:num_messages]
    messages = collect(num_messages, seed)
    if path:
        with open(path, "w") as file:
            file.writelines(json.dumps(message.decode("latin-1")) + "\n" for message in messages)
    return messages


def split_messages(messages: Sequence[bytes], seed: int) -> Split:
    """Splits messages at random."""
    order = np.random.default_rng([seed, 1]).permutation(len(messages))
    shuffled = [messages[i] for i in order]
    count = round(HELD_OUT_FRACTION * len(messages))
    return Split(shuffled[count:], shuffled[:count])


def random_pairs(num_messages: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draws [count, 2] indices, of two different messages each."""
    first = rng.integers(num_messages, size=count)
    return np.stack([first, (first + rng.integers(1, num_messages, count)) % num_messages], axis=1)


class Model:
    """A reward as in a run, with unlimited gradient steps once it has labels."""

    def __init__(self, reward_type: str, values: Mapping[str, Any], seed: int):
        settings = dict(root_env=ROOT_ENV, llm_reward_type=reward_type, seed=seed, rew_norm=False)
        settings["reward_model_gradient_steps_per_update"] = 2**31 - 1
        config = with_values(Config(), {**settings, **values})
        (term,) = make_rewards(config, env_spec(config.env)).terms
        self.reward = cast(Scorer, term.reward.scorer)
        self._spec = env_spec(config.env)
        self._state = self.reward.init(jax.random.key(seed))
        self.num_steps = 0

    def step(self) -> None:
        self._state = jax.block_until_ready(self.reward.train_step(self._state))
        self.num_steps += 1

    def train(self, secs: float) -> float:
        """Makes gradient steps for `secs`, one at least; returns the seconds that they took."""
        start = time.perf_counter()
        while True:
            self.step()
            if (elapsed := time.perf_counter() - start) >= secs:
                return elapsed

    def rewards(self, messages: Sequence[bytes]) -> np.ndarray:
        """Returns rewards [N] float32: 0 or 1 of the classifier, raw scores of ranking."""
        _, values = score_captions(self.reward, self._state, self._spec, messages)
        return values


def ask_about_pairs(scorer: Scorer, messages: Sequence[bytes], num_pairs: int, rng: np.random.Generator) -> None:
    """Has the reward draw pairs as from batches of a run, and answers its queries."""
    size = min(BATCH_ROWS, len(messages))
    subsample = Config().reward.ranking.subsample
    while scorer.metrics()["dataset_rows"] < num_pairs:
        drawn = [messages[i] for i in rng.choice(len(messages), size, replace=False)]
        index = np.repeat(np.arange(size, dtype=np.int32), subsample)[:, None]
        scorer.observe_captions(CaptionBatch(drawn, index))
        scorer.ingest([Annotation(item, encode_label(judge_pair(GOAL, *item), 1)) for item in scorer.queries()])


def confusion(rewards: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns counts [2, 2]: rows the judge's not helpful and helpful, columns the model's."""
    return np.array([[np.sum((labels == i) & (rewards == j)) for j in (0, 1)] for i in (0, 1)])


def classified(rewards: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Returns the classifier's metrics, each a fraction; 0 for an empty set."""
    (right_not, wrong_helpful), (wrong_not, right_helpful) = confusion(rewards, labels).tolist()
    recall = right_helpful / max(1, right_helpful + wrong_not)
    recall_not = right_not / max(1, right_not + wrong_helpful)
    return {
        "accuracy": (right_not + right_helpful) / len(labels),
        "balanced_accuracy": (recall + recall_not) / 2,
        "precision": right_helpful / max(1, right_helpful + wrong_helpful),
        "recall": recall,
    }


def pair_confusion(rewards: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Counts pairs [3, 2] by the judge's first, second and tie, and the model's first and second; rewards [P, 2]."""
    second = rewards[:, 1] > rewards[:, 0]
    return np.array([[np.sum((labels == i) & (second == j)) for j in (0, 1)] for i in (0, 1, TIE)])


def ranked(rewards: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Returns the fraction of pairs, without ties, that the model orders as the judge does."""
    table = pair_confusion(rewards, labels)
    return {"accuracy": float(table[0, 0] + table[1, 1]) / max(1, int(table[:2].sum()))}


def measure_curve(model: Model, evaluate: Callable[[], dict[str, Any]], max_secs: float) -> list[dict[str, Any]]:
    """Trains for `max_secs`, and evaluates after the first step, which compiles, and then at intervals."""
    curve: list[dict[str, Any]] = []
    secs = 0.0
    while not curve or secs < max_secs:
        secs += model.train(min(max_secs / NUM_POINTS, max_secs - secs) if curve else 0.0)
        curve.append({"secs": secs, "gradient_steps": model.num_steps, **evaluate()})
        print(json.dumps(curve[-1], default=float), flush=True)
    return curve


def measure_classification(split: Split, values: Mapping[str, Any], max_secs: float, seed: int) -> dict[str, Any]:
    model = Model("online_cls_reward_model", values, seed)
    labels = {
        name: np.array([judge_caption(GOAL, m)[0] for m in messages], int) for name, messages in split._asdict().items()
    }
    model.reward.ingest([Annotation((m,), encode_label(int(y), y)) for m, y in zip(split.train, labels["train"])])

    def evaluate() -> dict[str, Any]:
        return {name: classified(model.rewards(messages), labels[name]) for name, messages in split._asdict().items()}

    curve = measure_curve(model, evaluate, max_secs)
    rewards = model.rewards(split.held_out)
    table = confusion(rewards, labels["held_out"])
    print_table("The judge's label", ["not helpful", "helpful"], ["model: not helpful", "model: helpful"], table)
    return {
        **curve[-1],
        "helpful_fraction": float(labels["held_out"].mean()),
        "always_not_helpful": classified(np.zeros(len(split.held_out)), labels["held_out"]),
        "confusion": table.tolist(),
        "missed": _texts(split.held_out, (labels["held_out"] == 1) & (rewards == 0)),
        "taken_for_helpful": _texts(split.held_out, (labels["held_out"] == 0) & (rewards == 1)),
        "curve": curve,
    }


def _texts(messages: Sequence[bytes], chosen: np.ndarray) -> list[str]:
    return [message.decode("latin-1") for message, taken in zip(messages, chosen.tolist()) if taken]


def measure_ranking(
    split: Split, num_pairs: int, values: Mapping[str, Any], max_secs: float, seed: int
) -> dict[str, Any]:
    model, rng = Model("online_motif", values, seed), np.random.default_rng([seed, 2])
    ask_about_pairs(model.reward, split.train, num_pairs, rng)
    pairs = {name: random_pairs(len(messages), NUM_HELD_OUT_PAIRS, rng) for name, messages in split._asdict().items()}
    labels = {
        name: np.array([judge_pair(GOAL, messages[i], messages[j]) for i, j in pairs[name]])
        for name, messages in split._asdict().items()
    }

    def evaluate() -> dict[str, Any]:
        return {
            name: ranked(model.rewards(messages)[pairs[name]], labels[name])
            for name, messages in split._asdict().items()
        }

    curve = measure_curve(model, evaluate, max_secs)
    rewards = model.rewards(split.held_out)
    table = pair_confusion(rewards[pairs["held_out"]], labels["held_out"])
    print_table("The judge's label", ["first", "second", "tie"], ["model: first", "model: second"], table)
    kinds = np.array([message_value(GOAL, m) for m in split.held_out])
    return {
        **curve[-1],
        "num_train_pairs": int(model.reward.metrics()["dataset_rows"]),
        "tie_fraction": float(np.mean(labels["held_out"] == TIE)),
        "accuracy_of": accuracy_by_values(rewards[pairs["held_out"]], labels["held_out"], kinds[pairs["held_out"]]),
        "confusion": table.tolist(),
        "curve": curve,
    }


def accuracy_by_values(rewards: np.ndarray, labels: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """Returns the accuracy by the pair's values, -1, 0 or 1 (`message_value`); rewards and values [P, 2]."""
    ordered = np.sort(values, axis=1)
    kinds = {"harmful_neutral": (-1, 0), "neutral_helpful": (0, 1), "harmful_helpful": (-1, 1)}
    masks = {name: (ordered == pair).all(axis=1) for name, pair in kinds.items()}
    return {name: ranked(rewards[mask], labels[mask])["accuracy"] for name, mask in masks.items()}


def print_table(corner: str, rows: Sequence[str], columns: Sequence[str], counts: np.ndarray) -> None:
    print(f"\n| {' | '.join([corner, *columns])} |\n|{'---|' * (1 + len(columns))}")
    for name, row in zip(rows, counts.tolist()):
        print(f"| {' | '.join([name, *(f'{count:,}' for count in row)])} |")
    print(flush=True)


def main() -> None:
    if SMOKE.value:
        jax.config.update("jax_disable_most_optimizations", True)  # nearly all of the time goes to compiling
    start = time.perf_counter()
    seed, max_secs = _SEED.value, _MAX_SECS.value if _MAX_SECS.value is not None else sized(300.0, 1.0)
    messages = load_or_collect(_MESSAGES.value, _NUM_MESSAGES.value or sized(5000, 300), seed)
    split = split_messages(messages, seed)
    figures: dict[str, Any] = {"num_messages": len(messages), "collect_secs": time.perf_counter() - start}
    values = {
        "reward_model_lr": _LR.value,
        "reward_model_batch_size": _BATCH_SIZE.value,
        "encoder_msg_model": _ENCODER.value or sized(Config().network.torchbeast.msg_model, "lt_cnn_small"),
    }
    if "classification" in _MODELS.value:
        figures["classification"] = measure_classification(split, values, max_secs, seed)
    if "ranking" in _MODELS.value:
        num_pairs = _NUM_PAIRS.value or sized(50_000, 500)
        figures["ranking"] = measure_ranking(split, num_pairs, values, max_secs, seed)
    write_report(JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
