"""Observations of a space by name, and their bounds: gymnasium's or gymnax's."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from oni_jax.types import ArraySpec

Bound = np.ndarray | np.float64  # values in a shape that is broadcast to the observation's
Bounds = tuple[Bound, Bound]  # the lowest and the highest


class Leaf(NamedTuple):
    """A space that is neither a dictionary nor a tuple."""

    space: Any
    path: tuple[Any, ...]  # keys that lead to its value in an observation

    def read(self, observation: Any) -> Any:
        """Returns its value in an observation."""
        return functools.reduce(lambda value, key: value[key], self.path, observation)


def leaves_of(space: Any, name: str, path: tuple[Any, ...] = ()) -> dict[str, Leaf]:
    """Returns a space's leaves by name: a dictionary's keys, and what lies deeper as `key.0` or `key.deeper`.

    name: of a space that is no dictionary.
    """
    parts = getattr(space, "spaces", None)
    if isinstance(parts, tuple) and type(space).__name__ == "Tuple":
        parts = dict(enumerate(parts))
    if not isinstance(parts, Mapping):
        return {name: Leaf(space, path)}
    is_top = not path and type(space).__name__ != "Tuple"
    named = {key: str(key) if is_top else f"{name}.{key}" for key in parts}
    return {
        found: leaf
        for key, part in parts.items()
        for found, leaf in leaves_of(part, named[key], (*path, key)).items()
    }  # fmt: skip


def bounds_of(space: Any, name: str) -> dict[str, Bounds]:
    """Returns the bounds of a space's observations, where it has some; `name`: of one whose space is no dictionary."""
    found = {each: _bounds(leaf.space) for each, leaf in leaves_of(space, name).items()}
    return {each: bounds for each, bounds in found.items() if bounds}


def _bounds(space: Any) -> Bounds | None:
    if hasattr(space, "low") and hasattr(space, "high"):
        return np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    if hasattr(space, "nvec"):
        low = np.asarray(getattr(space, "start", 0), np.float64)
        return low, low + np.asarray(space.nvec, np.float64) - 1
    number = getattr(space, "n", None)
    if number is None:
        return None
    is_discrete = np.ndim(number) == 0 and not getattr(space, "shape", ())  # else of bits
    return np.float64(0), np.float64(number - 1 if is_discrete else 1)


def with_highest(observations: Mapping[str, ArraySpec], bounds: Mapping[str, Bounds]) -> dict[str, ArraySpec]:
    """Returns the specs of observations with the highest values of images' channels, as bounds name them."""

    def found(name: str, array: ArraySpec) -> ArraySpec:
        if len(array.shape) != 3 or array.dtype != "uint8" or name not in bounds or not np.prod(array.shape):
            return array
        highest = np.broadcast_to(bounds[name][1], array.shape).max(axis=(0, 1))
        return array._replace(highest=tuple(highest.tolist()))

    return {name: found(name, array) for name, array in observations.items()}
