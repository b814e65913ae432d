"""Loads the C stepper, once everything that it relies on has been checked; see `load_stepper`.

The extension is built by setup.py where there is a compiler. It knows nothing of Python: it is called by ctypes, which
releases the interpreter's lock meanwhile.
"""

import ctypes
import functools
import hashlib
import importlib.util
import os
import pathlib
import platform
import sys
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from oni_jax.envs.nethack.native.image import EngineImage
from oni_jax.envs.nethack.native.layout import CannotStepError, EngineLayout, read_layout
from oni_jax.envs.nethack.tasks import nethack

EXTENSION = f"{__package__}._stepper"
GLIBC = "glibc"
GLIBC_VERSIONS = (2, 17), (2, 43)  # version of NLE's wheels, and the newest one that is known
FAILURES = {  # `failure` in engine.h -> its text, as NLE's or NetHackGame's
    1: "no memory",
    2: "Called step on finished NetHack",
    3: "NetHack done right after reset",
    4: "NetHack did not begin within {max_opening_presses} key presses",
    5: "NetHack still prompts after {max_automatic_presses} key presses",
    6: "the path of the game's folder is too long",
    7: "this system doesn't let a process set its GS register",
}

_NUMBER, _POINTER, _REAL = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
GROUP_FIELDS = {  # fields of `group` in group.c, in its order
    "num_games": _NUMBER,
    "games": _POINTER,
    **dict.fromkeys(("extended", "continual", "max_opening_presses", "max_automatic_presses"), _NUMBER),
    "keys": _POINTER,
    "num_keys": _NUMBER,
    **dict.fromkeys(("goal", "goal_level", "oracle_glyph", "unknown_glyph", "hallucinating"), _NUMBER),
    "max_episode_steps": _NUMBER,
    **dict.fromkeys(("goal_reward", "time_penalty", "vector_bound"), _REAL),
    "blstats_scale": _POINTER,
    **dict.fromkeys(("blstats", "previous_blstats", "message", "glyphs", "internal", "program_state"), _POINTER),
    **dict.fromkeys(("chars", "colors"), _POINTER),
    **dict.fromkeys(("screen_stride", "screen_rows", "screen_columns", "first_row", "is_terminal"), _NUMBER),
    **dict.fromkeys(("end_status", "lengths", "kills", "failures", "returns", "paid", "levels_left"), _POINTER),
    "record_size": _NUMBER,
    **dict.fromkeys(("at_chars", "at_colors", "at_vector_obs", "at_message", "at_glyphs", "at_hero_xy"), _NUMBER),
    **dict.fromkeys(("at_is_first", "at_reward", "at_terminated", "at_truncated"), _NUMBER),
}


class GroupFields(ctypes.Structure):
    """A group of games as C sees it: numbers, and addresses of NumPy arrays, which are kept in `arrays`."""

    arrays: Mapping[str, np.ndarray]
    _fields_ = list(GROUP_FIELDS.items())


class EngineBuffers(ctypes.Structure):
    """Arrays that an engine writes, by NLE's names, and what it reads: `engine_buffers` in engine.h."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("action", "done")),
        ("in_normal_game", ctypes.c_byte),
        ("how_done", ctypes.c_int),
        *((name, _POINTER) for name in ("glyphs", "chars", "colors", "specials", "blstats", "message")),
        *((name, _POINTER) for name in ("program_state", "internal", "inv_glyphs", "inv_strs", "inv_letters")),
        *((name, _POINTER) for name in ("inv_oclasses", "screen_descriptions")),
        *((name, _POINTER) for name in ("tty_chars", "tty_colors", "tty_cursor", "misc")),
    ]


class Stepper(NamedTuple):
    """The extension, checked against the engine that is installed."""

    library: ctypes.CDLL
    layout: EngineLayout


@functools.cache
def load_stepper(engine: str = nethack.nethack.DLPATH) -> Stepper:
    """Loads the extension.

    Raises:
      CannotStepError: it was not built, or this system or the engine is not known.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        raise CannotStepError("this system is not Linux on x86-64")
    _check_glibc(os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None)
    found = importlib.util.find_spec(EXTENSION)
    if found is None or found.origin is None:
        raise CannotStepError("the extension is not built: install a C compiler, and this package again")
    try:
        library = ctypes.CDLL(found.origin)
    except OSError as error:
        raise CannotStepError(f"the extension can't be loaded: {error}") from None
    _declare(library)
    if library.oni_fingerprint().decode() != _fingerprint():
        raise CannotStepError("the extension is of another version: install this package again")
    sizes = [library.oni_size(i) for i in range(3)]
    if sizes[:2] != [ctypes.sizeof(GroupFields), ctypes.sizeof(EngineLayout)]:
        raise CannotStepError("the extension has other structures than this package")
    return Stepper(library, read_layout(pathlib.Path(engine).read_bytes(), settings_size=sizes[2]))


def why_not() -> str:
    """Returns the reason why games can't be stepped in C; "" where they can."""
    try:
        load_stepper()
    except CannotStepError as reason:
        return str(reason)
    return ""


def _fingerprint() -> str:
    """Returns the fingerprint of the sources that lie here; setup.py has put theirs into the extension."""
    sources = sorted(pathlib.Path(__file__).parent.glob("*.[ch]"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def _check_glibc(version: str | None) -> None:
    """Raises CannotStepError unless this is a glibc of a known version, such as "glibc 2.36"."""
    name, _, numbers = (version or "").partition(" ")
    try:
        major, minor = (int(number) for number in numbers.split(".")[:2])
    except ValueError:
        name, major, minor = "", 0, 0
    if name != GLIBC or not GLIBC_VERSIONS[0] <= (major, minor) <= GLIBC_VERSIONS[1]:
        raise CannotStepError(f"this C library is not known: {version or 'not glibc'}")


def _declare(library: ctypes.CDLL) -> None:
    group, index = ctypes.POINTER(GroupFields), ctypes.c_int64
    seed, record = ctypes.c_uint64, ctypes.c_void_p
    layout, text = ctypes.POINTER(EngineLayout), ctypes.c_char_p
    for name, result, *arguments in (
        ("oni_fingerprint", ctypes.c_char_p),
        ("oni_size", ctypes.c_int64, index),
        ("oni_load", ctypes.c_int, group, index, layout, ctypes.c_void_p, text, text),
        ("oni_has_segment", ctypes.c_int),
        ("oni_load_built", ctypes.c_int, group, index, ctypes.POINTER(EngineImage), text, text),
        ("oni_buffers", ctypes.POINTER(EngineBuffers), group, index),
        ("oni_start_engine", ctypes.c_int, group, index, seed, seed),
        ("oni_press", ctypes.c_int, group, index, ctypes.c_int),
        ("oni_unload", None, group, index),
        ("oni_start", ctypes.c_int, group, index, seed, seed),
        ("oni_quit", ctypes.c_int, group, index),
        ("oni_scout", ctypes.c_int64, group, index),
        ("oni_observe", None, group, index, record),
        ("oni_step", ctypes.c_int64, group, *[ctypes.c_void_p] * 4),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
