"""Recorded running means and variances, computed again by ours."""

import itertools
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from oni_jax.ops.moments import initial_moments, update_moments
from tests.golden.networks import Result, compare


def recognises(npz: Mapping[str, np.ndarray]) -> bool:
    return {"batch0", "means", "variances"} <= set(npz)


def check(npz: Mapping[str, np.ndarray]) -> list[Result]:
    """Mean and variance after each batch."""
    moments, means, variances = initial_moments(), [], []
    for i in itertools.count():
        if f"batch{i}" not in npz:
            break
        moments = update_moments(moments, jnp.asarray(npz[f"batch{i}"]))
        means.append(moments.mean)
        variances.append(moments.variance)
    return [
        compare("means", npz["means"], np.array(means)),
        compare("variances", npz["variances"], np.array(variances)),
    ]
