"""Layout of the engine's library: where in it the C stepper finds functions, variables and constructors (ELF, 64 bit).

Its structures are those of NLE's known builds, so no other library is accepted.
"""

import ctypes
import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple

from oni_jax.envs.nethack.shared_code import ELF64_LITTLE_ENDIAN, PF_EXECUTE, PF_WRITE, PROGRAM_HEADER, PT_LOAD

KNOWN_BUILDS = {  # build id -> wheel
    "89432e63e74f6c7f64b0e6f378d76f7de9ae6589": "nle 1.3.0, cp311, manylinux x86_64",
    "55912c26359e25cc0a19340e86c23d3fba328c6f": "nle 1.3.0, cp312, manylinux x86_64",
    "a2241cd6bb53b734223c946465e1b3f80d3ded3c": "nle 1.3.0, cp313, manylinux x86_64",
}
FUNCTIONS = ("nle_start", "nle_step", "nle_end")
BIRTHDAY, SETTINGS = "ubirthday", "settings"  # variables
ATEXIT = "__cxa_atexit"  # a function of the C library that the engine calls

PT_DYNAMIC, PT_NOTE, PT_TLS, PT_GNU_RELRO = 2, 4, 7, 0x6474E552
SHT_DYNSYM = 11
DT_PLTRELSZ, DT_JMPREL, DT_INIT_ARRAY, DT_FINI_ARRAY, DT_INIT_ARRAYSZ, DT_FINI_ARRAYSZ = 2, 23, 25, 26, 27, 28
NT_GNU_BUILD_ID = 3
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")  # -, type, -, -, offset, size, link, -, -, -
DYNAMIC = struct.Struct("<qQ")  # tag, value
NOTE = struct.Struct("<III")  # size of name, size of description, type
RELOCATION = struct.Struct("<QIIq")  # address, -, symbol's index, -
SYMBOL = struct.Struct("<IBBHQQ")  # name, -, -, -, value, size
POINTER_SIZE = 8


class CannotStepError(Exception):
    """Games can't be stepped in C; the text says why."""


