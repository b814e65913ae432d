"""A device environment with all that an environment may have, and rules that can be followed by hand."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.device.base import DeviceEnv, Step
from oni_jax.envs.display import Canvas, Terminal
from oni_jax.types import ArraySpec, EnvSpec


class Signals(NamedTuple):
    key: jax.Array  # [] of the episode; a state may hold keys
    signal: jax.Array  # [] uint8
    action: jax.Array  # [] uint8; the last one
    num_right: jax.Array  # [] int32
    is_right: jax.Array  # [] bool; the last action was


@dataclasses.dataclass(frozen=True)
class SignalsEnv(DeviceEnv[Signals]):
    """A random signal in [0, 8) each step. Reward 1 for the action that is its parity; signal 0 ends the episode."""

    max_episode_steps: int | None = None
    spec = EnvSpec(
        {"signal": ArraySpec((1,), "float32"), "parity": ArraySpec((), "int32", num_ids=2)},
        num_actions=2,
        has_captions=True,
        has_events=True,
        episode_stats=("return", "length", "right"),
        caption_size=1,
        goals=("say 0", "say 1", "answer 1"),
    )
    same_goals = (("say 1", "answer 1"),)
    attainable_goals = ("say 0",)

    def reset(self, key: jax.Array) -> Signals:
        signal = jax.random.randint(key, (), 1, 8).astype(jnp.uint8)
        return Signals(key, signal, jnp.uint8(0), jnp.int32(0), jnp.bool_(False))

    def step(self, state: Signals, action: jax.Array, key: jax.Array) -> Step[Signals]:
        is_right = action == state.signal % 2
        signal = jax.random.randint(key, (), 0, 8).astype(jnp.uint8)
        state = Signals(state.key, signal, action.astype(jnp.uint8), state.num_right + is_right, is_right)
        return Step(state, is_right.astype(jnp.float32), signal == 0)

    def observe(self, state: Signals) -> dict[str, jax.Array]:
        return {"signal": state.signal.astype(jnp.float32)[None], "parity": state.signal.astype(jnp.int32) % 2}

    def stats(self, state: Signals) -> jax.Array:
        return state.num_right.astype(jnp.float32)[None]

    def caption_key(self, state: Signals) -> jax.Array:
        return state.signal[None]

    def caption(self, key: np.ndarray) -> bytes:
        return b"The signal is %d." % key[0]

    def event_key(self, state: Signals) -> jax.Array:
        return state.action[None]

    def event(self, key: np.ndarray) -> bytes:
        return b"You say %d." % key[0]

    def scene(self, state: Signals) -> jax.Array:
        return state.signal

    def draw(self, scene: np.ndarray) -> Terminal:
        canvas = Canvas()
        canvas.write(0, 0, f"{scene}")
        return canvas.terminal()

    def goals_reached(self, state: Signals, action: jax.Array, success: str) -> jax.Array:
        said = jnp.arange(3) == action
        return said & state.is_right if success == "strict" else said

    def goals_possible(self, state: Signals) -> jax.Array:
        return jnp.array([0, 1, 1]) == state.signal % 2
