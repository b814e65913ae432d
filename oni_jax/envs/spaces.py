"""Bounds of an environment's observations, read from its space: gymnasium's or gymnax's."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oni_jax.types import ArraySpec

Bound = np.ndarray | np.float64  # of values, in a shape that is broadcast to the observation's
Bounds = tuple[Bound, Bound]  # the lowest and the highest


def bounds_of(space: Any, name: str) -> dict[str, Bounds]:
    """Returns the bounds of a space's observations, where it has some; `name`: of one whose space is no dictionary."""
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        return {key: found for key, part in parts.items() for found in bounds_of(part, key).values()}
    if hasattr(space, "low") and hasattr(space, "high"):
        return {name: (np.asarray(space.low, np.float64), np.asarray(space.high, np.float64))}
    number = getattr(space, "n", None)
    if number is None:
        return {}
    is_discrete = np.ndim(number) == 0 and not getattr(space, "shape", ())  # else of bits
    return {name: (np.float64(0), np.float64(number - 1 if is_discrete else 1))}


def with_highest(observations: Mapping[str, ArraySpec], bounds: Mapping[str, Bounds]) -> dict[str, ArraySpec]:
    """Returns the specs of observations with the highest values of images' channels, as bounds name them."""

    def found(name: str, array: ArraySpec) -> ArraySpec:
        if len(array.shape) != 3 or array.dtype != "uint8" or name not in bounds or not np.prod(array.shape):
            return array
        highest = np.broadcast_to(bounds[name][1], array.shape).max(axis=(0, 1))
        return array._replace(highest=tuple(highest.tolist()))

    return {name: found(name, array) for name, array in observations.items()}
