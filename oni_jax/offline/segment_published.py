"""BK's published files of episodes and of labelled segments (arXiv 2407.03964): pickled arrays of dicts.

They are unpickled without running code: nothing but NumPy's arrays and numbers is made.
"""

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

from oni_jax.host.files import open_regular
from oni_jax.networks.bk import MINIGRID_SCALE, PIXEL_SCALE, SMALL_SIDE
from oni_jax.offline.segment_episodes import Segment, check_index, check_kind
from oni_jax.settings.fields import UserError, caption_bytes
from oni_jax.types import FIRST, SECOND, TIE, UNKNOWN

_STEP_KEYS = ("action", "reward", "terminated", "timestep")
# Kinds of NumPy's types that arrays of steps have.
_KINDS = {"action": "iu", "reward": "iuf", "terminated": "b", "timestep": "iu"}
_LABELS = {0.0: FIRST, 1.0: SECOND, 0.5: TIE, -1.0: UNKNOWN}
_ALLOWED = {("numpy", "ndarray"), ("numpy", "dtype")} | {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")
    for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"))
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED and not (module == "numpy.dtypes" and name.endswith("DType")):
            raise pickle.UnpicklingError(f"it needs {module}.{name}, and only arrays and numbers are read")
        return super().find_class(module, name)


def read_published_episodes(path: str) -> list[Segment]:
    """Returns the episodes of a file. Raises UserError: it is no such file."""
    return [_segment(path, entry) for entry in _read(path, 1)]


def read_published_preferences(path: str) -> tuple[list[Segment], np.ndarray]:
    """Returns both segments of each pair, one after the other, and labels [N]. Raises UserError: it is no such file."""
    rows = _read(path, 2)
    if rows.shape[1] != 3:
        raise UserError(f"{path}: holds rows of {rows.shape[1]}, not of two segments and a label")
    try:
        labels = np.array([_LABELS[float(label)] for label in rows[:, 2]], np.int8)
    except (LookupError, TypeError, ValueError, OverflowError):
        raise UserError(f"{path}: has labels that are not 0, 1, 0.5 or -1") from None
    return [_segment(path, entry) for entry in rows[:, :2].ravel()], labels


def _read(path: str, num_axes: int) -> np.ndarray:
    try:
        with open_regular(path, follows_links=True) as file:
            version = np.lib.format.read_magic(file)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, _, dtype = read_header[version](file)
            if not dtype.hasobject:
                raise ValueError(f"it holds {dtype}")
            found = _Unpickler(file).load()
    except Exception as error:  # damaged pickles raise many types
        raise UserError(f"{path}: is no published data set ({error or type(error).__name__})") from None
    if not isinstance(found, np.ndarray) or not found.dtype.hasobject or found.ndim != num_axes or found.shape != shape:
        raise UserError(f"{path}: is no published data set (it holds no array of {num_axes} axes)")
    return found


def _segment(path: str, entry: Any) -> Segment:
    if not isinstance(entry, Mapping) or not {"image", "description", *_STEP_KEYS} <= entry.keys():
        raise UserError(f"{path}: has an entry without image, description or {', '.join(_STEP_KEYS)}")
    try:
        steps = {key: np.asarray(entry[key]).reshape(-1) for key in _STEP_KEYS}
        for key, kinds in _KINDS.items():
            check_kind(key, steps[key], kinds)
        for key in ("action", "timestep"):
            check_index(key, steps[key])
        length = len(steps["action"])
        images = _codes(np.asarray(entry["image"], np.float32))
        captions = [caption_bytes(str(text)) for text in np.asarray(entry["description"]).reshape(-1)]
        if any(b"\0" in caption for caption in captions):
            raise ValueError("a description holds a zero byte")
        observations = {"image": images}
        if "direction" in entry:
            directions = np.asarray(entry["direction"]).reshape(-1)
            check_kind("direction", directions, "iu")
            observations["direction"] = directions.astype(np.uint8)
        states = {*map(len, observations.values()), len(captions)}
        # A segment may hold the time of its last state too.
        if states != {length + 1} or not length or not {len(x) for x in steps.values()} <= {length, length + 1}:
            raise ValueError("its arrays differ in length")
        actions, rewards = steps["action"].astype(np.int32), steps["reward"].astype(np.float32)
        ended = bool(steps["terminated"][length - 1])
        return Segment(observations, captions, actions, rewards[:length], ended, int(steps["timestep"][0]))
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{path}: has an entry that is no segment ({error})") from None


def _codes(images: np.ndarray) -> np.ndarray:
    """Undoes the scaling of images [L, 3, X, Y] float32: [L, X, Y, 3] uint8."""
    if images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"the images are {list(images.shape)}")
    scale = MINIGRID_SCALE if images.shape[2] < SMALL_SIDE else (PIXEL_SCALE,) * 3
    codes = np.moveaxis(images, 1, -1) * np.array(scale, np.float32)
    rounded = np.round(codes)
    if not np.allclose(codes, rounded, atol=1e-3) or not (0 <= rounded.min() <= rounded.max() <= 255):
        raise ValueError("the images are not MiniGrid's codes, divided by 10, 5 and 3, or bytes divided by 255")
    return rounded.astype(np.uint8)
