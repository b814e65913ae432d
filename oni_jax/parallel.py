"""Data parallelism: several devices, of one process or of several, compute one program, each on its share of a batch.

The only file that knows meshes of accelerators, and `jax.pmap`, which makes a reward model's gradient steps. A mesh of
one device costs nothing: nothing is split then.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from oni_jax.config import UserError
from oni_jax.types import Array, PyTree

AXIS = "devices"  # the name that collectives know the devices by
# How an array lies on the devices: the whole of it on each, or split along its first, its second, or its third axis.
REPLICATED, AXIS_0, AXIS_1, AXIS_2 = PartitionSpec(), *(PartitionSpec(*[None] * axis, AXIS) for axis in range(3))


class Replicas:
    """The devices that compute the same step, each on its share of a batch.

    Args:
        devices: L devices, the same in every process, and as many of each; all there are when left out.
    """

    def __init__(self, devices: Sequence[Any] | None = None):
        self._devices = tuple(jax.devices() if devices is None else devices)

    def __len__(self) -> int:
        return len(self._devices)

    @property
    def num_local(self) -> int:
        """Devices of this process."""
        return sum(device.process_index == jax.process_index() for device in self._devices)

    @functools.cached_property
    def _mesh(self) -> Mesh:
        return Mesh(np.array(self._devices), (AXIS,))

    def shard_size(self, batch_size: int, flag: str) -> int:
        """Rows of a batch that each device takes. Raises UserError, naming the flag, when they don't come out even."""
        if batch_size % len(self):
            raise UserError(f"--{flag} {batch_size}: must be a multiple of the {len(self)} devices")
        return batch_size // len(self)

    def sharding(self, split: PartitionSpec = REPLICATED) -> NamedSharding:
        """Where an array lies that is split so."""
        return NamedSharding(self._mesh, split)

    def put(self, tree: PyTree, split: PyTree = REPLICATED) -> PyTree:
        """Puts arrays on the devices. Of what is split, each process gives its own part; of the rest, all the same.

        Args:
            tree: of arrays.
            split: how they are to lie; a prefix of the tree.
        """
        shardings = jax.tree.map(self.sharding, split, is_leaf=lambda x: isinstance(x, PartitionSpec))
        if jax.process_count() == 1:
            return jax.device_put(tree, shardings)

        def put(sharding: NamedSharding, part: PyTree) -> PyTree:
            return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), part)

        return jax.tree.map(put, shardings, tree)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Zeros on every device."""
        return jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=self.sharding())()

    def shard_map(
        self, fn: Callable[..., PyTree], in_specs: Sequence[PyTree], out_specs: PyTree
    ) -> Callable[..., PyTree]:
        """fn(whole, *shares) for an fn that treats a batch's rows apart: each device computes its own share.

        For use inside a jitted function. A gradient with respect to `whole` is the sum of the shares'.

        Args:
            fn: also takes a share for a batch.
            in_specs, out_specs: how its other arguments, and its results, are split; prefixes of them.
        """
        if len(self) == 1:
            return fn
        return jax.shard_map(
            fn, mesh=self._mesh, in_specs=(REPLICATED, *in_specs), out_specs=out_specs, check_vma=False
        )

    def updater(self, update: Callable[[PyTree, PyTree], PyTree]) -> Callable[[PyTree, PyTree], PyTree]:
        """run(tree, argument) -> tree: `update`, on every device alike, in place."""
        compiled = jax.jit(update, donate_argnums=0, out_shardings=self.sharding())
        return lambda tree, argument: self._wait(compiled(tree, argument))

    def stepper(self, step: Callable[[PyTree, PyTree, Any, Array], PyTree]) -> Callable[[PyTree, PyTree, Any], PyTree]:
        """run(state, data, argument) -> result, all of them whole on every device.

        Each device calls step(state, data, argument, its number in 0 ... L-1). The results have to be equal, as those
        of `mean` are.
        """

        own = [i for i, device in enumerate(self._devices) if device.process_index == jax.process_index()]
        numbers = np.array(own, np.int32)
        # What is whole on every device goes in and comes out without a copy.
        in_axes = (None, None, None, 0)
        mapped = jax.pmap(step, axis_name=AXIS, in_axes=in_axes, out_axes=None, devices=self._devices)  # type: ignore
        return lambda state, data, argument: self._wait(self._everywhere(mapped(state, data, argument, numbers)))

    def _everywhere(self, tree: PyTree) -> PyTree:
        """What `pmap` gives as this process's own, which all have, as the same array of all of them."""
        if jax.process_count() == 1:
            return tree
        make, sharding = jax.make_array_from_single_device_arrays, self.sharding()
        return jax.tree.map(lambda x: make(x.shape, sharding, [part.data for part in x.addressable_shards]), tree)

    def _wait(self, result: PyTree) -> PyTree:
        """Simulated devices share the cores' threads: several steps under way would wait for each other for ever."""
        if len(self) > 1 and self._devices[0].platform == "cpu":
            jax.block_until_ready(result)
        return result


def mean(tree: PyTree) -> PyTree:
    """The mean over the devices, leaf by leaf; outside of a step of several devices, the tree as it is."""
    return jax.lax.pmean(tree, AXIS) if _is_split() else tree


def gathered(batch: Array, axis: int) -> Array:
    """The whole batch, of which each device has a shard along this axis, on every device (all-gather).

    Where nothing is split, outside of a step of several devices, the batch as it is.
    """
    return jax.lax.all_gather(batch, AXIS, axis=axis, tiled=True) if _is_split() else batch


def own_shard(batch: Array, axis: int) -> Array:
    """The inverse of `gathered`: this device's part of what is the same on all, such as draws for a whole batch."""
    if not _is_split():
        return batch
    size = batch.shape[axis] // jax.lax.axis_size(AXIS)
    return jax.lax.dynamic_slice_in_dim(batch, jax.lax.axis_index(AXIS) * size, size, axis)


def _is_split() -> bool:
    """Whether this is traced for each of several devices."""
    try:
        jax.lax.axis_index(AXIS)
    except NameError:
        return False
    return True


def local(tree: PyTree) -> PyTree:
    """Of arrays on all devices: what lies on this process's first one, without a copy."""
    return jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, tree)
