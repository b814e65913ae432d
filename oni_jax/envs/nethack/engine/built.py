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
from oni_jax.host.caches import cache_folder
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


def engine_folder() -> pathlib.Path:
    """Returns the folder of this version's library. Raises CannotStepError: there is no folder for such things."""
    try:
        return pathlib.Path(cache_folder(), "nethack_engine", version())
    except UserError as error:
        raise CannotStepError(str(error)) from None


def keep(library: pathlib.Path, about: dict[str, object]) -> pathlib.Path:
    """Keeps a library that has played NLE's games. The record comes last: without it, no library is used."""
    folder = engine_folder()
    folder.mkdir(parents=True, exist_ok=True)
    content = library.read_bytes()
    for name, text in (
        (LIBRARY, content),
        (RECORD, json.dumps(about | {"sha256": hashlib.sha256(content).hexdigest()}).encode()),
    ):
        part = folder / f"{name}.{os.getpid()}"
        part.write_bytes(text)
        part.replace(folder / name)
    return folder / LIBRARY


@functools.cache
def find_engine() -> str:
    """Returns the path of the library. Raises CannotStepError: it is not built, or is not what was compared."""
    folder = engine_folder()
    try:
        record = json.loads((folder / RECORD).read_text())
        content = (folder / LIBRARY).read_bytes()
    except (OSError, ValueError):
        raise CannotStepError(f"a faster engine is not built ({HOW_TO})") from None
    if hashlib.sha256(content).hexdigest() != record.get("sha256"):
        raise CannotStepError(f"the built engine is not the file that was compared with NLE's ({HOW_TO})")
    return str(folder / LIBRARY)
