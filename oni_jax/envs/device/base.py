"""The interface of environments that run on an accelerator: pure functions of one environment, vmapped by the caller.

`envs.device` is the only part of `envs` that imports JAX.
"""

from typing import Generic, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from oni_jax.types import EnvSpec

State = TypeVar("State")  # a pytree of arrays of fixed shapes


class Step(NamedTuple, Generic[State]):
    """Outcome of an action."""

    state: State
    reward: jax.Array  # [] float32
    terminated: jax.Array  # [] bool; the episode ended by its own rules


class DeviceEnv(Protocol[State]):
    """An environment as pure functions of its state. All but `caption` and `event` can be traced.

    An instance is a static argument of jitted functions: it is immutable, and equal instances behave alike.
    The caller cuts episodes off, after `max_episode_steps` or fewer steps, and counts `return` and `length`.

    Texts never are on the device. A text's key is a short array from which the host makes it, once a distinct key; its
    code is 64 bits that stand for the key, so that few bytes have to be read back. Equal captions have equal keys, so
    that counting codes counts captions.
    """

    spec: EnvSpec  # with all observations that it offers; `episode_stats`: `return`, `length`, those of `stats`

    @property
    def max_episode_steps(self) -> int | None:
        """Step limit of the environment's own; None: it has none."""
        return None

    def reset(self, key: jax.Array) -> State:
        """Starts an episode, all of whose randomness at the start comes from the key."""
        ...

    def step(self, state: State, action: jax.Array, key: jax.Array) -> Step[State]:
        """Takes an action [] int32 in [0, num_actions)."""
        ...

    def observe(self, state: State) -> dict[str, jax.Array]:
        """Returns all observations by name, with the shapes and types of the spec."""
        ...

    def stats(self, state: State) -> jax.Array:
        """Returns [K-2] float32, the statistics of the episode so far that follow `return` and `length`."""
        ...

    def caption_key(self, state: State) -> jax.Array:
        """Returns [M] uint8. Only where the spec has captions."""
        ...

    def caption_code(self, state: State) -> jax.Array:
        """Returns [2] uint32: the key's bits where they fit, else `hash64` of it. Only where the spec has captions."""
        ...

    def caption(self, key: np.ndarray) -> bytes:
        """Returns the text of a caption's key, on the host. Only where the spec has captions."""
        ...

    def event_key(self, state: State) -> jax.Array:
        """Returns [M'] uint8 of what the last action did; at an episode's start too. Only where the spec has events."""
        ...

    def event_code(self, state: State) -> jax.Array:
        """Returns [2] uint32, as `caption_code`. Only where the spec has events."""
        ...

    def event(self, key: np.ndarray) -> bytes:
        """Returns the text of an event's key, on the host. Only where the spec has events."""
        ...
