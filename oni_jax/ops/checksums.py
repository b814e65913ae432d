"""Checksums of what is saved, by which a damaged file is noticed when it is read."""

import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.settings import json_text

SUMS = "checksums"  # key of the arrays' checksums, by name, in the JSON next to them


def named_leaves(tree: Any) -> dict[str, Any]:
    """Returns {path: leaf}."""
    return {leaf_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def leaf_name(path: Any) -> str:
    """Returns the path of a leaf, of `jax.tree_util`, as text."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def sealed(about: Mapping[str, Any], arrays: Any) -> dict[str, Any]:
    """Returns JSON with the checksums of a tree of arrays, and one of itself."""
    sums = {path: _sum(leaf) for path, leaf in named_leaves(arrays).items()}
    return json_text.sealed({**about, SUMS: sums})


def opened(about: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, int]]:
    """Returns the JSON that was sealed, and the arrays' checksums; none of what earlier versions saved.

    Raises:
        ValueError: it is damaged.
    """
    if not isinstance(about, Mapping) or not json_text.is_sealed(about, is_due=SUMS in about):
        raise ValueError("its JSON is damaged")
    text = json_text.unsealed(about)
    return text, text.pop(SUMS, {})


def check_arrays(arrays: Any, sums: Mapping[str, int]) -> None:
    """Compares arrays with their checksums, where there are any.

    Raises:
        ValueError: one is damaged.
    """
    for path, leaf in named_leaves(arrays).items():
        if sums and sums.get(path) != _sum(leaf):
            raise ValueError(f"{path} is damaged")


def check_finite(arrays: Any) -> None:
    """Raises ValueError, naming the first array with NaN or inf."""
    for path, leaf in named_leaves(arrays).items():
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and not np.isfinite(np.asarray(leaf, np.float32)).all():
            raise ValueError(f"{path} holds NaN or inf")


def _sum(leaf: Any) -> int:
    return zlib.crc32(np.asarray(leaf).tobytes())
