"""The part of a state that policies, rewards and the host read, and texts by their codes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from oni_jax.envs.device.base import DeviceEnv, observe_all
from oni_jax.envs.history import CAPTION

MAX_KNOWN = 200_000  # texts in a table; beyond, it is cleared


class Shown(NamedTuple):
    """One environment's; with leaves [N, ...], of N. See `DeviceEnv` for keys and codes."""

    observations: dict[str, jax.Array]
    caption_key: jax.Array  # [M] uint8
    caption_code: jax.Array  # [2] uint32
    event_key: jax.Array  # [M'] uint8
    event_code: jax.Array  # [2] uint32


def show(env: DeviceEnv, names: Sequence[str], state: Any) -> Shown:
    """Returns the named observations of one state, and its texts' keys and codes."""
    observations = observe_all(env, state) if CAPTION in names else env.observe(state)
    return Shown(
        {name: observations[name] for name in names},
        env.caption_key(state),
        env.caption_code(state),
        env.event_key(state),
        env.event_code(state),
    )


@functools.partial(jax.jit, static_argnums=0)
def first_scene(env: DeviceEnv, states: Any) -> Any:
    """Returns the scene of the first of N states."""
    return env.scene(jax.tree.map(lambda x: x[0], states))


def join_codes(codes: np.ndarray) -> np.ndarray:
    """Returns codes [..., 2] uint32 as [...] uint64."""
    return codes[..., 0].astype(np.uint64) << np.uint64(32) | codes[..., 1]


class TextTable:
    """Texts by their codes, each made once.

    Args:
      make: makes the text of a key [M] uint8.
      max_known: size at which the table is cleared.
    """

    def __init__(self, make: Callable[[np.ndarray], bytes], max_known: int = MAX_KNOWN):
        self._make, self._max_known = make, max_known
        self._texts: dict[int, bytes] = {}
        self.num_made = 0

    def look_up(self, codes: np.ndarray, keys: np.ndarray) -> list[bytes]:
        """Returns the texts of codes [N] uint64, whose keys are [N, M] uint8."""
        if len(self._texts) > self._max_known:
            self._texts.clear()
        return [self._look_up(code, keys[i]) for i, code in enumerate(codes.tolist())]

    def _look_up(self, code: int, key: np.ndarray) -> bytes:
        text = self._texts.get(code)
        if text is None:
            text = self._texts[code] = self._make(key)
            self.num_made += 1
        return text
