"""Any gymnasium environment, with a function that describes its state in words. One line of a plugin:

register_environment(gymnasium_environment("Taxi-v3", lambda: gymnasium.make("Taxi-v3"), caption=describe))
"""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from oni_jax.envs.base import Environment, Language, VectorEnv, make_step_output
from oni_jax.envs.small_env import SteppedVectorEnv
from oni_jax.envs.spaces import Bounds, Leaf, bounds_of, leaves_of, with_highest
from oni_jax.settings.fields import UserError, caption_bytes, cut_caption
from oni_jax.settings.plugins import section_of
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import ArraySpec, EnvSpec

NAME = "observation"  # name of an observation space that is not a Dict
STATS = ("return", "length")
READ = spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete | spaces.Text  # a policy can read these
MAX_TEXT_BYTES = 512  # bytes of an observation that is a text
NUM_RESETS = 4  # resets with one seed, which have to show the same

MakeGym = Callable[..., gymnasium.Env]  # function of the settings that it brings, if it does
Caption = Callable[[gymnasium.Env, Any], str]  # (environment, observation) -> text of the state, for an LLM
Event = Callable[[gymnasium.Env, int, Mapping[str, Any]], str]  # (environment, action, info) -> effect of the action


class Start(NamedTuple):
    """Start of an environment's episodes, and their length."""

    reset: Callable[[gymnasium.Env, int], Any]  # (environment, seed) -> first observation
    note: str = ""  # line for the log, where seeds are ignored
    limit: int | None = None  # steps after which gymnasium ends an episode


def gymnasium_environment(
    name: str,
    make: MakeGym,
    caption: Caption | None = None,
    event: Event | None = None,
    language: Language | None = None,
    settings: type | None = None,
) -> Environment:
    """Returns an environment of one task, to be registered.

    Args:
      name: of the task, for --root_env.
      make: makes an environment. Its actions are discrete; its observation space is a box, discrete, multi-binary,
        multi-discrete, text, or dictionaries and tuples of them.
      caption, event: describe a state, and the effect of an action.
      language: prompts for the captions, and rules for the judge.
      settings: a frozen dataclass of settings, which become flags; `make` then gets one.
    """

    def args(config: EnvConfig) -> tuple[Any, ...]:
        return (section_of(config, settings),) if settings else ()

    @functools.cache
    def started(*args: Any) -> tuple[EnvSpec, Start]:
        try:
            with closing(make(*args)) as gym:
                actions, space = gym.action_space, gym.observation_space
                shown = leaves_of(space, NAME)
                spec = EnvSpec({}, 1, caption is not None, STATS)
                env = GymnasiumVectorEnv([gym], caption, None, Start(_reset), 0, 0, 1, spec)
                env.reset(make_step_output(spec, 1))  # fails early if it can't be reset
                start = _find_start(name, gym, [x for x in shown.values() if isinstance(x.space, READ)])
                start = start._replace(limit=gym.spec.max_episode_steps if gym.spec else None)
        except Exception as error:  # third-party code may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"--root_env {name}: does not start ({reason})") from error
        if not isinstance(actions, spaces.Discrete) or actions.start:
            raise UserError(f"--root_env {name}: the action space {actions} is unsupported; use Discrete(n), from 0 on")
        observations = {key: _array_spec(name, leaf.space) for key, leaf in shown.items()}
        bounds = {key: found for part, leaf in shown.items() for key, found in bounds_of(leaf.space, part).items()}
        observations = with_highest(observations, bounds)
        return EnvSpec(observations, int(actions.n), caption is not None, STATS, has_events=event is not None), start

    def make_envs(config: EnvConfig, spec: EnvSpec, num_envs: int, seed: int, first_index: int) -> VectorEnv:
        gyms, start = [make(*args(config)) for _ in range(num_envs)], started(*args(config))[1]
        return GymnasiumVectorEnv(gyms, caption, event, start, seed, first_index, config.max_episode_steps, spec)

    def bounds(config: EnvConfig) -> dict[str, Bounds]:
        with closing(make(*args(config))) as gym:
            return bounds_of(gym.observation_space, NAME)

    def make_spec(config: EnvConfig) -> EnvSpec:
        return started(*args(config))[0]

    return Environment(
        (name,),
        make_spec,
        make_envs,
        settings=(settings,) if settings else (),
        language=language,
        bounds=bounds,
        limit=lambda config: started(*args(config))[1].limit,
    )


