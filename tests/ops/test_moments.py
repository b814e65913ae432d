"""Running moments against those of all values at once; the golden data fix the published details."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.ops.moments import initial_moments, normalise, update_moments


def test_start():
    assert [float(x) for x in initial_moments()] == pytest.approx([0.0, 1.0, 1e-4])


def test_batches_add_up_to_the_whole():
    batches = np.split(np.random.default_rng(0).normal(3.0, 2.0, 20_000).astype(np.float32), 10)
    moments = initial_moments()
    for batch in batches:
        moments = jax.jit(update_moments)(moments, jnp.asarray(batch))
    values = np.concatenate(batches)
    assert moments.mean == pytest.approx(values.mean(), rel=1e-4)
    assert moments.variance == pytest.approx(values.var(), rel=2e-3)  # Bessel's correction batch by batch
    assert moments.count == pytest.approx(20_000, rel=1e-6)
    normalised = normalise(jnp.asarray(values), moments)
    assert np.std(normalised) == pytest.approx(1, rel=2e-3)


def test_one_value_is_a_batch():
    moments = update_moments(initial_moments(), jnp.asarray([2.0]))
    assert moments.mean == pytest.approx(2.0, rel=1e-3)
    assert np.isfinite(moments.variance)


def test_a_batchs_variance_has_bessels_correction():
    moments = update_moments(initial_moments(), jnp.asarray([1.0, 3.0]))
    assert moments.variance == pytest.approx(2.0, rel=1e-3)  # 1 without
