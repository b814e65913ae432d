"""What makes the networks fast on a CPU, at the same values: `convolution.convolve`, and look-ups of a first layer.

XLA's convolutions run far below the speed of its matrix products there, and arrays that leave the caches cost more than
computing them anew.
"""

import jax

used: bool | None = None  # None: where JAX computes on the CPU. Tests set it


def is_used() -> bool:
    """Whether networks are to be computed as suits a CPU."""
    return jax.default_backend() == "cpu" if used is None else used
