"""Progress of a run, and the time left."""

from oni_jax.metrics.rows import Row, finite
from oni_jax.metrics.statistics import RateMeters
from oni_jax.settings.run import RunConfig

ENDLESS = 1e10  # as a limit of steps or seconds
PACE_SECS = 300.0  # window from which the time left is estimated


class Pace:
    """Estimates the time left, by the rate of steps without the time that XLA compiled in."""

    def __init__(self, run: RunConfig):
        self._run, self._last = run, {}
        self._steps = self._secs = self._rate = 0.0
        self._meters = RateMeters(PACE_SECS)
        self._meters.update({"env_steps": 0.0}, 0.0)

    def add(self, row: Row) -> None:
        known, last = finite(row), self._last
        if last and known.get("compilations") == last.get("compilations"):
            self._steps += known.get("env_steps", 0.0) - last.get("env_steps", 0.0)
            self._secs += known.get("secs", 0.0) - last.get("secs", 0.0)
            self._rate = self._meters.update({"env_steps": self._steps}, self._secs)["env_steps_per_sec"]
        self._last = known

    def secs_left(self) -> float | None:
        """Returns the seconds until the nearer of the run's two limits; None without a limit, or as long as unknown."""
        left, run = [], self._run
        if run.train_for_seconds < ENDLESS:
            left.append(run.train_for_seconds - self._last.get("secs", 0.0))
        if run.train_for_env_steps < ENDLESS and self._rate > 0:
            left.append((run.train_for_env_steps - self._last.get("env_steps", 0.0)) / self._rate)
        return max(0.0, min(left)) if left else None
