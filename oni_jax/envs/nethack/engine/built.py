"""Finding and keeping the built engine, which may play if it is of this version and has played NLE's games."""

import functools
import hashlib
import json
import os
import pathlib
import platform

from oni_jax.envs.nethack.engine.source import SHA256
from oni_jax.envs.nethack.native.layout import CannotStepError
from oni_jax.envs.nethack.tasks import nethack
from oni_jax.host.caches import cache_folder, home_cache_folder
from oni_jax.host.files import open_regular, write_atomically
from oni_jax.settings.fields import UserError

LIBRARY, RECORD = "libengine.so", "identical.json"
MAKERS = ("compile.py", "relative.py")
HOW_TO = "`make engine` or `python -m oni_jax.envs.nethack.engine` builds it"


@functools.cache
def version() -> str:
    """Returns a hash of what the engine is made of: the source, our part of it, and the library that it replaces."""
    here = pathlib.Path(__file__).parent
    parts = sorted(path for path in here.rglob("*") if path.suffix in (".c", ".h", ".toml") or path.name in MAKERS)
    content = [path.read_bytes() for path in (*parts, pathlib.Path(nethack.nethack.DLPATH))]
    hashes = "".join(hashlib.sha256(text).hexdigest() for text in content)
    return hashlib.sha256(f"{SHA256} {platform.machine()} {hashes}".encode()).hexdigest()[:16]


def _folder_in(caches: str) -> pathlib.Path:
    return pathlib.Path(caches, "nethack_engine", version())


def engine_folder() -> pathlib.Path:
    """Returns the folder where this version's library is kept. Raises CannotStepError: none can be written."""
    try:
        return _folder_in(cache_folder())
    except UserError as error:
        raise CannotStepError(str(error)) from None


def keep(library: pathlib.Path, about: dict[str, object]) -> pathlib.Path:
    """Keeps a library that has played NLE's games. The record comes last: without it, no library is used.

    Raises OSError: there is no room.
    """
    folder = engine_folder()
    folder.mkdir(parents=True, exist_ok=True)
    content = library.read_bytes()
    write_atomically(folder / LIBRARY, content)
    write_atomically(folder / RECORD, json.dumps(about | {"sha256": hashlib.sha256(content).hexdigest()}).encode())
    return folder / LIBRARY


@functools.cache
def find_engine() -> str:
    """Returns the path of the library. Raises CannotStepError: it is not built, or is not what was compared."""
    folder = _folder_in(home_cache_folder())  # also where it is read-only
    if not folder.is_absolute() or not os.path.exists(folder / RECORD):  # no home; or one that can't be read
        folder = engine_folder()
    try:
        expected = json.loads(_read(folder / RECORD))["sha256"]
        content = _read(folder / LIBRARY)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise CannotStepError(f"a faster engine is not built ({HOW_TO})") from None
    if hashlib.sha256(content).hexdigest() != expected:
        raise CannotStepError(f"the built engine is not the file that was compared with NLE's ({HOW_TO})")
    return str(folder / LIBRARY)


def _read(path: pathlib.Path) -> bytes:
    with open_regular(path) as file:
        return file.read()
