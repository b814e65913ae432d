"""The interface of environments that run on an accelerator: pure functions of one environment, vmapped by the caller.

`envs.device` is the only part of `envs` that imports JAX.
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.device.hashing import hash64
from oni_jax.envs.display import Terminal
from oni_jax.envs.history import CAPTION
from oni_jax.settings.fields import UserError
from oni_jax.types import EnvSpec

State = TypeVar("State")  # a pytree of arrays of fixed shapes


class Step(NamedTuple, Generic[State]):
    """Outcome of an action."""

    state: State
    reward: jax.Array  # [] float32
    terminated: jax.Array  # [] bool; the episode ended by its rules
    truncated: jax.Array | bool = False  # [] bool; the environment cuts it off; one that terminates too has terminated


class DeviceEnv(Protocol[State]):
    """An environment as pure functions of its state. All but `caption`, `event` and `draw` can be traced.

    An instance is a static argument of jitted functions: it is immutable, and equal instances behave alike.
    The caller cuts episodes off, after `max_episode_steps` or fewer steps, and counts `return` and `length`.

    Texts are made on the host. A text's key is a short array that says all of it; its code is 64 bits that stand for
    the key, so that few bytes have to be read back, and each distinct text is made once. Equal texts have equal keys,
    and so equal codes: counting codes counts texts. An environment without captions, events or goals leaves their
    functions as they are here.
    """

    # Spec with all observations that it offers; `episode_stats`: `return`, `length`, those of `stats`; `caption_size`:
    # M of `caption_key`
    spec: EnvSpec

    @property
    def max_episode_steps(self) -> int | None:
        """Step limit of the environment itself; None: it has none."""
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
        """Returns [M] uint8; empty without captions."""
        return _no_key()

    def caption_code(self, state: State) -> jax.Array:
        """Returns [2] uint32: the key's bits where they fit, else `hash64` of it."""
        return hash64(self.caption_key(state))

    def caption(self, key: np.ndarray) -> bytes:
        """Returns the text of a caption's key, on the host."""
        return b""

    num_caption_features: int = 0  # F

    def caption_features(self, state: State) -> jax.Array:
        """Returns features [F] float32 of a state's caption, the input of models; F = 0: they read observations."""
        return jnp.zeros(0, jnp.float32)

    def read_caption(self, caption: bytes) -> np.ndarray | None:
        """Returns these features [F] of a caption's text, as a query says it, on the host; None: another text."""
        return None

    def event_key(self, state: State) -> jax.Array:
        """Returns [M'] uint8 of the effect of the last action; empty without events."""
        return _no_key()

    def event_code(self, state: State) -> jax.Array:
        """Returns [2] uint32, as `caption_code`."""
        return hash64(self.event_key(state))

    def event(self, key: np.ndarray) -> bytes:
        """Returns the text of an event's key, on the host."""
        return b""

    def scene(self, state: State) -> Any:
        """Returns what `draw` needs of a state, a pytree of arrays; empty where states can't be drawn."""
        return ()

    def draw(self, scene: Any) -> Terminal | None:
        """Returns what a scene of NumPy arrays looks like, on the host."""
        return None

    same_goals: Sequence[tuple[str, ...]] = ()  # goals of the spec's that mean the same
    attainable_goals: Sequence[str] = ()  # goals of the spec's that some state allows

    def goals_reached(self, state: State, action: jax.Array, success: str) -> jax.Array:
        """Returns the goals [G] bool that `action` [] int32 reached, which led to `state`.

        success: what counts, a value of --goal_success.
        """
        return jnp.zeros(len(self.spec.goals), bool)

    def goals_possible(self, state: State) -> jax.Array:
        """Returns the goals [G] bool whose prerequisites hold, as a player sees it."""
        return jnp.zeros(len(self.spec.goals), bool)

    def goal_pursued(self, state: State) -> jax.Array:
        """Returns the goal of the environment's task that is to be reached next, as one of G [G] bool."""
        return jnp.zeros(len(self.spec.goals), bool)

    def suggesting(self, table: Any, model: Any = None) -> "DeviceEnv":
        """Returns the environment with the goals that an LLM has suggested, a `goals.GoalTable`, and a model of what it
        would suggest, a `goals.GoalModel`.
        """
        return self


def observe_all(env: DeviceEnv, state: Any) -> dict[str, jax.Array]:
    """Returns a state's observations by name, and the caption's key under CAPTION.

    Raises:
        UserError: the key has not the size of the spec's.
    """
    observations = env.observe(state)
    if not env.spec.has_captions:
        return observations
    key = env.caption_key(state)
    if len(key) != env.spec.caption_size:
        raise UserError(
            f"{type(env).__name__}: its captions' keys have {len(key)} bytes, and its spec has "
            f"caption_size={env.spec.caption_size}: make them equal"
        )
    return {**observations, CAPTION: key}


def _no_key() -> jax.Array:
    return jnp.zeros(0, jnp.uint8)
