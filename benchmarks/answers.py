"""Accuracy of a classifier that learnt from recorded answers alone, on messages that it was not shown.

python -m benchmarks.answers --json answers.json
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import app, flags

from benchmarks.harness import JSON, sized, write_report
from oni_jax.annotation.queries.choices import decode_label
from oni_jax.answers.answerer import shipped_path
from oni_jax.answers.form import read_answers
from oni_jax.envs.registry import languages
from oni_jax.parallel import Replicas
from oni_jax.rewards.base import Seen
from oni_jax.rewards.oni.classification import ClassificationScorer
from oni_jax.settings.rewards import RewardConfig
from oni_jax.types import Annotation, CaptionBatch, Item

_SEEDS = flags.DEFINE_list("seeds", ["1"], "Seeds of the weights and the batches.")
_STEPS = flags.DEFINE_integer("steps", 3000, "Gradient steps under each goal.")
_HELD_OUT = 10  # one message in so many


def is_held_out(item: Item) -> bool:
    """Returns whether a message is left out of training: by its hash, so always the same ones."""
    return hashlib.blake2b(item[0], digest_size=4).digest()[0] % _HELD_OUT == 0


def measure(answers: Mapping[Item, bytes], num_steps: int, seed: int) -> dict[str, float]:
    """Trains a classifier of `online_cls_reward_model` on all but the held-out messages."""
    config = RewardConfig(
        reward_model_batch_size=128, reward_model_lr=1e-3, reward_model_gradient_steps_per_update=num_steps
    )
    scorer = ClassificationScorer(config, "lt_cnn_small", seed, Replicas(jax.local_devices()[:1]))
    state = scorer.init(jax.random.key(seed))
    shown = {item: answer for item, answer in answers.items() if not is_held_out(item)}
    scorer.ingest([Annotation(item, answer) for item, answer in shown.items()])
    while scorer.steps_due():
        state = scorer.train_step(state)
    held_out = [item for item in answers if is_held_out(item)]
    labels = np.array([decode_label(answers[item]).label for item in held_out])
    index = np.arange(len(held_out), dtype=np.int32)[None]
    features = scorer.prepare(CaptionBatch([item[0] for item in held_out], index))
    probabilities = np.asarray(scorer.raw_values(state, Seen(index, {}), features))[0]
    helpful = probabilities > config.classification_threshold
    return {
        "accuracy": float((helpful == labels).mean()),
        "base_rate": float(max(labels.mean(), 1 - labels.mean())),
        "recall": float(helpful[labels == 1].mean()) if labels.any() else 0.0,
        "held_out": len(held_out),
    }


def main(argv: Sequence[str]) -> None:
    del argv
    file = read_answers(str(shipped_path("nethack", "classification")), languages())
    figures: dict[str, Any] = {}
    for goal in file.header.goals:
        found = [measure(file.under(goal), sized(_STEPS.value, 3), int(seed)) for seed in _SEEDS.value]
        figures[goal] = {name: float(np.mean([row[name] for row in found])) for name in found[0]}
        print(goal, {name: round(value, 4) for name, value in figures[goal].items()}, flush=True)
    write_report(JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
