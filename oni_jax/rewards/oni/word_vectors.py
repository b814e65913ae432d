"""Word vectors, looked up in their file: the words are indexed in memory, the vectors stay on disk.

Two formats: word2vec's text, which fastText calls .vec, and fastText's .bin, which also gives vectors to
out-of-vocabulary words, from their character n-grams (Bojanowski et al. 2017, arXiv:1607.04606). The index takes 16
bytes a word, for the text 24.
"""

import contextlib
import mmap
import os
import struct
from array import array
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np

from oni_jax.settings.fields import UserError

ADVICE = "get fastText's crawl-300d-2M-subword (.bin or .vec) at https://fasttext.cc/docs/en/english-vectors.html"
_COMPRESSED = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
_MAX_LINE_BYTES = 1 << 20
_FASTTEXT_MAGIC = struct.pack("<i", 793712314)
_FASTTEXT_FIELDS = struct.Struct("<14id3i2q")
_FASTTEXT_MATRIX = struct.Struct("<?2q")  # is quantised, rows, columns
_FASTTEXT_SUPERVISED = 3
_FASTTEXT_AFTER_WORD = 10  # bytes: a zero, the word's count, its type


class WordVectors(Protocol):
    """Vectors of words, whose file must not change meanwhile."""

    def vector(self, word: str) -> np.ndarray | None:
        """Returns [D] float32; None for a word without a vector. Raises UserError where the file is damaged."""
        ...


def check_word_vectors(path: str) -> None:
    """Checks the beginning of a file, without reading all. Raises UserError when it holds no word vectors."""
    with _opened(path) as file:
        if _is_fasttext(file):
            _read_fasttext_header(file)
        else:
            num_values = _read_text_header(file)[1]
            _parse_line(file.readline(_MAX_LINE_BYTES), num_values)


def open_word_vectors(path: str) -> WordVectors:
    """Indexes the words of a fastText .bin or a word2vec text file; two million take seconds.

    Raises:
        UserError: the file can't be read, is neither, is damaged or cut off.
    """
    with _opened(path) as file:
        return FastTextVectors(file) if _is_fasttext(file) else TextVectors(file)


class TextVectors:
    """word2vec's text: a line "number of words, number of values", then a line a word: the word, its values."""

    def __init__(self, file: BinaryIO):
        self.path = file.name
        num_words, self._num_values = _read_text_header(file)
        hashes, starts = array("q"), array("q")
        position = file.tell()
        for line in file:
            word, separator, values = line.rstrip().partition(b" ")
            if not separator or values.count(b" ") != self._num_values - 1:
                raise ValueError(f"line {len(starts) + 2} is not a word and {self._num_values} numbers")
            hashes.append(hash(word))
            starts.append(position)
            position += len(line)
        if len(starts) != num_words:
            raise ValueError(f"holds {len(starts):,} words, not the {num_words:,} of its first line: is it cut off?")
        self._index, self._starts = _Index(hashes), starts

    def vector(self, word: str) -> np.ndarray | None:
        number = self._index.find(word.encode())
        if number is None:
            return None
        with _opened(self.path) as file:
            file.seek(self._starts[number])
            return _parse_line(file.readline(), self._num_values)


class FastTextVectors:
    """fastText's .bin, not quantised. A word's vector is the mean of its row and its n-grams' rows."""

    def __init__(self, file: BinaryIO):
        self.path = file.name
        self._header = header = _read_fasttext_header(file)
        hashes, position = array("q"), _FASTTEXT_FIELDS.size
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for _ in range(header.num_entries):
                end = data.find(b"\0", position)
                if end < 0:
                    raise ValueError("is cut off within its words")
                hashes.append(hash(data[position:end]))
                position = end + _FASTTEXT_AFTER_WORD
            self._rows_start = _find_fasttext_rows(data, position, header)
        self._index = _Index(hashes[: header.num_words])

    def vector(self, word: str) -> np.ndarray | None:
        header, number = self._header, self._index.find(word.encode())
        rows = [] if number is None else [number]
        ngrams = _ngrams(word, header.min_ngram, header.max_ngram) if header.num_buckets else ()
        rows += [header.num_words + _fasttext_hash(ngram.encode()) % header.num_buckets for ngram in ngrams]
        if not rows:
            return None
        # Read, not mapped: mapped pages count as this process's memory.
        with _opened(self.path) as file:
            vector = np.stack([self._read_row(file, row) for row in rows]).mean(axis=0)
            if not np.isfinite(vector).all():
                raise ValueError(f"is damaged: the vector of {word!r} is not finite")
        return vector

    def _read_row(self, file: BinaryIO, row: int) -> np.ndarray:
        num_bytes = 4 * self._header.num_values
        file.seek(self._rows_start + row * num_bytes)
        return np.frombuffer(file.read(num_bytes), "<f4")


