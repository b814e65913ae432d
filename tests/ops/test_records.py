"""Records come apart on the device as they were put together on the host."""

import jax
import numpy as np
import pytest

from oni_jax.ops.records import as_bytes, unpack_records

FIELDS = [
    ("flag", np.bool_),
    ("small", np.int8),
    ("message", np.uint8, (7,)),
    ("reward", np.float32),
    ("window", np.uint8, (3, 4)),
    ("action", np.int32),
    ("flags", np.bool_, (2,)),
    ("half", np.float16),
    ("statistics", np.float32, (5,)),
    ("glyphs", np.int16, (2, 3)),
    ("code", np.uint32),
]


def random_records(dtype, shape):
    """Every bit pattern may come, NaN's too; booleans are 0 or 1. Padding is not zero."""
    rng = np.random.default_rng(0)
    records = rng.integers(256, size=(*shape, dtype.itemsize), dtype=np.uint8).view(dtype)[..., 0]
    for name in ("flag", "flags"):
        records[name] = rng.integers(2, size=records[name].shape)
    return records


@pytest.mark.parametrize("align", [False, True], ids=["packed", "aligned"])
@pytest.mark.parametrize("shape", [(4,), (3, 2)], ids=str)
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_round_trip(align, shape, transform):
    dtype = np.dtype(FIELDS, align=align)
    records = random_records(dtype, shape)
    unpacked = transform(lambda x: unpack_records(x, dtype, dtype.names or ()))(as_bytes(np.asarray(records)))
    assert set(unpacked) == set(dtype.names or ())
    for name, value in unpacked.items():
        expected = records[name]
        assert value.dtype == expected.dtype and value.shape == expected.shape
        np.testing.assert_array_equal(as_raw(value), as_raw(expected), err_msg=name)


def as_raw(array):
    return np.frombuffer(np.asarray(array).tobytes(), np.uint8)


def test_alignment_makes_padding():
    assert np.dtype(FIELDS, align=True).itemsize > np.dtype(FIELDS).itemsize


def test_only_the_fields_asked_for():
    dtype = np.dtype([("id", np.int64), ("reward", np.float32)])
    records = np.zeros((2, 3), dtype)
    records["reward"] = 1.5
    unpacked = unpack_records(as_bytes(records), dtype, ["reward"])
    assert list(unpacked) == ["reward"]
    np.testing.assert_array_equal(unpacked["reward"], records["reward"])


def test_bytes_are_no_copy():
    records = np.zeros((2, 3), np.dtype(FIELDS))
    assert as_bytes(records).shape == (2, 3, records.dtype.itemsize)
    assert np.shares_memory(as_bytes(records), records)


def test_records_of_another_size_are_refused():
    with pytest.raises(AssertionError):
        unpack_records(np.zeros((2, 9), np.uint8), np.dtype(FIELDS), ["flag"])
