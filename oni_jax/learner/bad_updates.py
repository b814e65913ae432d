"""Updates that were skipped because their loss or gradients were not finite: too many in a row end the run."""

import re
from collections.abc import Mapping

from oni_jax.config import UserError
from oni_jax.learner.update import SOURCES

ADVICE = "find out why, or lower {flag}, and go on from the newest checkpoint, which is of before"


class BadUpdates:
    """Counts bad updates in a row, and those of the reward model.

    Args:
        limit: of either; so many end the run.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._num_in_row = 0
        self._first = ""  # what was not finite in the first of the row
        self._told: set[str] = set()

    def check(self, metrics: Mapping[str, float]) -> None:
        """Takes in the metrics of an update. Raises UserError at the limit."""
        self._num_in_row = self._num_in_row + 1 if metrics["loss/bad_update"] else 0
        if self._num_in_row:
            self._tell(SOURCES[int(metrics["loss/not_finite"])])
        in_row = [x for name, x in metrics.items() if re.fullmatch(r"reward/(.+/)?bad_steps_in_row", name)]
        if max(in_row, default=0) >= self._limit:
            raise UserError(
                f"--max_bad_updates {self._limit}: so many gradient steps of the reward model in a row were skipped, "
                f"because its loss or gradients were not finite; {ADVICE.format(flag='--reward_model_lr')}"
            )

    def _tell(self, source: str) -> None:
        if self._num_in_row == 1:
            self._first = source
        if source not in self._told:
            self._told.add(source)
            print(f"warning: an update was skipped: the {source} are not finite", flush=True)
        if self._num_in_row >= self._limit:
            raise UserError(
                f"--max_bad_updates {self._limit}: so many updates in a row were skipped; what was not finite first: "
                f"the {self._first}; {ADVICE.format(flag='--learning_rate')}"
            )
