"""Builds NetHack's engine from NLE's source, for speed: `make engine`, or python -m oni_jax.envs.nethack.engine.

It takes gcc, g++, make, the package index, and about a minute and a half of two cores. The library is kept, in the
user's folder of caches, only if it plays the games of NLE's library: all arrays of 16 games x 500 keys, and of 4 in
the whole of the dungeon. Otherwise one line says why, and NLE's plays on.
"""

import contextlib
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from oni_jax.envs.nethack.engine import built, source
from oni_jax.envs.nethack.engine.compile import Build
from oni_jax.envs.nethack.engine.identity import Difference, compare
from oni_jax.envs.nethack.engine.source import BuildError
from oni_jax.envs.nethack.native.image import load_image
from oni_jax.envs.nethack.native.layout import CannotStepError
from oni_jax.envs.nethack.native.stepper import load_stepper
from oni_jax.host.lock_files import lock_file

NUM_GAMES, NUM_KEYS = 16, 500
NUM_WIZARDS = 4  # further games, whose heroes see more of the dungeon


def _report(what: str, done: int, total: int) -> None:
    is_last = done == total
    if sys.stdout.isatty():
        print(f"\rNetHack's engine: {what} {done} of {total} ", end="\n" if is_last else "", flush=True)
    elif is_last:
        print(f"NetHack's engine: {what} {total} of {total}", flush=True)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Drops what C writes to the standard error: NLE does at each question of NetHack for the name of a wizard."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def make(folder: pathlib.Path) -> str:
    """Builds the engine in a folder, compares it, and keeps it. Returns its path.

    Raises BuildError, Difference or CannotStepError: there is none.
    """
    load_stepper()  # the stepper plays it; raises where this system is not known
    for name, variable in ((built.engine_folder(), "XDG_CACHE_HOME"), (folder, "TMPDIR")):
        if os.statvfs(name).f_flag & os.ST_NOEXEC:
            raise BuildError(f"no code runs from the disk of {name}: set ${variable} to another folder")
    print("NetHack's engine: fetching NLE's source", flush=True)
    tree = source.fetch(folder)
    source.edit(tree)
    work = folder / "work"
    work.mkdir()
    library = Build(tree, work, _report).library()
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            turns = pool.submit(_compare_all, str(library)).result()
    except BrokenProcessPool:
        raise Difference("a game ends the process that plays it") from None
    return str(built.keep(library, {"games": NUM_GAMES, "keys": NUM_KEYS, "turns": turns}))


def _compare_all(library: str) -> int:
    turns = compare(library, NUM_GAMES, NUM_KEYS)
    with _without_warnings():
        return turns + compare(library, NUM_WIZARDS, NUM_KEYS, wizard=True)


def main() -> int:
    start = time.monotonic()
    try:
        path = built.find_engine()
        load_image(path)
        print(f"NetHack's engine is built: {path}")
        return 0
    except CannotStepError:
        pass
    try:
        kept = built.engine_folder()
        kept.mkdir(parents=True, exist_ok=True)
        with (
            lock_file(str(kept / "building")),
            tempfile.TemporaryDirectory(prefix="oni_engine", ignore_cleanup_errors=True) as folder,
        ):
            path = make(pathlib.Path(folder))
    except (BuildError, Difference, CannotStepError, OSError) as error:
        print(f"NetHack's engine is not built, so NLE's plays, which is slower: {error}")
        return 1
    seconds = time.monotonic() - start
    print(f"NetHack's engine plays NLE's games, and will play from now on: {path} ({seconds:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
