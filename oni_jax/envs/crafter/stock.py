"""A stock of maps, made once and kept on disk, from which training takes its episodes' maps."""

import contextlib
import functools
import io
import itertools
import os
import pathlib
import signal
import threading
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection

import numpy as np

from oni_jax.envs.crafter import things
from oni_jax.envs.crafter.maps import MAX_BORN, Map, episode_seed, make_map
from oni_jax.host.caches import cache_folder
from oni_jax.host.files import write_atomically
from oni_jax.host.inbox import Inbox
from oni_jax.host.npz import from_npz, to_npz
from oni_jax.host.progress import tracked
from oni_jax.host.runtime import ChildError, heeded, num_cores, start_child, stop_child
from oni_jax.settings.fields import UserError

SEED = 0  # whose first episodes' maps the stock is of
CACHE = "ONI_JAX_CACHE"  # environment variable: the folder; `cache_folder` when unset
HANG_SECS = 60.0  # a map takes a second at most
FEW = 64  # maps that are made in this process
_ZIP = b"PK"  # no error's text begins so
_VERSION = 1  # version of the file's form
# Form of each field: shape, and a number that is above all values
_FORM = Map(((things.SIZE, things.SIZE), len(things.MATERIALS)), ((MAX_BORN,), len(things.NAMES)), ((MAX_BORN, 2), 64))


@functools.cache
def load_stock(size: int) -> Map:
    """Returns a stock of maps, with fields [size, ...]; makes and saves it the first time.

    Raises:
        UserError: the folder can't be written, the file in it is damaged, or a signal came while the maps were made.
    """
    path = _path(size)
    if not os.path.exists(path):  # also where it can't be looked for
        write_stock(path, size)
    try:
        with np.load(path, allow_pickle=False) as saved:
            stock = Map(*(saved[name] for name in Map._fields))
        for name, field, (shape, end) in zip(Map._fields, stock, _FORM):
            if (field.shape, field.dtype) != ((size, *shape), np.uint8) or field.max() >= end:
                raise ValueError(f"its {name} are no {size} maps'")
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: is no stock of Crafter's maps ({error}): remove it, it will be made again") from error
    return stock


def write_stock(path: pathlib.Path, size: int) -> None:
    """Makes the stock's maps, many of them on all cores, and saves them. Raises UserError: see `load_stock`."""
    seeds = [episode_seed(SEED, number) for number in range(1, size + 1)]
    temporary = path.with_suffix(f".{uuid.uuid4().hex}")  # other processes may be making the same
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(temporary, b"")  # fails now, rather than after a minute's work
        temporary.unlink()  # a killed process would leave it
        with contextlib.ExitStack() as stack:
            made: Iterable[Map] = map(make_map, seeds)
            if size > FEW:
                stack.enter_context(_signals_raise())
                made = tracked(_made_by_children(seeds, stack), "making Crafter's maps, once", size)
            maps = Map(*(np.stack(field) for field in zip(*made)))
        file = io.BytesIO()
        np.savez_compressed(file, **maps._asdict())
        write_atomically(temporary, file.getbuffer())
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path}: can't be written ({error}): set {CACHE} to a folder that can") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _made_by_children(seeds: Sequence[int], stack: contextlib.ExitStack) -> Iterator[Map]:
    """Yields the maps of these seeds, made on all cores by children that the stack stops."""
    number = num_cores()
    inboxes: list[Inbox] = []
    for i in range(number):
        child, connection = start_child("crafter-maps", _send_maps, seeds[i::number], single_threaded=True)
        stack.callback(stop_child, child, connection, 0.0)
        inboxes.append(Inbox(connection))
        stack.callback(inboxes[-1].close)
    for inbox, _ in zip(itertools.cycle(inboxes), seeds):
        try:
            made = inbox.wait(HANG_SECS)
        except (EOFError, TimeoutError) as error:
            how = "died" if isinstance(error, EOFError) else f"made none for {HANG_SECS:.0f} s"
            raise UserError(f"a process that makes Crafter's maps {how}; start again") from None
        if not made.startswith(_ZIP):
            raise ChildError(made.decode(errors="replace"))
        yield Map(**from_npz(np.frombuffer(made, np.uint8)))


def _send_maps(connection: Connection, seeds: Sequence[int]) -> None:
    for seed in seeds:
        connection.send_bytes(to_npz(make_map(seed)._asdict()).tobytes())


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Has signals that stop a run raise UserError here: nothing has begun that would be lost."""

    def leave(number: int, frame: object) -> None:
        raise UserError(f"{signal.Signals(number).name} while Crafter's maps were made: start the run again")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stops = heeded((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    before = {number: signal.signal(number, leave) for number in stops}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _path(size: int) -> pathlib.Path:
    return pathlib.Path(os.environ.get(CACHE) or cache_folder()).expanduser() / f"crafter_maps_{_VERSION}_{size}.npz"
