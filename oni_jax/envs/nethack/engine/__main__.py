"""Builds NetHack's engine from NLE's source, for speed: `make engine`, or python -m oni_jax.envs.nethack.engine.

It takes gcc, g++, make, the package index, and about a minute and a half of two cores. The library is kept, in the
user's folder of caches, only if it plays the games of NLE's library: all arrays of 16 games x 500 keys, and of 4 in
the whole of the dungeon. Otherwise one line says why, and NLE's plays on.
"""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator

from oni_jax.envs.nethack.engine import built, source
from oni_jax.envs.nethack.engine.compile import Build
from oni_jax.envs.nethack.engine.identity import Difference, compare
from oni_jax.envs.nethack.engine.source import BuildError
from oni_jax.envs.nethack.native.layout import CannotStepError
from oni_jax.envs.nethack.native.stepper import load_stepper

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
    load_stepper()  # which plays it; raises where this system is not known
    print("NetHack's engine: fetching NLE's source", flush=True)
    tree = source.fetch(folder)
    source.edit(tree)
    work = folder / "work"
    work.mkdir()
    library = Build(tree, work, _report).library()
    turns = compare(str(library), NUM_GAMES, NUM_KEYS)
    with _without_warnings():
        turns += compare(str(library), NUM_WIZARDS, NUM_KEYS, wizard=True)
    return str(built.keep(library, {"games": NUM_GAMES, "keys": NUM_KEYS, "turns": turns}))


def main() -> int:
    start = time.monotonic()
    try:
        path = built.find_engine()
        print(f"NetHack's engine is built: {path}")
        return 0
    except CannotStepError:
        pass
    folder = pathlib.Path(tempfile.mkdtemp(prefix="oni_engine"))
    try:
        path = make(folder)
    except (BuildError, Difference, CannotStepError, OSError) as error:
        print(f"NetHack's engine is not built, so NLE's plays, which is slower: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - start
    print(f"NetHack's engine plays NLE's games, and will play from now on: {path} ({seconds:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