class EngineLayout(ctypes.Structure):
    """Offsets from the library's base address: `engine_layout` in engine.h."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *FUNCTIONS,
            "birthday",
            *("writable", "data_end", "memory_end"),
            *("constructors", "num_constructors", "destructors", "num_destructors", "atexit_slot"),
        )
    ]


class Segment(NamedTuple):
    kind: int
    flags: int
    offset: int  # offset in the file
    address: int
    file_size: int
    memory_size: int


class _Symbol(NamedTuple):
    index: int
    address: int
    size: int


def read_layout(library: bytes, settings_size: int) -> EngineLayout:
    """Returns the layout of a library that is known.

    Args:
      library: the file's content.
      settings_size: of `engine_settings` in engine.h.

    Raises:
      CannotStepError: it is not known, or differs from what is known of it.
    """
    if not library.startswith(ELF64_LITTLE_ENDIAN):
        raise CannotStepError("the engine is not a 64-bit ELF library")
    try:
        return _read(library, settings_size)
    except (struct.error, ValueError, LookupError, StopIteration) as error:
        raise CannotStepError(f"the engine's ELF file has an unknown layout: {error!r}") from None


def _read(library: bytes, settings_size: int) -> EngineLayout:
    segments = list(read_segments(library))
    build = _build_id(library, segments)
    if build not in KNOWN_BUILDS:
        raise CannotStepError(f"NLE's library is another build, {build[:12] or 'without an id'}")
    symbols = _symbols(library, {*FUNCTIONS, BIRTHDAY, SETTINGS, ATEXIT})
    for name, size in ((SETTINGS, settings_size), (BIRTHDAY, ctypes.sizeof(ctypes.c_long))):
        if symbols[name].size != size:
            raise CannotStepError(f"the engine's {name} has {symbols[name].size} bytes instead of {size}")
    (code,) = [segment for segment in segments if segment.kind == PT_LOAD and segment.flags & PF_EXECUTE]
    (data,) = [segment for segment in segments if segment.kind == PT_LOAD and segment.flags & PF_WRITE]
    (sealed,) = [segment for segment in segments if segment.kind == PT_GNU_RELRO]
    writable = sealed.address + sealed.memory_size  # the loader seals what lies before it
    if any(not _is_inside(symbols[name].address, code) for name in FUNCTIONS):
        raise CannotStepError("the engine's functions are not in its code")
    if sealed.address != data.address or writable % mmap.PAGESIZE or not _is_inside(writable, data):
        raise CannotStepError("the engine's variables have an unknown layout")
    dynamic = dict(_dynamic(library, segments))
    constructors, destructors = dynamic[DT_INIT_ARRAY], dynamic[DT_FINI_ARRAY]
    if any(not _is_inside(address, sealed) for address in (constructors, destructors)):
        raise CannotStepError("the engine's constructors are not in sealed memory")
    data_end, slot = data.address + data.file_size, _slot(library, dynamic, symbols[ATEXIT])
    if not writable <= slot <= data_end - POINTER_SIZE:
        raise CannotStepError("the engine's calls of other libraries have an unknown layout")
    return EngineLayout(
        *(symbols[name].address for name in FUNCTIONS),
        symbols[BIRTHDAY].address,
        *(writable, data_end, data.address + data.memory_size),
        *(constructors, dynamic[DT_INIT_ARRAYSZ] // POINTER_SIZE),
        *(destructors, dynamic[DT_FINI_ARRAYSZ] // POINTER_SIZE),
        slot,
    )


def _is_inside(address: int, segment: Segment) -> bool:
    return segment.address <= address < segment.address + segment.memory_size


def read_segments(library: bytes) -> Iterator[Segment]:
    """Yields the segments that an ELF file's header lists."""
    (start,) = struct.unpack_from("<Q", library, 32)
    entry_size, count = struct.unpack_from("<HH", library, 54)
    for i in range(count):
        kind, flags, offset, address, _, file_size, memory_size, _ = PROGRAM_HEADER.unpack_from(
            library, start + i * entry_size
        )
        yield Segment(kind, flags, offset, address, file_size, memory_size)


def _build_id(library: bytes, segments: list[Segment]) -> str:
    """Returns the linker's fingerprint of the library, in hex; "" where it has none."""
    for segment in segments:
        if segment.kind == PT_NOTE:
            name_size, size, kind = NOTE.unpack_from(library, segment.offset)
            if kind == NT_GNU_BUILD_ID:
                start = segment.offset + NOTE.size + (name_size + 3) // 4 * 4
                return library[start : start + size].hex()
    return ""


def _dynamic(library: bytes, segments: list[Segment]) -> Iterator[tuple[int, int]]:
    for segment in segments:
        if segment.kind == PT_DYNAMIC:
            yield from DYNAMIC.iter_unpack(library[segment.offset : segment.offset + segment.file_size])


def _slot(library: bytes, dynamic: dict[int, int], function: _Symbol) -> int:
    """Returns the address of the variable through which the library calls another's function."""
    start = dynamic[DT_JMPREL]  # first segment, where addresses are those of the file
    relocations = RELOCATION.iter_unpack(library[start : start + dynamic[DT_PLTRELSZ]])
    return next(address for address, _, index, _ in relocations if index == function.index)


def _symbols(library: bytes, names: set[str]) -> dict[str, _Symbol]:
    (start,) = struct.unpack_from("<Q", library, 40)
    entry_size, count = struct.unpack_from("<HH", library, 58)
    sections = [SECTION_HEADER.unpack_from(library, start + i * entry_size) for i in range(count)]
    _, _, _, _, offset, size, strings, *_ = next(section for section in sections if section[1] == SHT_DYNSYM)
    found, texts = {}, sections[strings][4]
    for index, (at, _, _, _, address, symbol_size) in enumerate(SYMBOL.iter_unpack(library[offset : offset + size])):
        name = library[texts + at : library.index(b"\0", texts + at)].decode()
        if name in names:
            found[name] = _Symbol(index, address, symbol_size)
    return found
