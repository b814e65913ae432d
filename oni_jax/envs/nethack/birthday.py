"""The one thing in a game that follows the computer's clock.

NLE's `fix_moon_phase` derives the date, the hour and the moon from a game's seed. What is left is the time at which the
hero was born. It decides the names of shopkeepers, which ants live in an anthole, and what is printed on T-shirts; all
of that below the first level, which is made before the time can be changed.
"""

import ctypes

from oni_jax.envs.nethack.shared_code import LIBC, loaded

BIRTHDAY = b"ubirthday"  # the engine's global variable, a time_t


def birthday_of(path: str) -> ctypes.c_long | None:
    """The variable of the engine that was loaded as `path`, to be read and written; None where it can't be found.

    It is gone when the engine is loaded anew, as at each episode's beginning.
    """
    with loaded(path) as handle:
        address = handle and LIBC.dlsym(handle, BIRTHDAY)
        return ctypes.c_long.from_address(address) if address else None
