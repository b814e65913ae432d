"""Draws from categorical distributions."""

import jax
import numpy as np
import pytest

from oni_jax.ops.sampling import sample_actions


def test_every_action_is_drawn_as_often_as_its_probability():
    logits = np.array([0.0, 2.0, -3.0, 1.0, -200.0], np.float32)
    uniforms = (np.arange(100_000) + 0.5) / 100_000
    actions = np.asarray(sample_actions(uniforms, np.broadcast_to(logits, (100_000, 5))))
    np.testing.assert_allclose(np.bincount(actions, minlength=5) / 100_000, jax.nn.softmax(logits), atol=2e-5)


@pytest.mark.parametrize("logits", [[5.0, -np.inf, 1.0], [-np.inf, 700.0, 700.0], [-1e4, -1e4, -1e4]])
def test_the_smallest_and_largest_uniforms_draw_possible_actions(logits):
    smallest, largest = np.float32(0), np.nextafter(np.float32(1), np.float32(0))
    actions = sample_actions(np.array([smallest, largest]), np.array([logits, logits], np.float32))
    possible = np.flatnonzero(np.isfinite(logits))
    assert actions.tolist() == [possible[0], possible[-1]] and actions.dtype == np.int32


def test_rows_of_unrolls_are_drawn_alone():
    logits = np.random.default_rng(0).normal(size=(3, 4, 7)).astype(np.float32)
    uniforms = np.random.default_rng(1).uniform(size=(3, 4)).astype(np.float32)
    actions = np.asarray(sample_actions(uniforms, logits))
    sums = np.cumsum(np.exp(logits.astype(np.float64)), -1)
    expected = (sums <= uniforms[..., None] * sums[..., -1:]).sum(-1)
    np.testing.assert_array_equal(actions, expected)
