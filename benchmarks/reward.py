"""Rewards of every type in frames a second: the host's look-ups, their copy to the device, and the jitted scoring.

    python -m benchmarks.reward --batch_sizes 4096 --json reward.json

The trajectories are on the device already, as in an update. All queries of a type about the batch are answered with
alternating labels.
"""

import functools
from typing import Any

import jax
from absl import flags

from benchmarks.builders import Update, config_of
from benchmarks.harness import JSON, alternate, measure_rate, num_repeats, run_app, sized, spread, write_report
from benchmarks.reward_files import REWARD_TYPES
from oni_jax.annotation.queries.choices import encode_label
from oni_jax.types import Annotation

_BATCH_SIZES = flags.DEFINE_list("batch_sizes", None, "Frames scored at once. (default: 4096; 64 with --smoke)")
_REWARD_TYPES = flags.DEFINE_multi_enum("reward_type", REWARD_TYPES, REWARD_TYPES, "Reward types.")
_SECS = flags.DEFINE_float("secs", 1.0, "Seconds of each measurement, at least.")


class Scoring:
    """A reward that scores one batch repeatedly."""

    def __init__(self, reward_type: str, batch_size: int):
        update = Update(config_of(batch_size, reward_type=reward_type))
        self._rewards, self._captions = update.rewards, update.captions
        self._rewards.observe(self._captions)
        queries = self._rewards.queries()
        self._rewards.ingest([Annotation(q.item, encode_label(i % 2, i % 2)) for i, q in enumerate(queries)])
        self._trajectory, _ = update.loss_inputs()
        self._state, self._score = update.state.reward_state, jax.jit(self._rewards.score)
        self._key = update.state.key

    def run(self) -> None:
        """Scores the batch, and waits for it."""
        features = jax.device_put(self._rewards.prepare(self._captions))
        jax.block_until_ready(self._score(self._state, self._trajectory, features, self._key).rewards)


def measure(batch_size: int) -> dict[str, Any]:
    """Measures frames a second of every type, in turn."""
    sides = {}
    for name in _REWARD_TYPES.value:
        scoring = Scoring(name, batch_size)
        scoring.run()
        sides[name] = functools.partial(measure_rate, scoring.run, batch_size, sized(_SECS.value, 0.0))
    rates = alternate(sides, num_repeats())
    return {name: {"frames_per_sec": spread(values)} for name, values in rates.items()}


def main() -> None:
    batch_sizes = _BATCH_SIZES.value or sized(["4096"], ["64"])
    write_report(JSON.value, {size: measure(int(size)) for size in batch_sizes})


if __name__ == "__main__":
    run_app(main)
