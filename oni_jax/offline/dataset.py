"""A directory of pairs of sub-episodes, in the published form, read through memory mapping.

    data/<key>.npy              [P, 2, L, ...]  what was observed in each of the L steps of both sub-episodes
    info/<key>.npy              [P, 2]          state of the game at a sub-episode's last step
    preference/<annotator>.npy  [P]             0 first better, 1 second better, 2 tie, 3 unknown, or not labelled yet

P pairs, L steps. Any integer or float type will do if the values fit; keys that are not asked for are ignored.
"""

import collections
import os
from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.host.files import reserve
from oni_jax.ops.captions import as_captions
from oni_jax.settings.fields import UserError
from oni_jax.types import FIRST, UNKNOWN

DATA, INFO, PREFERENCE = "data", "info", "preference"
NUM_PAIRS_READ_AT_ONCE = 4096
MIN_BLSTATS = 22  # up to the hunger state


class PairDataset:
    """The arrays of a directory.

    Args:
        directory: the data set's.
        keys: of the arrays to open, such as "data/message" or "info/score".

    Raises:
        UserError: an array is missing, has a wrong shape or type, or another length than the others; names the file.
    """

    def __init__(self, directory: str, keys: Sequence[str]):
        if not os.path.isdir(directory):
            raise UserError(f"{directory}: no such data set directory")
        self.directory = directory
        self._arrays = {key: open_array(self.path(key)) for key in keys}
        first = self._arrays[keys[0]]
        self.num_pairs = first.shape[0] if first.ndim else 0
        for key, array in self._arrays.items():
            self._check_shape(key, array)
        lengths = {key: array.shape[2] for key, array in self._arrays.items() if key.startswith(DATA)}
        self.num_steps = next(iter(lengths.values()), 1)
        for key, length in lengths.items():
            if length != self.num_steps:
                other = self.path(next(iter(lengths)))
                raise UserError(f"{self.path(key)}: {length} steps a sub-episode, but {self.num_steps} in {other}")

    def path(self, key: str) -> str:
        return os.path.join(self.directory, f"{key}.npy")

    def __getitem__(self, key: str) -> np.ndarray:
        """Returns the memory-mapped array, unchecked."""
        return self._arrays[key]

    def _check_shape(self, key: str, array: np.ndarray) -> None:
        path, shape = self.path(key), array.shape
        if key.startswith(PREFERENCE):
            wanted, form = array.ndim == 1, "(pairs,)"
        elif key.startswith(INFO):
            wanted, form = array.ndim == 2 and shape[1] == 2, "(pairs, 2)"
        else:
            wanted, form = array.ndim >= 3 and shape[1] == 2 and shape[2] > 0, "(pairs, 2, steps, ...)"
        if not wanted:
            raise UserError(f"{path}: its shape is {shape}, but must be {form}")
        if shape[0] != self.num_pairs:
            other = self.path(next(iter(self._arrays)))
            raise UserError(f"{path}: {shape[0]} pairs, but {self.num_pairs} in {other}")
        if shape[0] == 0:
            raise UserError(f"{path}: holds no pairs")

    def messages(self, rows: slice | np.ndarray) -> np.ndarray:
        """[n, 2, L, M] uint8, zero padded. Raises UserError where data/message holds something else."""
        messages = self._arrays[f"{DATA}/message"]
        if messages.ndim != 4:
            raise UserError(
                f"{self.path(f'{DATA}/message')}: its shape is {messages.shape}, not (pairs, 2, steps, bytes)"
            )
        return self._as_bytes(f"{DATA}/message", messages[rows])

    def blstats(self, rows: slice | np.ndarray) -> np.ndarray:
        """[n, 2, L, D] int64: NLE's statistics. Raises UserError where data/blstats holds something else."""
        path, blstats = self.path(f"{DATA}/blstats"), self._arrays[f"{DATA}/blstats"]
        if blstats.ndim != 4 or blstats.shape[3] < MIN_BLSTATS:
            raise UserError(f"{path}: its shape is {blstats.shape}, not (pairs, 2, steps, {MIN_BLSTATS} or more)")
        values = np.asarray(blstats[rows])
        if not np.all(np.isfinite(values)):
            raise UserError(f"{path}: holds NaN or inf")
        return values.astype(np.int64)

    def numbers(self, key: str) -> np.ndarray:
        """All of an array as float64, such as "info/score". Raises UserError for NaN and inf."""
        values = np.asarray(self._arrays[key], np.float64)
        if not np.isfinite(values).all():
            raise UserError(f"{self.path(key)}: holds NaN or inf")
        return values

    def preferences(self, annotator: str) -> np.ndarray:
        """[P] int8 in {0, 1, 2, 3}. Raises UserError for other labels."""
        key = f"{PREFERENCE}/{annotator}"
        return as_labels(self.path(key), self._arrays[key])

    def _as_bytes(self, key: str, values: np.ndarray) -> np.ndarray:
        if values.dtype == np.uint8:
            return np.asarray(values)
        with np.errstate(invalid="ignore"):
            converted = values.astype(np.uint8)
        if not np.array_equal(converted, values):
            raise UserError(f"{self.path(key)}: holds values that are not bytes (0-255)")
        return converted


