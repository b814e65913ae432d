"""When to ask a server, and how much at once, from how it has answered so far."""

import random
import time
from collections.abc import Sequence

from oni_jax.annotation.failures import SHORTER_LISTS_AFTER, RequestError
from oni_jax.types import Item

FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS = 0.25, 10.0
LONGEST_ASKED_PAUSE_SECS = 20.0  # a server's Retry-After is believed up to here, so that all goes on within 30 s
PROBE_SIZE = 2


class Pacer:
    """Until the server is known to be well, one small request at a time: it is probed with what there is to ask anyway.

    Args:
        list_size: prompts in a request at most.
        lists: whether lists of prompts may be tried at all.
        max_in_flight: requests open at once.
    """

    def __init__(self, list_size: int, lists: bool, max_in_flight: int):
        self._max_list_size = self._list_size = list_size
        self._takes_lists = None if lists and list_size > 1 else False  # None: not known yet
        self._probe: set[Item] = set()  # of a list that failed: the items that have not been answered alone either
        self._max_in_flight = max_in_flight
        self._proven = False  # it has answered once
        self.num_failures = 0  # pauses since the last answer
        self._resume_at = self._asked_until = 0.0

    def wait_secs(self, num_in_flight: int) -> float | None:
        """0: ask now. None: not before something in flight has ended."""
        well = self._proven and not self.num_failures and self._takes_lists is not None
        if num_in_flight >= (self._max_in_flight if well else 1):
            return None
        return max(0.0, self._resume_at - time.monotonic())

    def num_items(self) -> int:
        """Items in the next request."""
        if self._takes_lists is False or self.num_failures:
            return 1
        return self._list_size if self._takes_lists else min(PROBE_SIZE, self._list_size)

    def succeeded(self, items: Sequence[Item]) -> None:
        self._proven, self.num_failures = True, 0
        self._resume_at = self._asked_until
        if len(items) > 1:
            self._takes_lists, self._probe = True, set()
        elif self._takes_lists is None and items[0] in self._probe:
            self._probe.discard(items[0])
            if not self._probe:  # it failed as a list, and each of it was answered alone
                self._takes_lists = False
        if len(items) >= self._list_size:
            self._list_size = min(self._max_list_size, self._list_size + 1)

    def failed(self, items: Sequence[Item], error: RequestError) -> None:
        now = time.monotonic()
        if now >= self._resume_at:  # requests that fail together are one failure
            self._resume_at = now + pause_secs(self.num_failures)
            self.num_failures += 1
        self._asked_until = max(self._asked_until, now + min(error.retry_after_secs, LONGEST_ASKED_PAUSE_SECS))
        self._resume_at = max(self._resume_at, self._asked_until)
        if self._takes_lists is None:
            self._probe = set(items) if len(items) > 1 and not error.server_at_fault else set()
        if len(items) > 1 and error.name in SHORTER_LISTS_AFTER:
            self._list_size = max(1, len(items) // 2)


def pause_secs(num_failures: int) -> float:
    """Growing, and with jitter, so that many clients do not come back at once."""
    return min(LONGEST_PAUSE_SECS, FIRST_PAUSE_SECS * 2 ** min(num_failures, 10)) * random.uniform(0.5, 1.0)
