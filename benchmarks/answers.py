"""Accuracy of a classifier that learnt from recorded answers alone, on messages that it was not shown.

python -m benchmarks.answers --json answers.json

With a run's folder it compares what labels pay where only some messages have an answer, at the steps of that run:
retrieval, a classifier, and retrieval with the classifier for other messages (`online_cls --unanswered model`).

python -m benchmarks.answers --of train_dir/my_run --numbers 100,300,1000,3000
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import app, flags

from benchmarks.harness import JSON, run_app, sized, write_report
from oni_jax.annotation.queries.choices import decode_label
from oni_jax.answers.answerer import shipped_path
from oni_jax.answers.form import read_answers
from oni_jax.envs.registry import languages
from oni_jax.parallel import Replicas
from oni_jax.rewards.base import Seen
from oni_jax.rewards.oni.classification import ClassificationScorer
from oni_jax.runs.message_counts import MessageCounts
from oni_jax.settings.rewards import RewardConfig, RewardModelConfig
from oni_jax.types import Annotation, CaptionBatch, Item

_SEEDS = flags.DEFINE_list("seeds", ["1"], "Seeds of the weights and the batches.")
_STEPS = flags.DEFINE_integer("steps", 3000, "Gradient steps under each goal.")
_OF = flags.DEFINE_string("of", "", "Folder of a NetHack run: compares what is paid at its steps.")
_NUMBERS = flags.DEFINE_list("numbers", ["100", "300", "1000", "3000"], "Numbers of answers, for --of.")
_HELD_OUT = 10  # one message in so many


def is_held_out(item: Item) -> bool:
    """Returns whether a message is left out of training: by its hash, so always the same ones."""
    return hashlib.blake2b(item[0], digest_size=4).digest()[0] % _HELD_OUT == 0


def learn(answers: Mapping[Item, bytes], num_steps: int, seed: int) -> Callable[[Sequence[Item]], np.ndarray]:
    """Trains the classifier of `online_cls_reward_model`. Returns the function items -> labels [N] bool."""
    config = RewardConfig(
        model=RewardModelConfig(batch_size=128, learning_rate=1e-3, gradient_steps_per_update=num_steps)
    )
    scorer = ClassificationScorer(config, "lt_cnn_small", seed, Replicas(jax.local_devices()[:1]))
    state = scorer.init(jax.random.key(seed))
    scorer.ingest([Annotation(item, answer) for item, answer in answers.items()])
    while scorer.steps_due():
        state = scorer.train_step(state)

    def labels(items: Sequence[Item]) -> np.ndarray:
        index = np.arange(len(items), dtype=np.int32)[None]
        features = scorer.prepare(CaptionBatch([item[0] for item in items], index))
        probabilities = np.asarray(scorer.raw_values(state, Seen(index, {}), features))[0]
        return probabilities > config.classification_threshold

    return labels


def labels_of(answers: Mapping[Item, bytes], items: Sequence[Item]) -> np.ndarray:
    """Returns the labels of answers [N] bool; False where there is none."""
    return np.array([item in answers and decode_label(answers[item]).label == 1 for item in items])


def measure(answers: Mapping[Item, bytes], num_steps: int, seed: int) -> dict[str, float]:
    """Measures a classifier that has learnt all but the held-out messages."""
    predict = learn({item: answer for item, answer in answers.items() if not is_held_out(item)}, num_steps, seed)
    held_out = [item for item in answers if is_held_out(item)]
    labels, helpful = labels_of(answers, held_out), predict(held_out)
    return {
        "accuracy": float((helpful == labels).mean()),
        "base_rate": float(max(labels.mean(), 1 - labels.mean())),
        "recall": float(helpful[labels].mean()) if labels.any() else 0.0,
        "held_out": len(held_out),
    }


def compare(
    answers: Mapping[Item, bytes], counts: Mapping[bytes, int], number: int, num_steps: int, seed: int
) -> dict[str, float]:
    """Returns the fractions of helpful steps that are paid (recall) and of paid steps that are helpful (precision).

    Args:
        answers: all, which say what is helpful.
        counts: message -> steps of a run.
        number: number of answers that are held, drawn at random.
        num_steps, seed: see `learn`.
    """
    met = [item for item in answers if counts.get(item[0])]
    weights = np.array([counts[item[0]] for item in met])
    items = [*answers]
    held = {items[i]: answers[items[i]] for i in np.random.default_rng(seed).permutation(len(items))[:number]}
    has_label, helpful, model = (
        np.array([item in held for item in met]),
        labels_of(answers, met),
        learn(held, num_steps, seed)(met),
    )
    label = labels_of(held, met)
    figures = {"answered": float((weights * has_label).sum() / weights.sum())}
    for name, paid in {"retrieval": label, "model": model, "both": np.where(has_label, label, model)}.items():
        right = (weights * (paid & helpful)).sum()
        figures[f"{name}_recall"] = float(right / (weights * helpful).sum())
        figures[f"{name}_precision"] = float(right / max(1, (weights * paid).sum()))
    return figures


def mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def main() -> None:
    file = read_answers(str(shipped_path("nethack", "classification")), languages())
    figures: dict[str, Any] = {}
    seeds, num_steps, counts = [*map(int, _SEEDS.value)], sized(_STEPS.value, 3), MessageCounts()
    if _OF.value:
        counts.restore(_OF.value)
        if not counts.counts():
            raise app.UsageError(f"--of {_OF.value}: holds no counts of messages")
    for goal in file.header.goals:
        answers = file.under(goal)
        if _OF.value:
            for number in map(int, _NUMBERS.value):
                rows = [compare(answers, counts.counts(), number, num_steps, seed) for seed in seeds]
                figures[f"{goal}_{number}"] = mean(rows)
        else:
            figures[goal] = mean([measure(answers, num_steps, seed) for seed in seeds])
    for name, row in figures.items():
        print(name, {key: round(value, 4) for key, value in row.items()})
    write_report(JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
