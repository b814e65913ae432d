"""Small files of word vectors for tests."""

import pathlib
import struct
from collections.abc import Mapping, Sequence

import numpy as np

Table = Mapping[str, Sequence[float]]


def write_text(path: pathlib.Path, table: Table) -> str:
    lines = [f"{len(table)} {len(next(iter(table.values())))}"]
    lines += [f"{word} {' '.join(map(str, vector))}" for word, vector in table.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def write_fasttext(path: pathlib.Path, words: Sequence[str], rows: np.ndarray, parts: tuple[int, int]) -> str:
    """In fastText's format 12: `rows` [words + buckets, D] of the words and of what their parts share."""
    num_buckets, size = len(rows) - len(words), rows.shape[1]
    fields = struct.pack("<14id", 793712314, 12, size, 5, 1, 1, 5, 1, 2, 2, num_buckets, *parts, 100, 1e-4)
    fields += struct.pack("<3i2q", len(words), len(words), 0, 1000, -1)
    entries = b"".join(word.encode() + b"\0" + struct.pack("<qb", 10, 0) for word in words)
    matrix = struct.pack("<?2q", False, *rows.shape) + rows.astype("<f4").tobytes()
    path.write_bytes(fields + entries + matrix + matrix)  # the second is the output layer's
    return str(path)
