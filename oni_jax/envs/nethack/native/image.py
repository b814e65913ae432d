"""The engine that was built here, loaded: its code, which all games of a process share, and what each begins as."""

import ctypes
import functools
import os
import pathlib

from oni_jax.envs.nethack.native.layout import PT_TLS, CannotStepError, read_segments
from oni_jax.envs.nethack.shared_code import LIBC, CannotShareError, loaded_at

DESCRIPTION = b"oni_engine"  # a variable of the library


class EngineImage(ctypes.Structure):
    """`engine_image` in engine.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("description", "fresh")),
        *((name, ctypes.c_int64) for name in ("fresh_size", "block_size")),
    ]


@functools.cache
def load_image(path: str) -> EngineImage:
    """Loads the library, which stays loaded: nothing of it is a game's.

    Raises:
      CannotStepError: it can't be loaded, or is not such a library.
    """
    handle = LIBC.dlopen(path.encode(), os.RTLD_NOW)
    description = handle and LIBC.dlsym(handle, DESCRIPTION)
    if not description:
        reason = (LIBC.dlerror() or path.encode()).decode(errors="replace")
        raise CannotStepError(f"{reason}: the built engine can't be loaded, or is not the engine")
    try:
        (variables,) = [part for part in read_segments(pathlib.Path(path).read_bytes()) if part.kind == PT_TLS]
        fresh = loaded_at(path) + variables.address
    except (CannotShareError, ValueError) as error:
        raise CannotStepError(f"{path} has an unknown layout: {error}") from None
    return EngineImage(description, fresh, variables.file_size, variables.memory_size)
