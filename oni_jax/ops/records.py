"""Structured records, copied to the device as one block of bytes and unpacked there."""

from collections.abc import Mapping, Sequence
from typing import cast

import chex
import jax
import numpy as np

from oni_jax.types import Array


def unpack_records(packed: Array, dtype: np.dtype, names: Sequence[str]) -> dict[str, Array]:
    """Unpacks the fields `names` of packed [..., R] uint8 records of a structured NumPy dtype of R bytes.

    Each comes out as [..., *field shape] with the field's type. 64-bit fields can't be unpacked.
    """
    chex.assert_type(packed, np.uint8)
    chex.assert_equal(packed.shape[-1], dtype.itemsize)
    fields = cast(Mapping[str, tuple[np.dtype, int]], dtype.fields)
    unpacked = {}
    for name in names:
        field, offset = fields[name]
        base, shape = field.base, field.shape
        value = packed[..., offset : offset + field.itemsize]
        value = value.reshape(*packed.shape[:-1], *shape, base.itemsize)
        if base.itemsize == 1:
            value = value[..., 0]
            value = value != 0 if base == np.bool_ else jax.lax.bitcast_convert_type(value, base)
        else:
            value = jax.lax.bitcast_convert_type(value, base)
        unpacked[name] = value
    return unpacked


def as_bytes(records: np.ndarray) -> np.ndarray:
    """Views a C-contiguous array of records [...] as [..., R] uint8, without a copy."""
    return records.view(np.uint8).reshape(*records.shape, records.dtype.itemsize)
