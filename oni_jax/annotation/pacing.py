"""Time and size of the next request, from the server's answers so far: probing, backoff, list sizes, rate limit."""

import random
import time
from collections.abc import Sequence

from oni_jax.annotation.failures import CONTEXT_FULL, SHORTER_LISTS_AFTER, RequestError
from oni_jax.types import Item

MIN_BACKOFF_SECS, MAX_BACKOFF_SECS = 0.25, 10.0
MAX_RETRY_AFTER_SECS = 20.0  # a server's Retry-After is honoured up to here, so that requests resume within 30 s
PROBE_SIZE = 2
ANSWERS_TO_MORE = 50  # before one more request may be in flight again


class Pacer:
    """Allows one small request at a time until the server is known to answer: pending queries are the probes.

    Args:
        list_size: maximum number of prompts in a request.
        lists: True to try lists of prompts.
        max_in_flight: maximum number of concurrent requests.
        max_per_sec: maximum number of prompts sent in a second; 0: any.
    """

    def __init__(self, list_size: int, lists: bool, max_in_flight: int, max_per_sec: float = 0.0):
        self._max_list_size = self._list_size = list_size
        self._takes_lists = None if lists and list_size > 1 else False  # None: unknown yet
        self._probe: set[Item] = set()  # items of a failed list that have not been answered alone either
        self._max_in_flight, self._max_per_sec = max_in_flight, max_per_sec
        self._in_flight, self._num_answers = max_in_flight, 0  # allowed now; answers since that changed
        self._proven = False  # the server has answered once
        self.num_failures = 0  # backoffs since the last answer
        self._resume_at = self._retry_after_until = self._allowed_at = 0.0

    def wait_secs(self, num_in_flight: int) -> float | None:
        """Seconds until the next request may start. None: not before a request in flight has ended."""
        healthy = self._proven and not self.num_failures and self._takes_lists is not None
        if num_in_flight >= (self._in_flight if healthy else 1):
            return None
        return max(0.0, max(self._resume_at, self._allowed_at) - time.monotonic())

    def num_items(self) -> int:
        """Maximum number of items in the next request."""
        if self._takes_lists is False or self.num_failures:
            return 1
        return self._list_size if self._takes_lists else min(PROBE_SIZE, self._list_size)

    def sent(self, num_items: int) -> None:
        """Counts prompts towards the rate limit; time in which none was sent allows no burst."""
        if self._max_per_sec:
            self._allowed_at = max(self._allowed_at, time.monotonic()) + num_items / self._max_per_sec

    def succeeded(self, items: Sequence[Item]) -> None:
        self._proven, self.num_failures = True, 0
        self._resume_at = self._retry_after_until
        if len(items) > 1:
            self._takes_lists, self._probe = True, set()
        elif self._takes_lists is None and items[0] in self._probe:
            self._probe.discard(items[0])
            if not self._probe:  # the list failed, and each of its items was answered alone
                self._takes_lists = False
        self._num_answers += 1
        if self._in_flight < self._max_in_flight and self._num_answers >= ANSWERS_TO_MORE:
            self._in_flight, self._num_answers = self._in_flight + 1, 0
        if len(items) >= self._list_size:
            self._list_size = min(self._max_list_size, self._list_size + 1)

    def filtered(self, items: Sequence[Item]) -> None:
        """A content filter has refused these items, so that the server works; of lists that says nothing."""
        if len(items) == 1:
            self.succeeded(items)

    def failed(self, items: Sequence[Item], error: RequestError) -> None:
        now = time.monotonic()
        if now >= self._resume_at:  # concurrent failures count once
            self._resume_at = now + backoff_secs(self.num_failures)
            self.num_failures += 1
            if error.name == CONTEXT_FULL:
                self._in_flight, self._num_answers = max(1, self._in_flight // 2), 0
        self._retry_after_until = max(self._retry_after_until, now + min(error.retry_after_secs, MAX_RETRY_AFTER_SECS))
        self._resume_at = max(self._resume_at, self._retry_after_until)
        if self._takes_lists is None:
            self._probe = set(items) if len(items) > 1 and not error.server_at_fault else set()
        if len(items) > 1 and error.name in SHORTER_LISTS_AFTER:
            self._list_size = max(1, len(items) // 2)


def backoff_secs(num_failures: int) -> float:
    """Exponential backoff with jitter, so that many clients do not retry at once."""
    return min(MAX_BACKOFF_SECS, MIN_BACKOFF_SECS * 2 ** min(num_failures, 10)) * random.uniform(0.5, 1.0)
