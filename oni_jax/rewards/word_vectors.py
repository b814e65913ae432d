"""Word vectors, looked up in their file: its words are indexed in memory, the vectors stay on disk.

Two formats: word2vec's text, which fastText calls .vec, and fastText's .bin, which also gives a vector to words that it
does not hold, from their parts (Bojanowski et al. 2017, arXiv:1607.04606). The index takes 16 bytes a word, for the
text 24.
"""

import contextlib
import mmap
import os
import struct
from array import array
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np

from oni_jax.config import UserError

WHERE_FROM = "get fastText's crawl-300d-2M-subword (.bin or .vec) at https://fasttext.cc/docs/en/english-vectors.html"
_COMPRESSED = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
_MAX_LINE_BYTES = 1 << 20
_FASTTEXT_MAGIC = struct.pack("<i", 793712314)
_FASTTEXT_FIELDS = struct.Struct("<14id3i2q")
_FASTTEXT_MATRIX = struct.Struct("<?2q")  # whether quantised, rows, columns
_FASTTEXT_SUPERVISED = 3
_FASTTEXT_AFTER_WORD = 10  # bytes: a zero, the word's count, its type


class WordVectors(Protocol):
    """Vectors of words. Their file must stay as it is."""

    def vector(self, word: str) -> np.ndarray | None:
        """[D] float32; None for a word that has none. Raises UserError where the file is damaged."""
        ...


def check_word_vectors(path: str) -> None:
    """Reads the file's beginning, no more. Raises UserError when it can't be a file of word vectors."""
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
    """A line "number of words, number of values", then a line for each word: the word, its values."""

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
    """A .bin of fastText's, not quantised. A word's vector is the mean of its own row and those of its parts."""

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
        parts = _parts(word, header.min_part, header.max_part) if header.num_buckets else ()
        rows += [header.num_words + _fasttext_hash(part.encode()) % header.num_buckets for part in parts]
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
    """Numbers of words by hash: a dict of two million takes ten times the memory. Two of 64 bits hardly ever agree."""

    def __init__(self, hashes: array):
        unsorted = np.array(hashes, np.int64)
        self._numbers = np.argsort(unsorted, kind="stable")  # of a word that comes twice the first counts
        self._hashes = unsorted[self._numbers]

    def find(self, word: bytes) -> int | None:
        place = np.searchsorted(self._hashes, hash(word))
        found = place < len(self._hashes) and self._hashes[place] == hash(word)
        return int(self._numbers[place]) if found else None


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """The file, what is wrong with it told in one line."""
    if not path:
        raise UserError(f"--word_vectors must name a file: {WHERE_FROM}")
    try:
        with open(path, "rb") as file:
            if not os.path.isfile(path):
                raise ValueError("is no file")
            if file.read(len(_COMPRESSED[-1])).startswith(_COMPRESSED):
                raise ValueError("is compressed: unpack it first")
            file.seek(0)
            yield file
    except OSError as error:
        raise UserError(f"--word_vectors {path} can't be read ({error.strerror}): {WHERE_FROM}") from None
    except ValueError as error:
        raise UserError(f"--word_vectors {path} {error}; name another file, or {WHERE_FROM}") from None


def _read_text_header(file: BinaryIO) -> tuple[int, int]:
    """Words, values each."""
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
    num_buckets: int  # rows that the parts of words share
    min_part: int  # characters in a part
    max_part: int  # 0: no parts
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
        raise ValueError("is damaged: its sizes make no sense")
    if pruned >= 0:
        raise ValueError("is quantised or pruned, which is not read here")
    if version == 11 and model == _FASTTEXT_SUPERVISED:
        high = 0  # these classifiers were trained without parts, whatever they say
    return _FastTextHeader(size, buckets, low, high, entries, words)


def _find_fasttext_rows(data: mmap.mmap, position: int, header: _FastTextHeader) -> int:
    """Where the rows of words and buckets begin, [words + buckets, D] float32, behind what says their sizes."""
    start = position + _FASTTEXT_MATRIX.size
    if start > len(data):
        raise ValueError("is cut off within its words")
    quantised, num_rows, num_values = _FASTTEXT_MATRIX.unpack_from(data, position)
    if quantised:
        raise ValueError("is quantised or pruned, which is not read here")
    if (num_rows, num_values) != (header.num_words + header.num_buckets, header.num_values):
        raise ValueError("is damaged: its sizes make no sense")
    if start + 4 * num_rows * num_values > len(data):
        raise ValueError("is cut off within its vectors")
    return start


def _parts(word: str, shortest: int, longest: int) -> Iterator[str]:
    """Runs of characters of <word>, the brackets included, but not one alone."""
    text = f"<{word}>"
    for start in range(len(text)):
        for stop in range(start + max(shortest, 1), min(start + longest, len(text)) + 1):
            if stop - start > 1 or 0 < start < len(text) - 1:
                yield text[start:stop]


def _fasttext_hash(data: bytes) -> int:
    """FNV-1a of 32 bits, over bytes taken as signed."""
    value = 2166136261
    for byte in data:
        value = ((value ^ (byte | 0xFFFFFF00 if byte >= 0x80 else byte)) * 16777619) & 0xFFFFFFFF
    return value
