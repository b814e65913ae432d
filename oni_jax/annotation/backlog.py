"""A bounded backlog of items to ask about, newest first; an item is in it at most once, pending or in flight."""

import collections
from collections.abc import Sequence

from oni_jax.types import Item


class Backlog:
    """Pending items are taken, and then finished, retried or requeued.

    Args:
        max_size: pending items at most; the oldest beyond it are dropped.
    """

    def __init__(self, max_size: int):
        self._max_size = max_size
        self._pending: collections.OrderedDict[Item, None] = collections.OrderedDict()  # newest last
        self._retries: list[list[Item]] = []  # taken before; asked before the others, as these lists
        self._taken: set[Item] = set()  # not finished: in flight, in `_retries`, or in backoff
        self._num_in_backoff = 0

    def __len__(self) -> int:
        """Items not in flight: pending, to be retried, or in backoff."""
        return len(self._pending) + self._num_retries() + self._num_in_backoff

    def __bool__(self) -> bool:
        """True while `take` has something to return."""
        return bool(self._pending or self._retries)

    @property
    def num_in_flight(self) -> int:
        return len(self._taken) - self._num_retries() - self._num_in_backoff

    def add(self, items: Sequence[Item]) -> list[Item]:
        """Adds items, the newest last. Returns those dropped to make room."""
        # ONI: as published a message is queued again in every batch until its label has come, and paid for each time.
        for item in items:
            if item not in self._taken:
                self._pending[item] = None
        dropped = []
        while self._pending and len(self) > self._max_size:
            dropped.append(self._pending.popitem(last=False)[0])
        return dropped

    def requeue(self, items: Sequence[Item]) -> list[Item]:
        """Makes taken items pending again, behind the others: should one be at fault, it delays none.

        Returns those dropped to make room.
        """
        self.finish(items)
        for item in items:
            self._pending.setdefault(item)
            self._pending.move_to_end(item, last=False)
        return self.add(())

    def take(self, max_items: int) -> list[Item]:
        """Takes a list to be retried, or else the newest pending items."""
        if self._retries:
            return self._retries.pop()
        items = [self._pending.popitem()[0] for _ in range(min(max_items, len(self._pending)))]
        self._taken.update(items)
        return items

    def retry(self, items: list[Item]) -> None:
        """Makes taken items the next list to be asked about."""
        self._retries.append(items)

    def start_backoff(self) -> None:
        """Holds one taken item back until `end_backoff`."""
        self._num_in_backoff += 1

    def end_backoff(self, item: Item) -> None:
        self._num_in_backoff -= 1
        self.retry([item])

    def finish(self, items: Sequence[Item]) -> None:
        """Removes taken items, labelled or given up."""
        self._taken.difference_update(items)

    def _num_retries(self) -> int:
        return sum(map(len, self._retries))
