"""Wrappers of device environments."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.device.base import DeviceEnv, Step
from oni_jax.envs.device.wrapper import FrameStack
from oni_jax.types import ArraySpec, EnvSpec


class Counter(DeviceEnv[Any]):
    """Shows the number of steps so far as a picture, and twice it as a vector."""

    spec = EnvSpec({"image": ArraySpec((2, 3, 2), "uint8"), "twice": ArraySpec((1,), "int32")}, 2, False, ())

    def reset(self, key: jax.Array) -> Any:
        return jnp.uint8(7)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Step[Any]:
        return Step(state + 1, jnp.float32(3), jnp.bool_(False))

    def stats(self, state: Any) -> jax.Array:
        return jnp.zeros(0)

    def observe(self, state: Any) -> dict[str, jax.Array]:
        return {"image": jnp.full((2, 3, 2), state), "twice": 2 * state[None]}


def test_frames_are_stacked_the_oldest_first_and_begin_with_the_episode_s_first():
    env = FrameStack(Counter(), "image", 3)
    assert env.spec.observations["image"] == ArraySpec((2, 3, 6), "uint8")
    state, key = env.reset(jax.random.key(0)), jax.random.key(1)
    for frames in ((7, 7, 7), (7, 7, 8), (7, 8, 9), (8, 9, 10)):
        shown = env.observe(state)
        assert shown["twice"] == 2 * frames[-1]
        np.testing.assert_array_equal(shown["image"], np.broadcast_to(np.repeat(frames, 2), (2, 3, 6)))
        step = env.step(state, jnp.int32(0), key)
        assert step.reward == 3
        state = step.state