class GymnasiumVectorEnv(SteppedVectorEnv):
    """Gymnasium environments stepped one after another; each episode is reset with a new seed. See `VectorEnv`."""

    def __init__(
        self, gyms: Sequence[gymnasium.Env], caption: Caption | None, event: Event | None, start: Start, *args: Any
    ):
        super().__init__(len(gyms), *args)
        self._leaves = leaves_of(gyms[0].observation_space, NAME)
        self._gyms, self._caption, self._event, self._start = gyms, caption, event, start
        self._seen: list[Any] = [None] * len(gyms)  # newest observations
        self._cut_off = np.zeros(len(gyms), bool)
        self._captions, self._events = [b""] * len(gyms), [b""] * len(gyms)

    def begin(self, i: int) -> None:
        self._see(i, self._start.reset(self._gyms[i], int(self.generators[i].integers(2**31))))

    def _see(self, i: int, seen: Any) -> None:
        self._seen[i] = seen
        if self._caption:
            self._captions[i] = _encoded(self._caption, self._gyms[i], seen)

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rewards, terminated = np.zeros(len(self._gyms)), np.zeros(len(self._gyms), bool)
        for i, action in enumerate(actions.tolist()):
            seen, rewards[i], terminated[i], self._cut_off[i], info = self._gyms[i].step(action)
            self._see(i, seen)
            if self._event:
                self._events[i] = _encoded(self._event, self._gyms[i], action, info)
        return rewards, terminated

    def cut_off(self) -> np.ndarray:
        return super().cut_off() | self._cut_off

    def observe(self) -> Mapping[str, np.ndarray]:
        leaves = {name: self._leaves[name] for name in self.spec.observations}
        found = {name: np.stack([_value(leaf, seen) for seen in self._seen]) for name, leaf in leaves.items()}
        for name, values in found.items():
            if values.shape[1:] != self.spec.observations[name].shape:
                raise ValueError(f"{name} has the shape {values.shape[1:]}, which is not that of its observation space")
            if values.dtype.kind == "f" and np.dtype(self.spec.observations[name].dtype).kind != "f":
                raise ValueError(f"{name} has the type {values.dtype}, and its observation space has integers")
        return {name: _narrowed(values, self.spec.observations[name].dtype) for name, values in found.items()}

    def captions(self) -> list[bytes]:
        return self._captions

    def events(self) -> list[bytes]:
        return self._events

    def note(self) -> str:
        return self._start.note

    def close(self) -> None:
        for gym in self._gyms:
            gym.close()


def _find_start(task: str, gym: gymnasium.Env, shown: Collection[Leaf]) -> Start:
    """Finds what seeds an environment's episodes: `reset`, the method `seed` that gym had, or nothing."""
    if _is_seeded(gym, _reset, shown):
        return Start(_reset)
    ignored = f"warning: {task} ignores reset(seed=...)"
    with suppress(Exception):  # there is no such method, or another one
        if _is_seeded(gym, _seed_and_reset, shown):
            return Start(_seed_and_reset, f"{ignored}: its seed() is called before each reset")
    return Start(_reset, f"{ignored}: resets with one seed differ, and so do runs with one --seed")


def _is_seeded(gym: gymnasium.Env, reset: Callable[[gymnasium.Env, int], Any], shown: Collection[Leaf]) -> bool:
    """Returns whether episodes of one seed begin with equal observations, of the leaves `shown`."""

    def first() -> list[np.ndarray]:
        seen, found = reset(gym, 0), []
        for leaf in shown:
            with suppress(LookupError, TypeError):  # it lacks what its space has
                found.append(np.array(_value(leaf, seen)))  # a copy: arrays may be shown again
        return found

    before = first()
    others = [first() for _ in range(NUM_RESETS - 1)]
    return all(
        len(before) == len(after) and all(np.array_equal(x, y, equal_nan=True) for x, y in zip(before, after))
        for after in others
    )


def _reset(gym: gymnasium.Env, seed: int) -> Any:
    return gym.reset(seed=seed)[0]


def _seed_and_reset(gym: gymnasium.Env, seed: int) -> Any:
    method = getattr(gym.unwrapped, "seed")  # noqa: B009
    method(*[seed] * (2 if "disp" in inspect.signature(method).parameters else 1))  # NLE's: of two generators
    return _reset(gym, seed)


def _array_spec(task: str, space: spaces.Space) -> ArraySpec:
    if isinstance(space, spaces.Discrete) and not space.start:
        return ArraySpec((), "int32", num_ids=int(space.n))
    if isinstance(space, spaces.Text):
        return ArraySpec((min(space.max_length, MAX_TEXT_BYTES),), "uint8")
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        dtype = np.dtype(space.dtype)
        return ArraySpec(space.shape, "float32" if dtype.kind == "f" else dtype.name.replace("64", "32"))
    raise UserError(
        f"--root_env {task}: the observation space {space} is unsupported; use Box, Discrete(n), MultiBinary, "
        "MultiDiscrete, Text, or a Dict or Tuple of them: gymnasium.wrappers.TransformObservation turns others into one"
    )


def _value(leaf: Leaf, observation: Any) -> Any:
    """Returns a leaf's value; of a text its bytes, cut off or zero-padded."""
    value = leaf.read(observation)
    if isinstance(value, Mapping):
        raise TypeError(f"an observation is a dictionary, and its space is {leaf.space}")
    if not isinstance(leaf.space, spaces.Text):
        return value
    size = min(leaf.space.max_length, MAX_TEXT_BYTES)
    return np.frombuffer(cut_caption(caption_bytes(value), size).ljust(size, b"\0"), np.uint8)


def _narrowed(values: np.ndarray, dtype: str) -> np.ndarray:
    """Clips 64-bit integers, which JAX would wrap, to the range of `dtype`."""
    if np.dtype(dtype).kind not in "iu" or values.dtype == dtype:
        return values
    limits = np.iinfo(dtype)
    return np.clip(values, limits.min, limits.max)


def _encoded(describe: Callable[..., str], *arguments: Any) -> bytes:
    """Returns a caption or event, as prompts read it. Raises RuntimeError that names a failed function."""
    try:
        return caption_bytes(describe(*arguments))
    except Exception as error:
        name = getattr(describe, "__qualname__", describe)
        raise RuntimeError(f"{name} gave no text ({type(error).__name__}: {error})") from error
