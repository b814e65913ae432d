"""Gauges of a running training: rates, queues, memory, newest answers. A row of metrics reads them."""

import time
from collections.abc import Mapping

import jax

from oni_jax.learner.loop import Annotator, Learner
from oni_jax.metrics.rows import Row, histogram
from oni_jax.metrics.statistics import RateMeters
from oni_jax.worlds.base import World

# Rates of counts that a row holds: name -> name of the count.
_RATES_OF = {
    "env_steps": "env_steps",
    "updates": "updates",
    "reward_gradient_steps": "reward/gradient_steps",
    "llm_tokens": "annotation/completion_tokens",
    "llm_prompt_tokens": "annotation/prompt_tokens",
}
_COUNTED = ("acted_steps", "inference_calls")  # gauges of a world that are shown as rates
# Names in `jax.Device.memory_stats`.
_MEMORY = {
    "device_memory_bytes": "bytes_in_use",
    "device_memory_peak_bytes": "peak_bytes_in_use",
    "device_memory_limit_bytes": "bytes_limit",
}


class Gauges:
    """Reads gauges from the parts of a run; costs nothing between rows."""

    def __init__(self, learner: Learner, world: World, annotator: Annotator):
        self._learner, self._world, self._annotator = learner, world, annotator
        self._rates = RateMeters()

    def start(self, env_steps: int, updates: int) -> None:
        """Starts the rates, from the counts of earlier starts."""
        counts = {name: float(value) for name, value in self._world.gauges().items() if name in _COUNTED}
        self._rates.update({"env_steps": env_steps, "updates": updates, **counts}, time.monotonic())

    def read(self, row: Row) -> Row:
        """Returns the gauges that belong to the counts in `row`."""
        gauges = dict(self._world.gauges())
        totals: dict[str, float] = {name: row[count] for name, count in _RATES_OF.items() if count in row}
        totals |= {name: gauges.pop(name) for name in _COUNTED if name in gauges}
        if "labels_asked" in row:
            totals["labels"] = row["labels_asked"] - row["answers_unreadable"] - row.get("annotation/filtered", 0)
        answers, distributions = self._annotator.answers(), jax.device_get(dict(self._learner.distributions))
        return {
            **self._rates.update(totals, time.monotonic()),
            "learner_waits_fraction": self._learner.trajectory_wait.fraction(),
            "learner_looks_up_fraction": self._learner.lookup_wait.fraction(),
            **gauges,
            **device_memory(jax.local_devices()[0].memory_stats()),
            **{name: values for name, x in distributions.items() if (values := histogram(x)) is not None},
            **({"answers": answers} if answers else {}),
        }


def device_memory(stats: Mapping[str, int] | None) -> Row:
    """Returns a device's memory under the names of metrics, as far as the platform reports it."""
    return {name: stats[key] for name, key in _MEMORY.items() if key in stats} if stats else {}
