"""Faster networks on a CPU, with the same values: `convolution.convolve`, and look-ups of a first layer.

XLA's convolutions run far below the speed of its matrix products there, and arrays that leave the caches cost more than
recomputing them.
"""

import jax

used: bool | None = None  # None: if JAX's backend is the CPU. Tests set it


def is_used() -> bool:
    """Returns whether networks are computed as suits a CPU."""
    return jax.default_backend() == "cpu" if used is None else used
