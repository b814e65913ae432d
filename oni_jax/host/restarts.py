"""The number of times that child processes may be started again."""

import signal
import threading
import time
from collections import deque

from oni_jax.host.runtime import ChildError

WINDOW_SECS = 600.0
MAX_RESTARTS = 10  # bound within WINDOW_SECS, for the processes that answer


class Restarts:
    """Counts the children that were lost, over all threads of the process.

    Args:
        max_restarts: most in a window; one more is too many.
        limited_by: name of the limit, for errors.
    """

    def __init__(self, max_restarts: int = MAX_RESTARTS, limited_by: str = "the limit"):
        self._max_restarts, self._limited_by = max_restarts, limited_by
        self._lost_at: deque[float] = deque()
        self._error: ChildError | None = None
        self._raised_at: dict[str, float] = {}  # error -> time
        self._lock = threading.Lock()
        self.num_lost = 0  # the total

    def count(self, what: str, text: str, window_secs: float = WINDOW_SECS) -> str:
        """Counts a loss. Returns, in words, how many there were of those allowed.

        Args:
            what: was lost, in the plural.
            text: the cause of the loss.
            window_secs: window in which losses are counted together.

        Raises:
            ChildError: it was one too many; with the text.
        """
        now = time.monotonic()
        with self._lock:
            self.num_lost += 1
            self._lost_at.append(now)
            while now - self._lost_at[0] > window_secs:
                self._lost_at.popleft()
            number, window = len(self._lost_at), f"{window_secs / 60:.0f} minutes"
        if number > self._max_restarts:
            lost = f"{what} were lost {number} times in {window}, {self._limited_by} is {self._max_restarts}"
            self._error = ChildError(f"{text}\n{lost}")
            raise self._error
        return f"restart {number} of {self._max_restarts} in {window}"

    def is_repeated(self, raised: str, window_secs: float = WINDOW_SECS) -> bool:
        """Notes an error that a child raised. Returns whether one raised the same within the window."""
        now = time.monotonic()
        with self._lock:
            before, self._raised_at[raised] = self._raised_at.get(raised), now
        return before is not None and now - before <= window_secs

    def fail(self, error: ChildError) -> None:
        """Has `check` raise an error, as of a child that failed by a mistake in it."""
        self._error = self._error or error

    def check(self) -> None:
        """Raises the error that ended a child for good, perhaps in another thread."""
        if self._error:
            raise self._error


def how_it_ended(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"died, killed by {signal.Signals(-exitcode).name}"
    return f"died, exit code {exitcode}"
