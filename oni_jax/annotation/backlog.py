"""What is to be asked: a bounded backlog, newest first, each item at most once, in flight or waiting."""

import collections
from collections.abc import Sequence

from oni_jax.types import Item


class Backlog:
    """Items wait, are taken, and are then finished, or asked again, or put back.

    Args:
        max_size: items that may wait; the oldest beyond it are dropped.
    """

    def __init__(self, max_size: int):
        self._max_size = max_size
        self._waiting: collections.OrderedDict[Item, None] = collections.OrderedDict()  # newest last
        self._again: list[list[Item]] = []  # taken once, and to be asked before the others, as these lists
        self._taken: set[Item] = set()  # not finished: in flight, in `_again`, or asleep
        self._num_asleep = 0

    def __len__(self) -> int:
        """Items that wait, those asleep included."""
        return len(self._waiting) + self._num_again() + self._num_asleep

    def __bool__(self) -> bool:
        """Whether there is something to take now."""
        return bool(self._waiting or self._again)

    @property
    def num_taken(self) -> int:
        return len(self._taken) - self._num_again() - self._num_asleep

    def add(self, items: Sequence[Item]) -> list[Item]:
        """Takes in items, the newest last. Returns those that were dropped for them."""
        # ONI: as published a message is queued again in every batch until its label has come, and paid for each time.
        for item in items:
            if item not in self._taken:
                self._waiting[item] = None
        dropped = []
        while self._waiting and len(self) > self._max_size:
            dropped.append(self._waiting.popitem(last=False)[0])
        return dropped

    def put_back(self, items: Sequence[Item]) -> list[Item]:
        """Lets taken items wait again, behind the others: should one of them be to blame, it holds up none.

        Returns those that were dropped for them.
        """
        self.finish(items)
        for item in items:
            self._waiting.setdefault(item)
            self._waiting.move_to_end(item, last=False)
        return self.add(())

    def take(self, max_items: int) -> list[Item]:
        """A list that is to be asked again, or the newest items."""
        if self._again:
            return self._again.pop()
        items = [self._waiting.popitem()[0] for _ in range(min(max_items, len(self._waiting)))]
        self._taken.update(items)
        return items

    def ask_again(self, items: list[Item]) -> None:
        """Lets taken items be the next to be asked, together."""
        self._again.append(items)

    def put_to_sleep(self) -> None:
        """One taken item waits until `wake`."""
        self._num_asleep += 1

    def wake(self, item: Item) -> None:
        self._num_asleep -= 1
        self.ask_again([item])

    def finish(self, items: Sequence[Item]) -> None:
        """Taken items that are labelled or given up."""
        self._taken.difference_update(items)

    def _num_again(self) -> int:
        return sum(map(len, self._again))
