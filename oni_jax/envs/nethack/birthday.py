"""The one thing in a game that follows the computer's clock.

NLE's `fix_moon_phase` derives the date, the hour and the moon from a game's seed. What is left is the time at which the
hero was born. It decides the names of shopkeepers, which ants live in an anthole, and what is printed on T-shirts; all
of that below the first level, which is made before the time can be changed.
"""

import ctypes

BIRTHDAY = b"ubirthday"  # the engine's global variable, a time_t
RTLD_LAZY, RTLD_NOLOAD = 1, 4

_libc = ctypes.CDLL(None)
if hasattr(_libc, "dlopen"):
    _libc.dlopen.restype = _libc.dlsym.restype = ctypes.c_void_p
    _libc.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
    _libc.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    _libc.dlclose.argtypes = [ctypes.c_void_p]


def birthday_of(path: str) -> ctypes.c_long | None:
    """The variable of the engine that was loaded as `path`, to be read and written; None where it can't be found.

    It is gone when the engine is loaded anew, as at each episode's beginning.
    """
    handle = _libc.dlopen(path.encode(), RTLD_LAZY | RTLD_NOLOAD) if hasattr(_libc, "dlopen") else None
    if not handle:
        return None
    try:
        address = _libc.dlsym(handle, BIRTHDAY)
        return ctypes.c_long.from_address(address) if address else None
    finally:
        _libc.dlclose(handle)  # else the engine would not be loaded anew