def caption_counts(directory: str) -> collections.Counter[bytes]:
    """Returns caption -> number of a data set's steps that have it. UserError: data/message.npy can't be read."""
    dataset, counts = PairDataset(directory, [f"{DATA}/message"]), collections.Counter[bytes]()
    for start in range(0, dataset.num_pairs, NUM_PAIRS_READ_AT_ONCE):
        counts.update(as_captions(dataset.messages(slice(start, start + NUM_PAIRS_READ_AT_ONCE))))
    return counts


def as_labels(path: str, values: np.ndarray) -> np.ndarray:
    """[P] int8 in {0, 1, 2, 3} from an array of any type. Raises UserError for other labels, naming `path`."""
    values = np.array(values)  # a copy: another process may write to a mapped file between two reads
    with np.errstate(invalid="ignore"):
        labels = values.astype(np.int8)
    wrong = np.flatnonzero((labels != values) | (labels < FIRST) | (labels > UNKNOWN))
    if len(wrong):
        raise UserError(f"{path}: pair {wrong[0]} has the label {values[wrong[0]]}; labels are 0, 1, 2 and 3")
    return labels


def open_array(path: str, writable: bool = False) -> np.ndarray:
    """Opens a .npy file of numbers, memory mapped. Raises UserError: missing, damaged, or of another type.

    The file is untrusted: one to be written is mapped only after it was read, since NumPy would extend it to the size
    that its header claims, and is not written through a link.
    """
    if not os.path.exists(path):
        raise UserError(f"{path}: no such file, which a data set must have")
    if not os.path.isfile(path):
        raise UserError(f"{path}: is not a regular file")
    try:
        with np.errstate(over="ignore"):  # a shape that overflows is reported below
            array = np.lib.format.open_memmap(path, mode="r")  # loads no pickles
    except Exception as error:  # NumPy raises many types for damaged headers
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path}: can't be read as a .npy file of numbers: {text}") from None
    if array.dtype.kind not in "biuf":
        raise UserError(f"{path}: holds no numbers (its type is {array.dtype})")
    if not writable:
        return array
    if os.path.islink(path):
        raise UserError(f"{path}: is a link; replace it by the file itself")
    reserve(path, os.path.getsize(path))
    return np.lib.format.open_memmap(path, mode="r+")


def create_dataset(directory: str, arrays: Mapping[str, tuple[tuple[int, ...], str]]) -> dict[str, np.ndarray]:
    """Creates files of zeros, memory mapped for writing: {"data/message": ((P, 2, L, 256), "uint8")}.

    Raises OSError: the disk is full.
    """
    created: dict[str, np.ndarray] = {}
    for key, (shape, dtype) in arrays.items():
        path = os.path.join(directory, f"{key}.npy")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        created[key] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        reserve(path, os.path.getsize(path))
    return created
