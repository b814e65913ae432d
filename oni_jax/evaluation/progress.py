"""Lines that say how far an evaluation is, and how long it will take."""

import datetime

STARTING = "environments start, and the policy compiles"


class Progress:
    """Estimates the time left by the mean length of the episodes so far, and by the rate of steps since the last line.

    Args:
      num_episodes: of the evaluation.
      max_episode_steps: most steps of an episode.
      start_secs: time of a clock.
    """

    def __init__(self, num_episodes: int, max_episode_steps: int, start_secs: float):
        self._num_episodes, self._limit = num_episodes, max_episode_steps
        self._start_secs = self._secs = start_secs
        self._steps, self._moves = 0, False

    def line(self, num_ended: int, num_steps: int, secs: float) -> str:
        """Returns the line for so many ended episodes, and steps of these and of the running ones, at a time."""
        passed, new, moved = secs - self._secs, num_steps - self._steps, self._moves
        self._secs, self._steps, self._moves = secs, num_steps, new > 0
        if not num_steps:
            return f"{STARTING}, {secs - self._start_secs:.0f} s"
        counts = f"{num_ended:,} of {self._num_episodes:,} episodes, {num_steps:,} steps"
        if not new:
            return f"{counts}; no step for {passed:.0f} s, as while code compiles"
        if not moved:  # a part of this time went by without a step
            return counts
        left = self._num_episodes * self._limit - num_steps
        if num_ended:
            left = min(left, (self._num_episodes - num_ended) * num_steps / num_ended)
        time_left = datetime.timedelta(seconds=round(left / new * passed))
        return f"{counts}, {'about' if num_ended else 'at most'} {time_left} left"
