"""Environments of ours as a vector of gymnasium's: the other direction is `gymnasium_env`."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from oni_jax.envs.base import StepOutput, VectorEnv, make_step_output
from oni_jax.envs.spaces import Bounds
from oni_jax.settings.fields import UserError, caption_text
from oni_jax.types import ArraySpec, EnvSpec


class GymnasiumVector(gymnasium.vector.VectorEnv):
    """N environments in this process, as `gymnasium.vector.VectorEnv`; see `oni_jax.make_vec`.

    Args:
        make: makes the environments of a seed.
        spec: an environment's.
        bounds: bounds of its observations, where they are known.
        num_envs: N.
    """

    _envs: VectorEnv | None = None  # environments of a seed, from the first reset on

    def __init__(self, make: Callable[[int], VectorEnv], spec: EnvSpec, bounds: Mapping[str, Bounds], num_envs: int):
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = num_envs
        arrays = spec.observations.items()
        self.single_observation_space = spaces.Dict({name: _box(x, bounds.get(name)) for name, x in arrays})
        self.single_action_space = spaces.Discrete(spec.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._make, self._our_spec, self._out = make, spec, make_step_output(spec, num_envs)
        self._lock = threading.RLock()  # held in a call

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in every environment: the first ones of the seed, or else the next ones.

        seed: drawn if left out at the first call.
        """
        if options is not None and (not isinstance(options, Mapping) or options):
            raise UserError(f"options: {options!r}: there are none; leave them out")
        if self.closed:
            raise error.ClosedEnvironmentError("the environments are closed")
        with self._alone():
            super().reset(seed=seed)
            if seed is not None or self._envs is None:
                self._close()
                self._envs = self._make(int(self.np_random.integers(2**31)) if seed is None else seed)
            self._envs.reset(self._out)
            return self._observations(self._out.records), self._texts(self._out)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all. Where an episode ends, the next one's first observation is returned, and the last in `info`."""
        if self.closed:
            raise error.ClosedEnvironmentError("the environments are closed")
        with self._alone():
            if self._envs is None:
                raise error.ResetNeeded("call reset first")
            self._envs.step(self._checked(actions), self._out)
            records = self._out.records
            terminated, truncated = records["terminated"].copy(), records["truncated"].copy()
            info = {**self._texts(self._out), **self._ended(terminated | truncated)}
            return self._observations(records), records["reward"].astype(np.float64), terminated, truncated, info

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps other threads out, whose steps would mix with these. Raises UserError: another one is in a call."""
        if not self._lock.acquire(blocking=False):
            raise UserError(
                "these environments are stepped or reset by another thread: let one thread step them, or make some for "
                "each by make_vec"
            )
        try:
            yield
        finally:
            self._lock.release()

    def __reduce__(self) -> Any:
        raise TypeError("games can't be copied or pickled: make others by make_vec")

    def _checked(self, actions: Any) -> np.ndarray:
        with contextlib.suppress(ValueError):  # lists of several lengths
            actions = np.asarray(actions)
            if actions.dtype.kind in "iu" and self.action_space.contains(actions):
                return actions.astype(np.int32)
        number, count = self._our_spec.num_actions, self.num_envs
        raise error.InvalidAction(f"actions: must be {count} integers in [0, {number})")

    def close_extras(self, **kwargs: Any) -> None:
        with self._lock:  # waits for another thread's step
            self._close()

    def _close(self) -> None:
        envs, self._envs = self._envs, None
        if envs:
            envs.close()

    def _observations(self, records: np.ndarray) -> dict[str, np.ndarray]:
        return {name: records[name].copy() for name in self._our_spec.observations}

    def _texts(self, out: StepOutput) -> dict[str, np.ndarray]:
        """Returns the captions of the observations, and what the last actions did."""
        everywhere, found = np.ones(self.num_envs, bool), {}
        if self._our_spec.has_captions:
            found |= {"caption": _decoded(out.texts.captions), "_caption": everywhere}
        if self._our_spec.has_events:
            found |= {"event": _decoded(out.texts.events), "_event": everywhere}
        return found

    def _ended(self, ended: np.ndarray) -> dict[str, Any]:
        """Returns the last observations, captions and statistics of the episodes that have ended, [N] bool."""
        if not ended.any():
            return {}
        finals, last = np.full(self.num_envs, None, object), self._observations(self._out.finals)
        for i in ended.nonzero()[0].tolist():
            finals[i] = {name: values[i] for name, values in last.items()}
        stats = self._out.episode_stats.T * ended
        of_episodes: dict[str, np.ndarray] = dict(zip(self._our_spec.episode_stats, stats, strict=True))
        if self._our_spec.has_captions:
            of_episodes["caption"] = _decoded(self._out.texts.final_captions)
            of_episodes["caption"][~ended] = None
        masks = {f"_{name}": ended for name in of_episodes}
        final_info = {**of_episodes, **masks}
        return {"final_obs": finals, "_final_obs": ended, "final_info": final_info, "_final_info": ended}


def _decoded(texts: list[bytes]) -> np.ndarray:
    """Returns texts [N] as strings."""
    return np.array([caption_text(text) for text in texts], object)


def _box(array: ArraySpec, bounds: Bounds | None) -> spaces.Box:
    """Returns the space of an observation, as wide as its type where no bounds are known."""
    dtype = np.dtype(array.dtype)
    if dtype.kind == "b":
        lowest, highest = 0, 1
    elif dtype.kind == "f":
        lowest, highest = -np.inf, np.inf
    else:
        limits = np.iinfo(dtype)
        lowest, highest = (0, array.num_ids - 1) if array.num_ids else (limits.min, limits.max)
    low, high = (lowest, highest) if bounds is None else (np.clip(x, lowest, highest) for x in bounds)
    low, high = (np.broadcast_to(np.asarray(x), array.shape).astype(dtype) for x in (low, high))
    return spaces.Box(low, high, array.shape, dtype.type)
