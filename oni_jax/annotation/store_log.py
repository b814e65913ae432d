"""The write-ahead log of a label store that a killed process left: SQLite drops what follows a damaged frame of it.

Source: the form of the file, sqlite.org/fileformat2.html, section 4.
"""

import os
import struct

import numpy as np

from oni_jax.host.files import read_regular, write_atomically

MAX_BYTES = 1 << 28
_HEADER = struct.Struct(">6I2I")  # magic, version, page size, sequence, two salts; two checksums
_FRAME = struct.Struct(">2I2I2I")  # page, pages after a commit, two salts, two checksums
_BYTE_ORDERS = {0x377F0682: "<u4", 0x377F0683: ">u4"}  # magic -> type of the words that are summed
_SUMMED = 24, 8  # bytes of a header, and of a frame's, that are


def keep_damaged(log: str) -> str:
    """Copies a log that is damaged, before SQLite drops a part of it. Returns the copy's path; empty: it is whole.

    Raises:
        OSError: it can't be read or copied.
    """
    try:
        if os.path.getsize(log) > MAX_BYTES:  # it would take long
            return ""
        content = read_regular(log, 2 * MAX_BYTES)
        is_written = read_regular(log, 2 * MAX_BYTES) != content
    except FileNotFoundError:
        return ""
    if is_written or not is_damaged(content):  # the former: by another process, which has it open
        return ""
    copy = f"{log}.damaged"
    while os.path.lexists(copy):
        copy += "~"
    write_atomically(copy, content)
    return copy


def is_damaged(content: bytes) -> bool:
    """Returns whether a log holds frames that were written whole, and that SQLite will not read.

    What a killed process did not finish is none, nor what is left of the time before the log was begun again.
    """
    if len(content) <= _HEADER.size:
        return False
    magic, _, page_size, _, *salts, first, second = _HEADER.unpack_from(content)
    sums = first, second
    if magic not in _BYTE_ORDERS or _sums(content[: _SUMMED[0]], _BYTE_ORDERS[magic], (0, 0)) != sums:
        return True
    size = _FRAME.size + page_size
    starts = range(_HEADER.size, len(content) - size + 1, size)
    current = [_FRAME.unpack_from(content, start)[2:4] == tuple(salts) for start in starts]
    for number, start in enumerate(starts):
        summed = content[start : start + _SUMMED[1]] + content[start + _FRAME.size : start + size]
        sums = _sums(summed, _BYTE_ORDERS[magic], sums)
        if not current[number] or _FRAME.unpack_from(content, start)[4:] != sums:
            is_last = start + size == len(content)  # nobody began to write over it
            return any(current[number + 1 :]) or (is_last and current[number])
    return False


def _sums(content: bytes, words: str, sums: tuple[int, int]) -> tuple[int, int]:
    """Returns SQLite's two checksums of a content after those of what stands before it."""
    first, second = sums
    numbers = iter(np.frombuffer(content, words).tolist())
    for one, other in zip(numbers, numbers):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
