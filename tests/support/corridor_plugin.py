"""A plugin, as users write them: an environment of gymnasium, its prompt for an LLM, and an encoder.

Use: --plugin tests.support.corridor_plugin --root_env Corridor-v0 --encoder_custom corridor_encoder
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from oni_jax.config import NetworkConfig
from oni_jax.envs.base import Language
from oni_jax.envs.gymnasium_env import gymnasium_environment
from oni_jax.envs.registry import register_environment
from oni_jax.networks.registry import EncoderType, register_encoder
from oni_jax.types import EnvSpec

LENGTH = 7


class Corridor(gymnasium.Env):
    """A walker in a corridor, left and right; the lamp shows where the exit is."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict({"place": spaces.Discrete(LENGTH), "lamp": spaces.Box(-1, 1, (1,), np.float32)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.place, self.exit = LENGTH // 2, int(self.np_random.choice([0, LENGTH - 1]))
        return self._observation(), {}

    def step(self, action: int):
        self.place = int(np.clip(self.place + 2 * action - 1, 0, LENGTH - 1))
        out = self.place == self.exit
        return self._observation(), float(out), out, False, {}

    def _observation(self) -> dict[str, Any]:
        return {"place": self.place, "lamp": np.array([np.sign(self.exit - self.place)], np.float32)}


def describe(env: Any, observation: Mapping[str, Any]) -> str:
    distance = abs(env.unwrapped.exit - observation["place"])
    return "The walker is at the exit." if not distance else f"The exit is {distance} steps away."


def make_encoder(network: NetworkConfig, spec: EnvSpec) -> Any:
    import jax  # here, so that the actors' processes do without
    from flax import linen as nn

    class CorridorEncoder(nn.Module):
        @nn.compact
        def __call__(self, observations: Mapping[str, jax.Array]) -> jax.Array:
            place = jax.nn.one_hot(observations["place"], LENGTH)
            seen = jax.numpy.concatenate([place, observations["lamp"]], axis=-1)
            return nn.relu(nn.Dense(network.hidden_size)(seen))

    return CorridorEncoder()


LANGUAGE = Language(pathlib.Path(__file__).with_name("corridor_prompts"))
ENVIRONMENT = gymnasium_environment("Corridor-v0", Corridor, describe, language=LANGUAGE)
ENCODER = EncoderType(lambda network: ("place", "lamp"), make_encoder)
register_environment(ENVIRONMENT)
register_encoder("corridor_encoder", ENCODER)