class _Index:
    """Indices of words by hash: a dict of two million takes ten times the memory. 64 bits hardly ever collide."""

    def __init__(self, hashes: array):
        unsorted = np.array(hashes, np.int64)
        self._numbers = np.argsort(unsorted, kind="stable")  # the first of a word's duplicates counts
        self._hashes = unsorted[self._numbers]

    def find(self, word: bytes) -> int | None:
        slot = np.searchsorted(self._hashes, hash(word))
        found = slot < len(self._hashes) and self._hashes[slot] == hash(word)
        return int(self._numbers[slot]) if found else None


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """Opens the file. Raises UserError, in one line, for what is wrong with it, here or in the `with` block."""
    if not path:
        raise UserError(f"--word_vectors must name a file: {ADVICE}")
    try:
        if not os.path.isfile(path) and os.path.exists(path):
            raise ValueError("is not a file")
        with open(path, "rb") as file:
            if file.read(len(_COMPRESSED[-1])).startswith(_COMPRESSED):
                raise ValueError("is compressed: unpack it first")
            file.seek(0)
            yield file
    except OSError as error:
        raise UserError(f"--word_vectors {path} can't be read ({error.strerror}): {ADVICE}") from None
    except ValueError as error:
        raise UserError(f"--word_vectors {path} {error}; name another file, or {ADVICE}") from None


def _read_text_header(file: BinaryIO) -> tuple[int, int]:
    """Returns the number of words, and of values of each."""
    fields = file.readline(100).split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields) or min(map(int, fields)) < 1:
        raise ValueError("is neither a fastText .bin nor word2vec text, whose first line is two numbers")
    return int(fields[0]), int(fields[1])


def _parse_line(line: bytes, num_values: int) -> np.ndarray:
    values = line.rstrip().split(b" ")[1:]
    with contextlib.suppress(ValueError):
        vector = np.array([float(value) for value in values], np.float32)
        if len(vector) == num_values and np.isfinite(vector).all():
            return vector
    raise ValueError(f"has a line that is not a word and {num_values} numbers")


class _FastTextHeader(NamedTuple):
    num_values: int
    num_buckets: int  # rows that n-grams are hashed to
    min_ngram: int  # characters
    max_ngram: int  # 0: no n-grams
    num_entries: int
    num_words: int  # the first entries; labels follow


def _is_fasttext(file: BinaryIO) -> bool:
    found = file.read(len(_FASTTEXT_MAGIC)) == _FASTTEXT_MAGIC
    file.seek(0)
    return found


def _read_fasttext_header(file: BinaryIO) -> _FastTextHeader:
    data = file.read(_FASTTEXT_FIELDS.size)
    if len(data) < _FASTTEXT_FIELDS.size:
        raise ValueError("is cut off")
    _, version, size, *_, model, buckets, low, high, _, _, entries, words, _, _, pruned = _FASTTEXT_FIELDS.unpack(data)
    if version not in (11, 12):
        raise ValueError(f"is of fastText's format {version}, not 11 or 12")
    if not (size > 0 and 0 <= words <= entries and words and buckets >= 0 and low >= 0):
        raise ValueError("is damaged: its sizes are inconsistent")
    if pruned >= 0:
        raise ValueError("is quantised or pruned, which is not supported")
    if version == 11 and model == _FASTTEXT_SUPERVISED:
        high = 0  # these classifiers were trained without n-grams, whatever the header says
    return _FastTextHeader(size, buckets, low, high, entries, words)


def _find_fasttext_rows(data: mmap.mmap, position: int, header: _FastTextHeader) -> int:
    """Returns the offset of the rows of words and buckets, [words + buckets, D] float32, after their header."""
    start = position + _FASTTEXT_MATRIX.size
    if start > len(data):
        raise ValueError("is cut off within its words")
    quantised, num_rows, num_values = _FASTTEXT_MATRIX.unpack_from(data, position)
    if quantised:
        raise ValueError("is quantised or pruned, which is not supported")
    if (num_rows, num_values) != (header.num_words + header.num_buckets, header.num_values):
        raise ValueError("is damaged: its sizes are inconsistent")
    if start + 4 * num_rows * num_values > len(data):
        raise ValueError("is cut off within its vectors")
    return start


def _ngrams(word: str, shortest: int, longest: int) -> Iterator[str]:
    """Yields the character n-grams of <word>, the brackets included, but not a bracket alone."""
    text = f"<{word}>"
    for start in range(len(text)):
        for stop in range(start + max(shortest, 1), min(start + longest, len(text)) + 1):
            if stop - start > 1 or 0 < start < len(text) - 1:
                yield text[start:stop]


def _fasttext_hash(data: bytes) -> int:
    """Returns the 32-bit FNV-1a hash of bytes taken as signed."""
    value = 2166136261
    for byte in data:
        value = ((value ^ (byte | 0xFFFFFF00 if byte >= 0x80 else byte)) * 16777619) & 0xFFFFFFFF
    return value
