"""A label store that is looked at while a run uses it: it may be removed, replaced, cut or overwritten meanwhile."""

import collections
import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from oni_jax.annotation.label_store import SIDE_SUFFIXES, LabelStore
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation, Item

LOOK_SECS = 1.0
READ_FRACTION = 0.02  # upper bound on the fraction of time in which the file is read to look at it
AGAIN_SECS = 0.5  # after which it is read again, in which another process may have moved the log into it
FOLDER_SECS = 5.0  # before a store is made in another folder of its path: a run whose folder is lost ends earlier
Key = tuple[str, str]  # model, digest
Result = TypeVar("Result")


class WatchedStore:
    """Methods as those of a `LabelStore`, which this process alone uses through it.

    What it has read and written stays in memory. When the file is lost or damaged, a line says so. What lies there is
    moved aside, unless another run has made a new store already, and all rows that can still be read are written again.

    Args:
        store: the watched store.
        say: prints a line.
    """

    def __init__(self, store: LabelStore, say: Callable[[str], None]):
        self._store, self._say = store, say
        self.commit_delay_secs = store.commit_delay_secs
        self._held: dict[Key, dict[Item, bytes]] = collections.defaultdict(dict)
        self._seen, self._log = self._stat(), self._stat("-wal")[:2]
        self._sums: list[int] = []  # checksums of rows that were in the file
        self._look_at = self._read_at = 0.0  # next times to look at the file, and to read it
        self._folder, self._folder_since = self._identity_of_folder(), -math.inf

    def get_many(self, model: str, digest: str, items: Sequence[Item]) -> list[Annotation]:
        found = self._again_if_damaged(lambda: self._store.get_many(model, digest, items))
        return self._hold((model, digest), found)

    def all(self, model: str, digest: str) -> list[Annotation]:
        found = self._again_if_damaged(lambda: self._store.all(model, digest))
        if self._store.damage:
            self._say(f"{self._store.damage}, and asked about again")
        return self._hold((model, digest), found)

    def put_many(self, model: str, digest: str, answered: Sequence[tuple[Annotation, str]]) -> None:
        self._again_if_damaged(lambda: self._store.put_many(model, digest, answered))
        held = self._held[model, digest]
        for item, answer, _ in (annotation for annotation, _ in answered):
            held.setdefault(item, answer or b"")

    def _again_if_damaged(self, act: Callable[[], Result]) -> Result:
        self.look()
        try:
            found = act()
            if self._stat()[:2] == self._seen[:2]:
                self._log = self._stat("-wal")[:2]
            return found
        except UserError:
            self._look_at = self._read_at = 0.0
            self._seen = (*self._seen[:2], 0, 0)
            self.look()
            return act()

    def look(self) -> None:
        """Looks at the file, now and then. Raises OSError: it is lost, and can't be written again for now."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECS
        seen = self._stat()
        if seen == self._seen or self._lacks_folder(now):
            return
        if seen[:2] != self._seen[:2]:
            self._write_again("was replaced by another file" if seen else "was removed")
        elif now < self._read_at and seen[2] >= self._seen[2]:  # SQLite never makes it smaller
            return
        else:
            sums = self._store.sums_in_file(self._sums)
            self._read_at = now + (time.monotonic() - now) / READ_FRACTION
            if sums is None:
                time.sleep(AGAIN_SECS)
                sums = self._store.sums_in_file(self._sums)
            if sums is None:
                self._write_again("was overwritten, or is damaged")
            else:
                self._sums = sums
        self._seen, self._log = self._stat(), self._stat("-wal")[:2]

    def _lacks_folder(self, now: float) -> bool:
        """Returns whether the folder is lost, or another one for a short time: the folder's watch reports that."""
        if (folder := self._identity_of_folder()) != self._folder:
            self._folder, self._folder_since = folder, now
        return not folder or now - self._folder_since < FOLDER_SECS

    def _identity_of_folder(self) -> tuple[int, ...]:
        return _stat(os.path.dirname(self._store.path), follow_symlinks=True)[:2]

    def _stat(self, suffix: str = "") -> tuple[int, ...]:
        return _stat(self._store.path + suffix, follow_symlinks=False)

    def _hold(self, key: Key, found: list[Annotation]) -> list[Annotation]:
        self._held[key].update((item, answer) for item, answer, _ in found if answer is not None)
        return found

    def _write_again(self, problem: str) -> None:
        path, aside = self._store.path, ""
        rows = {key: dict(held) for key, held in self._held.items()}
        _add(rows, self._store)  # the open part
        # Not what another run has made meanwhile, with a new log.
        is_new = self._stat()[:2] != self._seen[:2] and self._stat("-wal")[:2] != self._log
        if self._stat() and not (is_new and self._store.sums_in_file() is not None):
            aside = _moved_aside(path)
        self._store.close()  # SQLite writes nothing to a file that was moved
        try:
            LabelStore(path).close()
            if aside:
                _add(rows, LabelStore(aside))
        except UserError as error:
            if not os.path.lexists(path):
                raise OSError(str(error)) from None
        for (model, digest), held in rows.items():
            self._store.put_many(model, digest, [(Annotation(item, answer), "") for item, answer in held.items()])
        self._sums = []
        moved = f"; what is there was moved to {aside}" if aside else ""
        num = sum(map(len, rows.values()))
        self._say(f"warning: label store {path} {problem}{moved}: {num:,} answers are written again")


def _stat(path: str, follow_symlinks: bool) -> tuple[int, ...]:
    """Returns (device, inode, size, time of the last change); () for no file."""
    try:
        found = os.stat(path, follow_symlinks=follow_symlinks)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _add(rows: dict[Key, dict[Item, bytes]], store: LabelStore) -> None:
    """Adds what a store holds and `rows` lack, as far as it can be read."""
    with contextlib.suppress(OSError, UserError):
        for key in store.prompts():
            there = rows.setdefault(key, {})
            for item, answer, _ in store.all(*key):
                there.setdefault(item, answer or b"")


def _moved_aside(path: str) -> str:
    """Renames a file, and what SQLite keeps beside it, which need not be its. Returns the new name. Raises OSError."""
    aside = f"{path}.damaged"
    while os.path.lexists(aside):
        aside += "~"
    os.rename(path, aside)
    for suffix in SIDE_SUFFIXES:
        if os.path.lexists(path + suffix):
            os.rename(path + suffix, f"{aside}.old{suffix}")
    return aside
