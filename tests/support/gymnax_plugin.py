"""A plugin with an environment of gymnax's kind, as users write them: a walk along a line to its end."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from oni_jax.envs.device.gymnax_env import Captions, gymnax_environment
from oni_jax.envs.registry import register_environment

NAME = "Line-v0"


class Params(NamedTuple):
    length: int = 4
    max_steps_in_episode: int = 20


class Line:
    """Two actions, back and forth; reward 1 at the end. As in gymnax before 1.0, the step limit is an end."""

    num_actions = 2

    def reset_env(self, key: jax.Array, params: Params) -> tuple[jax.Array, dict]:
        state = {"position": jax.random.randint(key, (), 0, 2), "time": jnp.int32(0)}
        return self._observe(state), state

    def step_env(self, key: jax.Array, state: dict, action: jax.Array, params: Params) -> tuple:
        position = jnp.clip(state["position"] + 2 * action - 1, 0, params.length)
        state = {"position": position, "time": state["time"] + 1}
        arrived = position == params.length
        done = arrived | (state["time"] >= params.max_steps_in_episode)
        return self._observe(state), state, arrived.astype(jnp.float32), done, {}

    def _observe(self, state: dict) -> jax.Array:
        return jax.nn.one_hot(state["position"], 5)


captions = Captions(
    lambda state: state["position"].astype(jnp.uint8)[None], lambda key: f"The end is {4 - int(key[0])} steps away."
)
register_environment(gymnax_environment(NAME, lambda: (Line(), Params()), captions))
