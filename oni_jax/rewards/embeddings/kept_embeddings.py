"""Embeddings of texts, kept in a file that outlives a run: each text is embedded once."""

import hashlib
import os
import threading
import time
from collections.abc import Sequence

import numpy as np

from oni_jax.host.files import write_atomically
from oni_jax.host.npz import from_npz, join_texts, split_texts, to_npz
from oni_jax.host.reporting import report
from oni_jax.rewards.embeddings.embeddings import Embed, Memo

WRITE_EVERY_SECS = 10.0
MAX_KEPT = 200_000  # texts; beyond, it begins again
MAX_DIFFERENCE = 0.01  # distance of a kept vector from its text's new one: servers round differently from call to call


class KeptMemo(Memo):
    """A memo that begins with a file's vectors, and writes them all there now and then.

    A file that can't be read, or whose vectors are another embedder's, is left out with a line, and replaced.

    Args:
        embed: returns vectors.
        folder: of the file; nothing is written where there is none.
        name: name of the embedder; each has a separate file.
    """

    def __init__(self, embed: Embed, folder: str, name: str):
        super().__init__(embed, MAX_KEPT)
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        self._path = os.path.join(folder, f"goal_embeddings_{digest}.npz")
        self._known = _read(self._path)
        self._is_checked = not self._known
        self._written, self._num_written = -WRITE_EVERY_SECS, len(self._known)
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        if not self._is_checked and any(text not in self._known for text in texts):
            self._check()
        found = super().__call__(texts)
        if len(self._known) != self._num_written and time.monotonic() - self._written > WRITE_EVERY_SECS:
            self.write()
        return found

    def _check(self) -> None:
        """Compares one kept vector with its text's new one: they may be another model's of the same name."""
        text, kept = next(iter(self._known.items()))
        (new,) = self._embed([text])
        if new.shape != kept.shape or np.abs(new - kept).max() > MAX_DIFFERENCE:
            report(f"warning: {self._path}: holds another model's vectors; texts are embedded again")
            self._known.clear()
            self._num_written = 0
        self._is_checked = True

    def write(self) -> None:
        """Replaces the file, if there are vectors that it lacks. One that can't be written is tried again later."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        known = dict(self._known)  # a copy: another thread may be adding some
        # Zeros are of a text that the server refused: the next run asks again.
        rows = {text.encode(): vector for text, vector in known.items() if "\0" not in text and vector.any()}
        if not rows or len(known) == self._num_written or not os.path.isdir(os.path.dirname(self._path)):
            return
        self._written = time.monotonic()
        content = {"texts": join_texts(rows), "vectors": np.stack([*rows.values()])}
        try:
            write_atomically(self._path, to_npz(content).tobytes())
        except OSError as error:
            report(f"warning: {self._path}: can't be written ({error.strerror}); tried again later")
            return
        self._num_written = len(known)


def _read(path: str) -> dict[str, np.ndarray]:
    """Returns the vectors of a file by their texts; of a missing or damaged one, none."""
    try:
        content = from_npz(np.fromfile(path, np.uint8))
        texts, vectors = [text.decode() for text in split_texts(content["texts"])], content["vectors"]
        if vectors.dtype != np.float32 or vectors.ndim != 2 or not np.isfinite(vectors).all():
            raise ValueError("not vectors of finite numbers")
        return dict(zip(texts, vectors, strict=True))
    except FileNotFoundError:
        return {}
    except Exception as error:  # damaged bytes lead to those of zip, of zlib, of the header's parser and others
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        report(f"warning: {path}: can't be read ({reason}); texts are embedded again")
        return {}
