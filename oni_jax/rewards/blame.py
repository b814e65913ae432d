"""Mistakes in rewards that plugins bring: each is named in a line, with the plugin and its function."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.host.plugins import OURS, plugin_error
from oni_jax.settings.fields import UserError
from oni_jax.types import Array


def is_plugin(part: object) -> bool:
    """Returns whether an object's class was written outside this package."""
    return type(part).__module__.partition(".")[0] != OURS


@contextlib.contextmanager
def blaming(parts: Sequence[object], what: str) -> Iterator[None]:
    """Raises UserError for any error, which blames the first of some parts that a plugin brings, if one does."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        plugin = next(filter(is_plugin, parts), None)
        if plugin is None:
            raise
        raise plugin_error(type(plugin).__module__, what, error) from error


def as_features(prepared: Mapping[str, Any]) -> dict[str, Array]:
    """Returns what a reward's `prepare` gave, as arrays. Raises TypeError or ValueError: some of it is none."""
    if not isinstance(prepared, Mapping):
        raise TypeError(f"it gives {type(prepared).__name__}, not a dict of arrays")
    arrays = {name: x if isinstance(x, jax.Array) else np.asarray(x) for name, x in prepared.items()}
    for name, x in arrays.items():
        if not any(jnp.issubdtype(x.dtype, kind) for kind in (np.bool_, np.integer, np.floating)):
            raise TypeError(f"it gives {name!r} as {x.dtype} {list(x.shape)}; use numbers, such as float32")
    return arrays


def stacked(shards: Sequence[Mapping[str, Array]]) -> dict[str, np.ndarray]:
    """Stacks the features of several shards [L, ...]. Raises ValueError: they differ in names, shapes or dtypes."""
    shapes = [shapes_of(shard) for shard in shards]
    if differing := next((x for x in shapes if x != shapes[0]), None):
        raise ValueError(f"it gives {shapes[0]} and {differing} for equal shards; shapes must be fixed")
    return {name: np.stack([shard[name] for shard in shards]) for name in shards[0]}


def shapes_of(features: Mapping[str, Array]) -> str:
    """Returns the arrays' names, dtypes and shapes, in words."""
    return ", ".join(f"{name} {x.dtype} {list(x.shape)}" for name, x in sorted(features.items())) or "nothing"


def finite(value: Any) -> int | float:
    """Returns a number. Raises TypeError or ValueError: it is none, NaN or infinite."""
    if isinstance(value, int):  # integers have any size
        return value
    if not math.isfinite(number := float(value)):
        raise ValueError(f"it gives {number}")
    return number
