"""BK's recorded shaping of rewards over five updates, computed again by ours."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.ops.moments import initial_moments
from oni_jax.ops.shaping import Carried, published_shaping
from tests.golden.networks import Result, compare

GAMMA, PHI = "config/gamma_lambda_extcoef_clip_ent_vf_maxgrad", "raw/intrinsic_rewards"
SHAPED, MOMENTS = "shaped/shaped_rewards", "normalised/rms"
VALUES, SUMS = "normalised/intrinsic_rewards", "filtered/intrinsic_rewards_per_step"


def recognises(npz: Mapping[str, np.ndarray]) -> bool:
    return {GAMMA, PHI, SHAPED, MOMENTS, VALUES, SUMS} <= set(npz)


def check(npz: Mapping[str, np.ndarray]) -> list[Result]:
    """Shaped rewards of each update, and what is carried over to the next: moments, values and sums."""
    phi, zeros = npz[PHI], jnp.zeros(npz[PHI].shape[-1])
    shape, gamma = jax.jit(published_shaping, static_argnums=2), float(npz[GAMMA][0])
    carried, found = Carried(zeros, zeros, initial_moments()), []
    for potentials in phi[:, 1:]:  # the first row is the one carried over
        shaped, carried = shape(carried, potentials, gamma)
        found.append((shaped, np.array(carried.moments), carried.values, carried.sums))
    recorded = {SHAPED: npz[SHAPED], MOMENTS: npz[MOMENTS], VALUES: npz[VALUES][:, -1], SUMS: npz[SUMS][:, -1]}
    return [compare(name, recorded[name], np.stack(x)) for name, x in zip(recorded, zip(*found))]
