"""Codes of keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.device.hashing import hash64

EXPECTED = ["0xb8b69ca922d21b1c", "0xc7460261fa4e66db"]
hash_rows = jax.jit(jax.vmap(hash64))


def codes(keys: np.ndarray) -> np.ndarray:
    """[N, M] uint8 -> [N] uint64"""
    high, low = np.asarray(hash_rows(keys)).astype(np.uint64).T
    return high << np.uint64(32) | low


def test_codes_stay_the_same():
    assert [hex(code) for code in codes(np.arange(10, dtype=np.uint8).reshape(2, 5))] == EXPECTED
    assert hash64(jnp.zeros(0, jnp.uint8)).tolist() == [0, 0]


@pytest.mark.parametrize("size", [1, 4, 7, 52])
def test_each_bit_changes_half_of_the_code_on_average(size):
    rng = np.random.default_rng(0)
    key = rng.integers(256, size=size, dtype=np.uint8)
    flips = np.packbits(np.eye(8 * size, dtype=np.uint8), axis=1)
    changed = codes(key ^ flips) ^ codes(key[None])
    assert 28 < np.bitwise_count(changed).mean() < 36 and np.bitwise_count(changed).min() > 8


def test_similar_keys_have_distinct_codes():
    """Sparse keys, as views are: half of the code alone would collide about as often as random 32 bits do."""
    rng = np.random.default_rng(0)
    keys = rng.integers(8, size=(200_000, 52), dtype=np.uint8) * (rng.random((200_000, 52)) < 0.08)
    distinct = np.unique(keys, axis=0)
    found = codes(distinct)
    assert len(np.unique(found)) == len(distinct)
    expected = len(distinct) ** 2 / 2 / 2**32
    for half in (found >> np.uint64(32), found & np.uint64(2**32 - 1)):
        assert len(distinct) - len(np.unique(half)) < expected + 5 * np.sqrt(expected)
