"""Skipped updates, whose loss or gradients are NaN or inf: too many in a row end the run."""

import re
from collections.abc import Mapping

import jax
import numpy as np

from oni_jax.host.reporting import report
from oni_jax.learner.update import SOURCES, TrainState
from oni_jax.settings.fields import UserError

ADVICE = "find the cause, or lower {flag}, and resume from the newest checkpoint"


class BadUpdates:
    """Counts bad updates in a row, and the reward model's bad gradient steps.

    Args:
        limit: number of either in a row that ends the run.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._num_in_row = 0
        self._first = ""  # source of NaN or inf in the first of the row
        self._warned: set[str] = set()

    def check(self, metrics: Mapping[str, float]) -> None:
        """Counts an update by its metrics. Raises UserError at the limit."""
        self._num_in_row = self._num_in_row + 1 if metrics["loss/bad_update"] else 0
        if self._num_in_row:
            self._report(SOURCES[int(metrics["loss/not_finite"])])
        in_row = [x for name, x in metrics.items() if re.fullmatch(r"reward/(.+/)?bad_steps_in_row", name)]
        if max(in_row, default=0) >= self._limit:
            raise UserError(
                f"--max_bad_updates {self._limit}: that many gradient steps of the reward model in a row were skipped, "
                f"because its loss or gradients were NaN or inf; {ADVICE.format(flag='--reward_model_lr')}"
            )

    def _report(self, source: str) -> None:
        if self._num_in_row == 1:
            self._first = source
        if source not in self._warned:
            self._warned.add(source)
            report(f"warning: an update was skipped: the {source} are not finite")
        if self._num_in_row >= self._limit:
            raise UserError(
                f"--max_bad_updates {self._limit}: that many updates in a row were skipped; not finite first: "
                f"the {self._first}; {ADVICE.format(flag='--learning_rate')}"
            )


def why_unfit(state: TrainState) -> str:
    """Returns why a training state must not be saved; empty when it can be."""
    try:
        leaves = jax.device_get(jax.tree.leaves((state.params, state.opt_state)))
    except RuntimeError:
        return "the failed update had donated the training state's buffers"
    return "" if all(np.isfinite(x).all() for x in leaves) else "NaN or inf in parameters or Adam's moments"
