"""Memory for an environment to write, outside a ring."""

import numpy as np

from oni_jax.envs.base import StepOutput, VectorEnv, record_dtype


def step_output(env: VectorEnv) -> StepOutput:
    dtype = record_dtype(env.spec)
    return StepOutput(
        np.zeros(env.num_envs, dtype),
        np.zeros(env.num_envs, dtype),
        np.zeros((env.num_envs, len(env.spec.episode_stats)), np.float32),
    )


def are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether records are equal in every field (the bytes between fields are anything)."""
    assert one.dtype.names is not None
    return all(np.array_equal(one[name], other[name]) for name in one.dtype.names)
