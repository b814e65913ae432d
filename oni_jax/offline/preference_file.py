"""A preference file that several processes fill, each other rows.

Label 3 means both "not labelled yet" and "unreadable answer". So that the latter are not asked about again and again, a
second file, `<annotator>.unreadable`, holds a byte per pair: 1 after an unreadable answer. Without it every 3 is not
labelled yet. Byte-range locks on that file keep a row to one process at a time.
"""

import contextlib
import fcntl
import io
import json
import mmap
import os
from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np

from oni_jax.host.files import ScratchFolder, reserve, write_atomically
from oni_jax.host.json_files import other_settings
from oni_jax.host.reporting import report
from oni_jax.offline.dataset import as_labels, open_array
from oni_jax.settings.fields import UserError
from oni_jax.settings.json_text import sealed
from oni_jax.types import FIRST, SECOND, TIE, UNKNOWN


class PreferenceFile:
    """Rows `rows` of preference/<annotator>.npy, created if missing. Used as a context manager.

    Raises:
        UserError: not a preference file of `num_pairs`, can't be written, or another process labels some of these rows.
    """

    def __init__(self, directory: str, annotator: str, num_pairs: int, rows: range):
        folder = os.path.join(directory, "preference")
        self.path = os.path.join(folder, f"{annotator}.npy")
        self._rows = rows
        self._made_by: Mapping[str, object] = {}
        try:
            os.makedirs(folder, exist_ok=True)
            if not os.path.exists(self.path):
                _create(self.path, num_pairs)
            self._check_labels(num_pairs)
            self._labels = cast(np.memmap, open_array(self.path, writable=True))
            self._map_unreadable(os.path.join(folder, f"{annotator}.unreadable"), num_pairs)
        except OSError as error:
            raise UserError(f"{self.path}: can't be written ({error.strerror})") from None

    def _check_labels(self, num_pairs: int) -> None:
        labels = open_array(self.path)
        if labels.shape != (num_pairs,):
            raise UserError(f"{self.path}: its shape is {labels.shape}, but there are {num_pairs} pairs")
        if labels.dtype.kind == "b":
            raise UserError(f"{self.path}: its type, bool, can't hold the labels 2 and 3")
        as_labels(self.path, labels)

    def _map_unreadable(self, path: str, num_pairs: int) -> None:
        rows = self._rows
        if os.path.islink(path):
            raise UserError(f"{path}: is a link; remove it")
        self._file = open(path, "ab+")
        if os.path.getsize(path) not in (0, num_pairs):
            raise UserError(f"{path}: holds {os.path.getsize(path)} pairs, not {num_pairs}; remove it")
        reserve(path, num_pairs)
        if rows:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, len(rows), rows.start)
            except (BlockingIOError, PermissionError):
                raise UserError(f"{self.path}: another process labels some of pairs {rows[0]}-{rows[-1]}") from None
            except OSError as error:
                without = "no process notices another that labels the same pairs"
                report(f"{self.path}: its disk has no locks ({error.strerror}): {without}")
        self._map = mmap.mmap(self._file.fileno(), num_pairs)
        self._unreadable = np.frombuffer(self._map, np.uint8)

    def __enter__(self) -> "PreferenceFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()
        del self._unreadable
        self._map.close()
        self._file.close()

    def check_made_by(self, settings: Mapping[str, object], replaces: bool = False) -> None:
        """Notes in <annotator>.json what makes the file's labels, those of other processes' rows too.

        Labels without a note, which somebody published or an older version made, may be by anything.

        Args:
            settings: a JSON object.
            replaces: the labels of these rows are about to be cleared.

        Raises:
            UserError: labels are by something else, or another process is making some by it.
        """
        self._made_by = settings
        path, note = f"{self.path.removesuffix('.npy')}.json", json.dumps(sealed(settings), indent=1).encode()
        is_made = (self._labels != UNKNOWN) | (self._unreadable != 0)
        if replaces:
            is_made[self._rows.start : self._rows.stop] = False
        try:
            if not is_made.any():
                if len(self._rows) == len(is_made):  # no other process labels these
                    write_atomically(path, note)
                else:
                    with _created_once(path) as partial:
                        write_atomically(partial, note)
            if os.path.exists(path):
                if changed := other_settings(path, settings):
                    raise UserError(
                        f"{self.path}: its labels have another {', '.join(changed)}; name another file with "
                        f"--custom_annotator_string, or remove it and {path}"
                    )
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: can't be read or written ({error})") from None

    def clear(self) -> None:
        """Resets these rows to "not labelled yet"."""
        rows = slice(self._rows.start, self._rows.stop)
        self._labels[rows] = UNKNOWN
        self._unreadable[rows] = 0

    def unfinished(self) -> np.ndarray:
        """Returns those of the rows that are not labelled yet."""
        rows = slice(self._rows.start, self._rows.stop)
        return np.flatnonzero((self._labels[rows] == UNKNOWN) & (self._unreadable[rows] == 0)) + self._rows.start

    def counts(self) -> dict[str, int]:
        """Returns the number of these rows with each label, and of those with an unreadable answer."""
        rows = slice(self._rows.start, self._rows.stop)
        labels = {"first better": FIRST, "second better": SECOND, "ties": TIE}
        counts = {name: int(np.sum(self._labels[rows] == label)) for name, label in labels.items()}
        return {**counts, "unreadable": int(np.sum((self._labels[rows] == UNKNOWN) & (self._unreadable[rows] == 1)))}

    def write(self, rows: np.ndarray, labels: np.ndarray | int) -> None:
        """Writes labels [n] of rows [n]. They survive a killed process, and after `flush` a power cut."""
        self._labels[rows] = labels
        self._unreadable[rows] = np.asarray(labels) == UNKNOWN

    def save_in(self, directory: str) -> None:
        """Writes all labels to another directory, unless it has this file, as one that was renamed. Raises OSError."""
        folder = os.path.join(directory, "preference")
        path = os.path.join(folder, os.path.basename(self.path))
        if os.path.exists(path):
            return
        os.makedirs(folder, exist_ok=True)
        content = io.BytesIO()
        np.save(content, np.asarray(self._labels))
        write_atomically(path, content.getbuffer())
        stem = path.removesuffix(".npy")
        write_atomically(f"{stem}.unreadable", self._unreadable.tobytes())
        if self._made_by:
            write_atomically(f"{stem}.json", json.dumps(sealed(self._made_by), indent=1).encode())

    def flush(self) -> None:
        self._labels.flush()
        self._map.flush()


def chunk_rows(num_pairs: int, num_chunks: int, chunk: int) -> range:
    """Returns the rows of one of `num_chunks` chunks, whose sizes differ by at most one."""
    return range(num_pairs * chunk // num_chunks, num_pairs * (chunk + 1) // num_chunks)


def _create(path: str, num_pairs: int) -> None:
    """Creates a file of "not labelled yet"."""
    with _created_once(path) as partial:
        labels = np.lib.format.open_memmap(partial, mode="w+", dtype=np.int8, shape=(num_pairs,))
        reserve(partial, os.path.getsize(partial))
        labels[:] = UNKNOWN
        labels.flush()


@contextlib.contextmanager
def _created_once(path: str) -> Iterator[str]:
    """Creates a file, written at the path given, atomically; of concurrent processes the first one's stays."""
    with contextlib.closing(ScratchFolder(os.path.dirname(path))) as folder:
        partial = os.path.join(folder.path, os.path.basename(path))
        yield partial
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
