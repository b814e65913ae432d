"""A stock of maps, made once and kept on disk, from which training takes its episodes' maps."""

import contextlib
import functools
import multiprocessing
import os
import pathlib
from collections.abc import Iterable

import numpy as np
from rich.progress import track

from oni_jax.config import UserError
from oni_jax.envs.device.crafter.maps import Map, episode_seed, make_map

SEED = 0  # whose first episodes' maps the stock is of
CACHE = "ONI_JAX_CACHE"  # environment variable: the folder, ~/.cache/oni_jax when unset
FEW = 64  # maps that are made in this process
_VERSION = 1  # of the file's form


@functools.cache
def load_stock(size: int) -> Map:
    """Returns a stock of maps, with fields [size, ...]; makes and saves it the first time.

    Raises:
        UserError: the folder can't be written, or the file in it is damaged.
    """
    path = _path(size)
    if not path.exists():
        write_stock(path, size)
    try:
        with np.load(path, allow_pickle=False) as saved:
            return Map(*(saved[name] for name in Map._fields))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path}: is no stock of Crafter's maps ({error}): remove it, it will be made again") from error


def write_stock(path: pathlib.Path, size: int) -> None:
    """Makes the stock's maps, many of them on all cores, and saves them. Raises UserError."""
    seeds = [episode_seed(SEED, number) for number in range(1, size + 1)]
    with contextlib.ExitStack() as stack:
        made: Iterable[Map] = map(make_map, seeds)
        if size > FEW:
            # Threads and accelerators of this process are not to be inherited
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))))
            made = track(pool.imap(make_map, seeds, chunksize=8), f"Making {size:,} maps of Crafter, once", size)
        maps = Map(*(np.stack(field) for field in zip(*made)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        with new.open("wb") as file:
            np.savez_compressed(file, **maps._asdict())
        new.replace(path)
    except OSError as error:
        raise UserError(f"{path}: can't be written ({error}): set {CACHE} to a folder that can") from error


def _path(size: int) -> pathlib.Path:
    folder = os.environ.get(CACHE) or pathlib.Path.home() / ".cache" / "oni_jax"
    return pathlib.Path(folder, f"crafter_maps_{_VERSION}_{size}.npz")
