"""The only part of a game that depends on the system clock.

NLE's `fix_moon_phase` derives the date, the hour and the moon from a game's seed, but not the time of the hero's birth.
It decides the names of shopkeepers, the kind of ants in an anthole, and the text on T-shirts; all of that below the
first level, which is made before the time can be changed.
"""

import ctypes

from oni_jax.envs.nethack.shared_code import LIBC, loaded

BIRTHDAY = b"ubirthday"  # the engine's global variable, a time_t


def birthday_of(path: str) -> ctypes.c_long | None:
    """Returns the variable of the engine loaded from `path`, to read and write; None where it can't be found.

    It becomes invalid when the engine is reloaded, as at the start of each episode.
    """
    with loaded(path) as handle:
        address = handle and LIBC.dlsym(handle, BIRTHDAY)
        return ctypes.c_long.from_address(address) if address else None
