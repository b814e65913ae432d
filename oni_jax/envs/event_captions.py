"""Environments whose captions say what the last action did, instead of what its state looks like: `--caption event`.

An episode's first caption is empty. Where nothing reads alike twice, as states of a large world, an LLM's labels of
events can be looked up again, and their episodic counts say something.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from oni_jax.envs.base import Environment, Language, StepOutput, VectorEnv, VectorEnvWrapper
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import EnvSpec

if TYPE_CHECKING:
    from oni_jax.envs.device.base import DeviceEnv

EVENT, STATE = "event", "state"


def with_event_captions(environment: Environment) -> Environment:
    """Returns the environment with events for captions. Its functions raise UserError where it has no events."""

    def make_spec(config: EnvConfig) -> EnvSpec:
        spec = environment.make_spec(config)
        if not spec.has_events:
            raise UserError(f"--caption {EVENT}: {config.root_env} has no events; use --caption {STATE}")
        return spec._replace(has_captions=True, caption_size=spec.event_size)

    def captioned(env: Any, spec: EnvSpec | None = None) -> Any:
        if environment.device:
            return env.wrapped(_device_wrapper(), spec)
        return EventCaptions(env, spec or env.spec)

    def make(*args: Any) -> VectorEnv:
        config, spec, *others = args
        # Captions that the environment offers itself are not requested.
        inner_spec = spec._replace(has_captions=environment.make_spec(config).has_captions)
        return captioned(environment.make(config, inner_spec, *others), spec)

    def device(config: EnvConfig) -> "DeviceEnv":
        assert environment.device is not None
        return _device_wrapper()(environment.device(config))

    display = environment.display
    if display:
        watch = display.watch
        display = display._replace(watch=lambda *args: captioned(watch(*args)))  # type: ignore
    language = environment.language and of_events(environment.language)
    changed = {"make_spec": make_spec, "make": make, "display": display, "language": language}
    return environment._replace(**changed, device=environment.device and device)


def of_events(language: Language) -> Language:
    """Returns an environment's prompts and rules under another name: answers about events are not about states."""
    return language._replace(name=language.name and f"{language.name}_{EVENT}s")


def _device_wrapper() -> Any:
    # Imported here: JAX is needed where environments run, not where they are named
    from oni_jax.envs.device.wrapper import EventCaptions

    return EventCaptions


class EventCaptions(VectorEnvWrapper):
    def reset(self, out: StepOutput) -> None:
        self._env.reset(out)
        out.texts.captions[:] = [b""] * self.num_envs

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        self._env.step(actions, out)
        texts = out.texts
        texts.final_captions[:] = texts.events
        texts.captions[:] = [b"" if first else event for first, event in zip(out.records["is_first"], texts.events)]
