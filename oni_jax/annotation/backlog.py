"""A bounded backlog of items to ask about, newest first; an item is in it at most once, pending or taken."""

import collections
from collections.abc import Sequence

from oni_jax.annotation.asker import Asked
from oni_jax.types import Item


class Backlog:
    """Pending questions are taken, and then finished or requeued.

    Args:
        max_size: pending items at most; the oldest beyond it are dropped.
    """

    def __init__(self, max_size: int):
        self._max_size = max_size
        self._pending: collections.OrderedDict[Item, Asked] = collections.OrderedDict()  # newest last
        self._taken: set[Item] = set()  # not finished

    def __len__(self) -> int:
        """Pending items; true while `take` has something to return."""
        return len(self._pending)

    @property
    def num_taken(self) -> int:
        return len(self._taken)

    def add(self, items: Sequence[Item]) -> list[Item]:
        """Adds items, the newest last. Returns those dropped to make room."""
        # ONI: as published a message is queued again in every batch until its label has come, and paid for each time.
        for item in items:
            if item not in self._taken and item not in self._pending:
                self._pending[item] = Asked(item)
        dropped = []
        while len(self._pending) > self._max_size:
            dropped.append(self._pending.popitem(last=False)[0])
        return dropped

    def requeue(self, questions: Sequence[Asked]) -> list[Item]:
        """Makes taken questions pending again, behind the others: should one be at fault, it delays none.

        Returns the items dropped to make room.
        """
        self.finish([question.item for question in questions])
        for question in questions:
            self._pending[question.item] = question
            self._pending.move_to_end(question.item, last=False)
        return self.add(())

    def take(self, max_items: int) -> list[Asked]:
        """Takes the newest pending questions."""
        questions = [self._pending.popitem()[1] for _ in range(min(max_items, len(self._pending)))]
        self._taken.update(question.item for question in questions)
        return questions

    def finish(self, items: Sequence[Item]) -> None:
        """Removes taken items, labelled or given up."""
        self._taken.difference_update(items)
