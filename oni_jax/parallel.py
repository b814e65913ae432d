"""Data parallelism over the local devices: the only file that knows `jax.pmap`."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from oni_jax.config import UserError
from oni_jax.types import Array, PyTree

_AXIS = "devices"


class Replicas:
    """The devices that compute the same step, each on its share of a batch.

    Args:
        devices: L local devices, all when left out; the first is the learner's, where a step's state comes from and
            returns to.
    """

    def __init__(self, devices: Sequence[Any] | None = None):
        self._devices = tuple(jax.local_devices() if devices is None else devices)

    def __len__(self) -> int:
        return len(self._devices)

    def share_size(self, batch_size: int, flag: str) -> int:
        """Rows of a batch that each device takes. Raises UserError, naming the flag, when they don't come out even."""
        if batch_size % len(self):
            raise UserError(f"--{flag} {batch_size}: must be a multiple of the {len(self)} local devices")
        return batch_size // len(self)

    def fill(self, make: Callable[[], PyTree]) -> PyTree:
        """`make()` on every device: leaves [L, ...]."""
        return self._map(lambda _: make(), in_axes=0)(np.zeros(len(self)))

    def updater(self, update: Callable[[PyTree, PyTree], PyTree]) -> Callable[[PyTree, PyTree], PyTree]:
        """run(copies, argument) -> copies: `update` on every device's copy, with the same argument, in place."""
        mapped = self._map(update, in_axes=(0, None), donate_argnums=0)
        return lambda copies, argument: self._wait(mapped(copies, argument))

    def stepper(self, step: Callable[[PyTree, PyTree, Any, Array], PyTree]) -> Callable[[PyTree, PyTree, Any], PyTree]:
        """run(state, copies, argument) -> result, on the first device.

        Each device calls step(state, its copy, argument, its number in 0 ... L-1). The results have to be equal, as
        those of `mean` are.
        """
        mapped = self._map(
            lambda state, copy, argument: step(state, copy, argument, jax.lax.axis_index(_AXIS)),
            in_axes=(None, 0, None),
            out_axes=None,
        )

        def run(state: PyTree, copies: PyTree, argument: Any) -> PyTree:
            return jax.tree.map(self._first, self._wait(mapped(state, copies, argument)))

        return run

    def _map(self, fn: Callable, **options: Any) -> Callable:
        return jax.pmap(fn, axis_name=_AXIS, devices=self._devices, **options)

    def _first(self, replicated: jax.Array) -> jax.Array:
        """The first device's part, without a copy."""
        return jax.device_put(replicated.addressable_data(0), self._devices[0])

    def _wait(self, result: PyTree) -> PyTree:
        """Simulated devices share the cores' threads: several steps under way would wait for each other for ever."""
        if len(self) > 1 and self._devices[0].platform == "cpu":
            jax.block_until_ready(result)
        return result


def mean(tree: PyTree) -> PyTree:
    """Inside of a step: the mean over the devices, leaf by leaf."""
    return jax.lax.pmean(tree, _AXIS)
