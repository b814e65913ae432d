"""Shares one copy of the engine's code among the games of a process.

Every NLE instance loads a separate copy of `libnethack.so`, since the engine keeps its state in global variables. So a
process has as many copies of the same instructions as it has games, and they evict each other from the processor's
caches. This module maps the installed file's pages over the read-only segments of each copy.

A game's copy is compared with the file first, byte by byte. After any mismatch games keep separate copies from then
on, which are slower and otherwise equivalent. As with any library that a program has loaded, the installed file must
not be overwritten in place while games run (pip replaces it, which is safe).
"""

import contextlib
import ctypes
import mmap
import os
import struct
import sys
import weakref
from collections.abc import Iterator
from typing import NamedTuple

from oni_jax.envs.nethack.tasks import nethack

MAP_FIXED = 0x10  # Linux's, which `mmap` lacks
MAP_FAILED = ctypes.c_void_p(-1).value
RTLD_NOLOAD = 4
PT_LOAD, PF_EXECUTE, PF_WRITE = 1, 1, 2
ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
FILE_HEADER_SIZE = 64
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")  # type, flags, offset, address, -, size in file, size in memory, -

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = LIBC.dlopen.restype = LIBC.dlsym.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
LIBC.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
LIBC.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
LIBC.dlclose.argtypes = [ctypes.c_void_p]
LIBC.dlerror.restype = ctypes.c_char_p


class CannotShareError(Exception):
    """The engine's code can't be shared; the text says why."""


class Segment(NamedTuple):
    """A read-only segment of the library."""

    offset: int  # offset in the file, and in memory from the library's base address
    num_bytes: int
    protection: int


class _LinkMap(ctypes.Structure):
    """The public head of the loader's record of a library (link.h), which glibc's handles point at."""

    _fields_ = [("base", ctypes.c_void_p), ("name", ctypes.c_char_p)]


class SharedCode:
    """The installed library, mapped for the games of a group. Close it after them; it also is when nobody holds it.

    Attributes:
      failure: reason why games keep separate copies; None while they share the code.
    """

    def __init__(self, library: str = nethack.nethack.DLPATH):
        self.failure: str | None = None
        self._file = os.open(library, os.O_RDONLY | os.O_CLOEXEC)
        self._num_bytes = os.fstat(self._file).st_size
        self._installed = LIBC.mmap(None, self._num_bytes, mmap.PROT_READ, mmap.MAP_PRIVATE, self._file, 0)
        self.close = weakref.finalize(self, _close, self._installed, self._num_bytes, self._file)
        self._segments: list[Segment] = []
        try:
            if not sys.platform.startswith("linux") or self._installed == MAP_FAILED:
                raise CannotShareError("this system's memory mapping is not known")
            self._segments = read_only_segments(os.pread(self._file, 4096, 0))
        except CannotShareError as error:
            self.failure = str(error)

    def share(self, path: str, compare: bool) -> None:
        """Maps the file over the read-only segments of the copy loaded from `path`; sets `failure` where it can't.

        Args:
          path: as the engine opened it.
          compare: whether to compare the bytes first; a reload of a compared copy needn't.
        """
        if self.failure is None:
            try:
                self._map_segments(loaded_at(path), compare)
            except CannotShareError as error:
                self.failure = str(error)

    def _map_segments(self, base: int, compare: bool) -> None:
        for segment in self._segments if compare else ():
            if LIBC.memcmp(base + segment.offset, self._installed + segment.offset, segment.num_bytes) != 0:
                raise CannotShareError("a game's library is not the installed one")
        for segment in self._segments:
            address, flags = base + segment.offset, mmap.MAP_PRIVATE | MAP_FIXED
            mapped = LIBC.mmap(address, segment.num_bytes, segment.protection, flags, self._file, segment.offset)
            if mapped != address:
                raise CannotShareError(f"mmap failed: {os.strerror(ctypes.get_errno())}")


def _close(installed: int, num_bytes: int, file: int) -> None:
    if installed != MAP_FAILED:
        LIBC.munmap(installed, num_bytes)
    os.close(file)


def read_only_segments(header: bytes) -> list[Segment]:
    """Returns the read-only segments that the loader maps of a shared library (ELF, 64 bit).

    Args:
      header: the file's first bytes.

    Raises:
      CannotShareError: the file is not such a library, or has an unknown layout.
    """
    if not header.startswith(ELF64_LITTLE_ENDIAN) or len(header) < FILE_HEADER_SIZE:
        raise CannotShareError("the engine is not a 64-bit ELF library")
    (start,) = struct.unpack_from("<Q", header, 32)
    entry_size, count = struct.unpack_from("<HH", header, 54)
    if entry_size != PROGRAM_HEADER.size or start + count * entry_size > len(header):
        raise CannotShareError("the engine's ELF header has an unknown layout")
    segments = []
    for i in range(count):
        kind, flags, offset, address, _, file_size, memory_size, _ = PROGRAM_HEADER.unpack_from(
            header, start + i * entry_size
        )
        if kind != PT_LOAD or flags & PF_WRITE:
            continue
        if offset % mmap.PAGESIZE or offset != address or file_size != memory_size:
            raise CannotShareError("the engine's segments have an unknown layout")
        protection = mmap.PROT_READ | (mmap.PROT_EXEC if flags & PF_EXECUTE else 0)
        segments.append(Segment(offset, file_size, protection))
    return segments


def loaded_at(path: str) -> int:
    """Returns the base address of the library loaded from `path`."""
    with loaded(path) as handle:
        if not handle:
            raise CannotShareError(f"{path} is not loaded")
        record = _LinkMap.from_address(handle)
        if record.name != path.encode() or not record.base or record.base % mmap.PAGESIZE:
            raise CannotShareError("the loader's records are not glibc's")
        return record.base


@contextlib.contextmanager
def loaded(path: str) -> Iterator[int | None]:
    """Yields the loader's handle of the library loaded from `path`; None: it is not loaded."""
    handle = LIBC.dlopen(path.encode(), os.RTLD_LAZY | RTLD_NOLOAD)
    try:
        yield handle
    finally:
        if handle:
            LIBC.dlclose(handle)  # else the engine would not be reloaded
