"""Recordings of a game's terminal as NLE writes them, ttyrec of the third version, by NLE's own reader.

Nothing of a recording reaches the terminal of who watches it but characters and colours.
"""

import bz2
import struct
import tempfile

import numpy as np
from nle.dataset import Converter

from oni_jax.config import UserError
from oni_jax.viewing.screen import COLUMNS, ROWS, Screen, engine_screen

SUFFIX = ".ttyrec3.bz2"
HEADER = struct.Struct("<iiiB")  # seconds, microseconds, bytes that follow, channel
OUTPUT, KEY, SCORE = 0, 1, 2  # channels
MICROSECS = 1_000_000
MAX_BYTES = 256 << 20  # unpacked: hours of play. A small file could unpack to terabytes
NUM_AT_ONCE = 1024  # screens that are kept


class Film:
    """The screens of a recording, one for each key that was pressed and one for the end, each of them at once.

    Raises:
        UserError: the file can't be read, is no such recording, or is damaged.
    """

    def __init__(self, path: str):
        data = _unpacked(path)
        self._keys = _keys(data, path)
        if not self._keys:
            raise UserError(f"{path}: is an empty recording")
        self._file = tempfile.NamedTemporaryFile(suffix=SUFFIX)
        # NLE's reader gives a screen for each key but the file's last: two more, for what was shown at the end.
        self._file.write(bz2.compress(data + 2 * (HEADER.pack(0, 0, 1, KEY) + b"\0"), compresslevel=1))
        self._file.flush()
        self._restart()

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, index: int) -> int | None:
        """What was pressed at screen `index`; None: the recording ends there."""
        return self._keys[index]

    def screen(self, index: int) -> Screen:
        """What was seen when the key of screen `index` was pressed."""
        if index < self._start:
            self._restart()
        while index >= self._start + NUM_AT_ONCE:
            self._start += NUM_AT_ONCE
            self._converter.convert(*self._arrays)
        chars, colors, cursors = (array[index - self._start] for array in self._arrays[:3])
        return engine_screen(chars, colors, cursors)

    def _restart(self) -> None:
        shapes = ((ROWS, COLUMNS), np.uint8), ((ROWS, COLUMNS), np.int8), ((2,), np.int16), ((), np.int64)
        times_and_scores = *shapes, ((), np.uint8), ((), np.int32)
        self._arrays = [np.zeros((NUM_AT_ONCE, *shape), dtype) for shape, dtype in times_and_scores]
        self._start = -NUM_AT_ONCE  # of the screens in the arrays; none yet
        self._converter = Converter(ROWS, COLUMNS, 3)
        self._converter.load_ttyrec(self._file.name, 1)


def _unpacked(path: str) -> bytes:
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
    return data


def _keys(data: bytes, path: str) -> list[int | None]:
    """The keys pressed, and None where something was shown after the last. UserError: damaged."""
    keys: list[int | None] = []
    place, shown = 0, False
    while place < len(data):
        body = place + HEADER.size
        secs, microsecs, size, channel = HEADER.unpack_from(data, place) if body <= len(data) else (-1,) * 4
        sound = secs >= 0 and 0 <= microsecs < MICROSECS and 0 <= size <= len(data) - body
        if not sound or (channel, size) not in ((OUTPUT, size), (KEY, 1), (SCORE, 4)):
            raise UserError(f"{path}: is no recording of NLE's, or is damaged (byte {place:,} when unpacked)")
        place = body + size
        shown = channel == OUTPUT or (shown and channel != KEY)
        if channel == KEY:
            keys.append(data[body])
    return [*keys, None] if shown else keys
