"""Recordings of a game's terminal as NLE writes them: ttyrec, third version, compressed with bzip2.

A row of records: 13 bytes of header, then so many bytes. NLE writes what the terminal was sent, the score, and the key
that was pressed then, over and over.
"""

import bz2
import copy
import struct
from typing import NamedTuple

from oni_jax.config import UserError
from oni_jax.viewing.screen import Screen
from oni_jax.viewing.terminal import Terminal

SUFFIX = ".ttyrec3.bz2"
HEADER = struct.Struct("<iiiB")  # seconds, microseconds, bytes that follow, channel
OUTPUT, KEY, SCORE = 0, 1, 2  # channels
MICROSECS = 1_000_000
MAX_BYTES = 256 << 20  # unpacked: hours of play. A small file could unpack to terabytes
SNAPSHOT_EVERY = 64  # frames


class Frame(NamedTuple):
    """What the terminal was sent since the key before, and the key that was pressed then."""

    output: bytes
    key: int | None  # None: the recording ends here


def read_ttyrec(path: str) -> list[Frame]:
    """The frames of a recording, at least one.

    Raises:
        UserError: the file can't be read, is no such recording, or is damaged.
    """
    try:
        with bz2.open(path) as file:
            data = file.read(MAX_BYTES + 1)
    except EOFError:
        raise UserError(f"{path}: is cut off; record the episode anew") from None
    except OSError as error:  # bz2's own have no number
        if error.errno:
            raise UserError(f"{path}: can't be read ({error.strerror}); name another file") from None
        raise UserError(f"{path}: is no recording of NLE's (*{SUFFIX}), or is damaged") from None
    if len(data) > MAX_BYTES:
        raise UserError(f"{path}: holds more than {MAX_BYTES >> 20} MiB, which no game's recording does")
    return parse_ttyrec(data, path)


def parse_ttyrec(data: bytes, path: str) -> list[Frame]:
    """The frames of an unpacked recording. UserError: see `read_ttyrec`."""
    frames: list[Frame] = []
    output = bytearray()
    place = 0
    while place < len(data):
        body = place + HEADER.size
        if body > len(data):
            raise _damaged(path, place)
        secs, microsecs, size, channel = HEADER.unpack_from(data, place)
        place = body + size
        sound = secs >= 0 and 0 <= microsecs < MICROSECS and size >= 0 and place <= len(data)
        if not sound or (channel, size) not in ((OUTPUT, size), (KEY, 1), (SCORE, 4)):
            raise _damaged(path, body - HEADER.size)
        if channel == OUTPUT:
            output += data[body:place]
        elif channel == KEY:
            frames.append(Frame(bytes(output), data[body]))
            output.clear()
    if output:
        frames.append(Frame(bytes(output), None))
    if not frames:
        raise UserError(f"{path}: is an empty recording")
    return frames


def _damaged(path: str, place: int) -> UserError:
    return UserError(f"{path}: is no recording of NLE's, or is damaged (byte {place:,} when unpacked)")


class Film:
    """The screens of a recording, each of them at once or after a few others.

    Args:
      frames: at least one.
    """

    def __init__(self, frames: list[Frame]):
        self._frames = frames
        self._terminal = Terminal()
        self._next = 0  # the frame that the terminal was not fed yet
        self._snapshots = [Terminal()]  # before frames 0, SNAPSHOT_EVERY, ...

    def __len__(self) -> int:
        return len(self._frames)

    def key(self, index: int) -> int | None:
        """What was pressed at frame `index`."""
        return self._frames[index].key

    def screen(self, index: int) -> Screen:
        """What was seen when the key of frame `index` was pressed."""
        if index < self._next - 1:
            number = (index + 1) // SNAPSHOT_EVERY
            self._next = number * SNAPSHOT_EVERY
            self._terminal = copy.deepcopy(self._snapshots[number])
        while self._next <= index:
            self._terminal.feed(self._frames[self._next].output)
            self._next += 1
            if self._next == len(self._snapshots) * SNAPSHOT_EVERY:
                self._snapshots.append(copy.deepcopy(self._terminal))
        return self._terminal.screen()
