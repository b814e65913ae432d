"""Any environment with gymnax's interface as a device environment: `reset_env`, `step_env`, `default_params`."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.base import Environment, Language, VectorEnv
from oni_jax.envs.device.base import DeviceEnv, Step
from oni_jax.envs.device.vector_env import DeviceVectorEnv
from oni_jax.envs.spaces import Bounds, bounds_of, with_highest
from oni_jax.settings.fields import UserError, caption_bytes
from oni_jax.settings.plugins import section_of
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import ArraySpec, EnvSpec

OBSERVATION = "observation"  # name of an observation that is a single array
_LIMITS = ("max_steps_in_episode", "max_timesteps")  # names of a step limit among the parameters


class Captions(NamedTuple):
    """Texts of an environment's states."""

    key: Callable[[Any], jax.Array]  # state -> [M] uint8 that say all of the text; traced
    text: Callable[[np.ndarray], str]  # key -> text, on the host


class State(NamedTuple):
    """The environment's state, and what it showed with it."""

    own: Any
    observations: dict[str, jax.Array]
    num_steps: jax.Array  # [] int32


@dataclasses.dataclass(frozen=True, eq=False)
class GymnaxEnv(DeviceEnv[State]):
    """An environment of gymnax's kind. Its auto-reset is not used.

    A step's outcome has `done`, or `terminated` and `truncated`. Where the environment reports a step limit as an end,
    as gymnax before 1.0 does, an end at that step is taken as a truncation.

    Args:
      env: with `reset_env(key, params)`, `step_env(key, state, action, params)`, `num_actions` or `action_space`.
      params: of the environment.
      captions: of its states; None: it has none.

    Raises:
      UserError: the environment lacks one of these, or shows something else than an array or a dict of arrays.
    """

    env: Any
    params: Any
    captions: Captions | None = None

    def __post_init__(self) -> None:
        for name in ("reset_env", "step_env"):
            if not hasattr(self.env, name):
                raise UserError(f"{type(self.env).__name__}: has no {name}, as environments of gymnax's kind have")

    @property
    def spec(self) -> EnvSpec:  # type: ignore
        state = jax.eval_shape(self.reset, jax.random.key(0))
        shown = state.observations
        return EnvSpec(
            {name: ArraySpec(x.shape, x.dtype.name) for name, x in shown.items()},
            self._num_actions(),
            has_captions=self.captions is not None,
            episode_stats=("return", "length"),
            caption_size=len(jax.eval_shape(self.caption_key, state)),
        )

    @property
    def max_episode_steps(self) -> int | None:
        return next((int(getattr(self.params, name)) for name in _LIMITS if hasattr(self.params, name)), None)

    def reset(self, key: jax.Array) -> State:
        observation, inner = self.env.reset_env(key, self.params)
        return State(inner, _named(observation), jnp.int32(0))

    def step(self, state: State, action: jax.Array, key: jax.Array) -> Step[State]:
        observation, inner, reward, done, *rest = self.env.step_env(key, state.own, action, self.params)
        num_steps = state.num_steps + 1
        terminated, truncated = self._endings(inner, num_steps, done, rest)
        state = State(inner, _named(observation), num_steps)
        return Step(state, jnp.float32(reward), jnp.bool_(terminated), jnp.bool_(truncated))

    def _endings(self, inner: Any, num_steps: jax.Array, done: Any, rest: list) -> tuple[Any, Any]:
        """Returns (terminated, truncated) after a step; `rest` is what its outcome has after `done`."""
        if len(rest) == 2:  # truncated, info
            return done, rest[0]
        if hasattr(self.env, "is_truncated"):  # gymnax from 1.0 on, where a step limit is no end
            return done, self.env.is_truncated(inner, self.params)
        limit = self.max_episode_steps
        return (done if limit is None else done & (num_steps < limit)), False

    def observe(self, state: State) -> dict[str, jax.Array]:
        return state.observations

    def stats(self, state: State) -> jax.Array:
        return jnp.zeros(0, jnp.float32)

    def caption_key(self, state: State) -> jax.Array:
        return self.captions.key(state.own) if self.captions else super().caption_key(state)

    def caption(self, key: np.ndarray) -> bytes:
        return caption_bytes(self.captions.text(key)) if self.captions else b""

    def _num_actions(self) -> int:
        if hasattr(self.env, "num_actions"):
            return int(self.env.num_actions)
        number = getattr(self.env.action_space(self.params), "n", None)
        if number is None:
            raise UserError(f"{type(self.env).__name__}: its actions are not discrete")
        return int(number)


def gymnax_environment(
    name: str,
    make: Callable[..., tuple[Any, Any]],
    captions: Captions | None = None,
    language: Language | None = None,
    settings: type | None = None,
) -> Environment:
    """Returns an environment of gymnax's kind, to be registered.

    Args:
      name: of its only task.
      make: returns the environment and its parameters.
      captions: see `Captions`.
      language: prompts and judge rules for the captions.
      settings: a frozen dataclass of settings, which become flags; `make` then gets one.
    """

    @functools.cache  # a static argument of jitted functions: another one is compiled for again
    def env(*args: Any) -> GymnaxEnv:
        return GymnaxEnv(*make(*args), captions)

    def device(config: EnvConfig) -> GymnaxEnv:
        return env(section_of(config, settings)) if settings else env()

    def make_vector(config: EnvConfig, spec: EnvSpec, num_envs: int, seed: int, first_index: int) -> VectorEnv:
        return DeviceVectorEnv(device(config), num_envs, seed, first_index, config.max_episode_steps, spec)

    def bounds(config: EnvConfig) -> dict[str, Bounds]:
        made = device(config)
        space = getattr(made.env, "observation_space", None)
        return bounds_of(space(made.params), OBSERVATION) if space else {}

    def make_spec(config: EnvConfig) -> EnvSpec:
        spec = device(config).spec
        return spec._replace(observations=with_highest(spec.observations, bounds(config)))

    read = (settings,) if settings else ()
    return Environment((name,), make_spec, make_vector, read, device=device, language=language, bounds=bounds)


def _named(observation: Any) -> dict[str, jax.Array]:
    """Returns an observation's arrays by name."""
    if isinstance(observation, Mapping):
        return {name: jnp.asarray(x) for name, x in observation.items()}
    if hasattr(observation, "shape"):
        return {OBSERVATION: jnp.asarray(observation)}
    raise UserError(f"an observation is a {type(observation).__name__}: give an array, or a dict of arrays")
