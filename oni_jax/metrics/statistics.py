"""Rates and means over the recent past."""

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.ops.achievements import achievement_score


class RateMeters:
    """Rates of growing counts, over the last `window_secs`."""

    def __init__(self, window_secs: float = 10.0):
        self._window_secs = window_secs
        self._points: collections.defaultdict[str, collections.deque[tuple[float, float]]]
        self._points = collections.defaultdict(collections.deque)

    def update(self, totals: Mapping[str, float], now_secs: float) -> dict[str, float]:
        """Takes the current counts; returns their rates as `<name>_per_sec`, 0 for a new name.

        The time measured is the shortest between two calls that is no shorter than the window.
        """
        rates = {}
        for name, total in totals.items():
            points = self._points[name]
            points.append((now_secs, total))
            while len(points) > 2 and now_secs - points[1][0] >= self._window_secs:
                points.popleft()
            elapsed_secs = now_secs - points[0][0]
            rates[f"{name}_per_sec"] = (total - points[0][1]) / elapsed_secs if elapsed_secs > 0 else 0.0
        return rates


class RollingStats:
    """Means of the statistics of the last `window` episodes, and the score of those that are `achievements`."""

    def __init__(self, names: Sequence[str], window: int, achievements: Sequence[str] = ()):
        self.names, self._achievements = tuple(names), tuple(achievements)
        self._last: collections.deque[np.ndarray] = collections.deque(maxlen=window)

    def add(self, episode_stats: np.ndarray) -> None:
        """Takes in ended episodes: [E, K], in the order of `names`."""
        for row in np.asarray(episode_stats, np.float32).reshape(-1, len(self.names)) if self.names else ():
            self._last.append(row.copy())

    def longest(self) -> float:
        """Returns the length of the longest of these episodes, 0 without any."""
        index = self.names.index("length") if "length" in self.names else None
        return max((float(row[index]) for row in self._last), default=0.0) if index is not None else 0.0

    def row(self) -> dict[str, float]:
        """Returns `episode/<name>`, `mean_return`, `mean_length`, and `episode/score` of the achievements if there are
        any; empty until an episode has ended.
        """
        row: dict[str, float] = {}
        if self._last:
            means = np.stack(self._last).astype(np.float64).mean(axis=0).tolist()
            for name, mean in zip(self.names, means, strict=True):
                row[f"episode/{name}"] = mean
                if name in ("return", "length"):
                    row[f"mean_{name}"] = mean
            if self._achievements:
                rates = np.array([row[f"episode/{name}"] for name in self._achievements])
                row["episode/score"] = float(achievement_score(rates))
        return row

    def save(self) -> list[list[float]]:
        """Returns the statistics of the episodes in the means, for the checkpoint."""
        return [row.tolist() for row in self._last]
