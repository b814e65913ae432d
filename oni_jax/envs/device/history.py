"""Device environments that show observations of earlier steps; see `envs.history`."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from oni_jax.envs.device.base import DeviceEnv, Step, observe_all
from oni_jax.envs.device.wrapper import DeviceWrapper
from oni_jax.envs.history import ACTIONS, CAPTION, COUNTED, NO_ACTION, TIMES, past_of, past_specs
from oni_jax.types import EnvSpec


class State(NamedTuple):
    """An environment's state, and the window of steps that end with it."""

    own: Any
    seen: dict[str, jax.Array]  # each [H+1, ...]; the present observation is the last
    actions: jax.Array  # [H] int32; the last one led to the present state
    times: jax.Array  # [H+1] int32; the last is the present step's


@dataclasses.dataclass(frozen=True)
class WithHistory(DeviceWrapper):
    """A device environment that shows observations of earlier steps too.

    Attributes:
      names: of the observations of earlier steps, as `past5/image`; at least one.
    """

    names: tuple[str, ...]

    def inner(self, state: State) -> Any:
        return state.own

    @property
    def spec(self) -> EnvSpec:
        spec = self.env.spec
        return spec._replace(observations={**spec.observations, **past_specs(spec, self.names)})

    def reset(self, key: jax.Array) -> State:
        inner = self.env.reset(key)
        length = max(past.length for past in past_of(self.names).values())
        seen = {name: jnp.broadcast_to(x, (length + 1, *x.shape)) for name, x in self._read(inner).items()}
        return State(inner, seen, jnp.full(length, NO_ACTION, jnp.int32), jnp.zeros(length + 1, jnp.int32))

    def _read(self, inner: Any) -> dict[str, jax.Array]:
        needed = {past.source for past in past_of(self.names).values()} - {*COUNTED}
        shown = observe_all(self.env, inner) if CAPTION in needed else self.env.observe(inner)
        return {name: shown[name] for name in sorted(needed)}

    def step(self, state: State, action: jax.Array, key: jax.Array) -> Step[State]:
        outcome = self.env.step(state.own, action, key)
        seen = {name: _shifted(state.seen[name], x) for name, x in self._read(outcome.state).items()}
        actions, times = _shifted(state.actions, action), _shifted(state.times, state.times[-1] + 1)
        return outcome._replace(state=State(outcome.state, seen, actions, times))

    def observe(self, state: State) -> dict[str, jax.Array]:
        shown = dict(self.env.observe(state.own))
        rows = {**state.seen, TIMES: state.times}
        for name, (length, source) in past_of(self.names).items():
            shown[name] = state.actions[-length:] if source == ACTIONS else rows[source][-1 - length : -1]
        return shown


def with_history(env: DeviceEnv, spec: EnvSpec) -> DeviceEnv:
    """Returns the environment, showing what `spec` says: its observations, and those of earlier steps."""
    names = tuple(past_of(spec.observations))
    return WithHistory(env, names) if names else env


def _shifted(rows: jax.Array, newest: jax.Array) -> jax.Array:
    return jnp.concatenate([rows[1:], newest[None].astype(rows.dtype)])
