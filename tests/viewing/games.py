"""Recordings that NLE itself makes."""

import bz2
import pathlib
from typing import Any

import nle.nethack
import numpy as np

from oni_jax.viewing.ttyrec import HEADER, KEY, OUTPUT, Film

nethack: Any = nle.nethack
NAMES = ("tty_chars", "tty_colors", "tty_cursor")
KEYS = b"hjklyubn.si,:HJKLe\x1b\r$+d?\x1b"  # among them such as open menus


def record_game(path: pathlib.Path, num_keys: int, seed: int = 0) -> list[tuple[np.ndarray, ...]]:
    """Presses keys at random in a game that is recorded. Gives what NLE says that the terminal showed at each."""
    game = nethack.Nethack(observation_keys=NAMES, ttyrec=str(path), copy=True, fix_moon_phase=True)
    game.set_initial_seeds(seed, seed, False)
    rng = np.random.default_rng(seed)
    seen = [game.reset()]
    for _ in range(num_keys):
        observation, done = game.step(KEYS[rng.integers(len(KEYS))])
        seen.append(observation)
        if done:
            break
    game.close()
    return seen


def record(channel: int, content: bytes) -> bytes:
    """A record of a ttyrec."""
    return HEADER.pack(1, 2, len(content), channel) + content


def write_ttyrec(path: pathlib.Path, *frames: tuple[bytes, int | None]) -> Film:
    """A recording of (what was sent, the key that was pressed then; None: none)."""
    records = [record(OUTPUT, sent) + (b"" if key is None else record(KEY, bytes([key]))) for sent, key in frames]
    path.write_bytes(bz2.compress(b"".join(records)))
    return Film(str(path))
