"""Data parallelism: several devices, of one process or of several, compute one program, each on its shard of a batch.

The only file that knows meshes of accelerators, and `jax.pmap`, which makes a reward model's gradient steps. A mesh of
one device costs nothing: nothing is sharded then.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from oni_jax.settings.fields import UserError
from oni_jax.types import Array, PyTree, Trajectory

AXIS = "devices"  # the devices' name in collectives
# Shardings of an array: replicated, or split along its first, its second, or its third axis.
REPLICATED, AXIS_0, AXIS_1, AXIS_2 = PartitionSpec(), *(PartitionSpec(*[None] * axis, AXIS) for axis in range(3))
_OTHERWISE = {"initial_core_state": AXIS_0, "policy_params": REPLICATED}
TRAJECTORY = Trajectory(**{**dict.fromkeys(Trajectory._fields, AXIS_1), **_OTHERWISE})  # type: ignore


class Replicas:
    """Devices that compute the same step, each on its shard of a batch.

    Args:
        devices: L devices, the same in every process, equally many of each; all there are when left out.
    """

    def __init__(self, devices: Sequence[Any] | None = None):
        self._devices = tuple(jax.devices() if devices is None else devices)

    def __len__(self) -> int:
        return len(self._devices)

    @property
    def num_local(self) -> int:
        """Number of this process's devices."""
        return sum(device.process_index == jax.process_index() for device in self._devices)

    @functools.cached_property
    def _mesh(self) -> Mesh:
        return Mesh(np.array(self._devices), (AXIS,))

    def shard_size(self, batch_size: int, flag: str) -> int:
        """Returns the rows of a batch on each device. Raises UserError, naming the flag, when they are unequal."""
        if batch_size % len(self):
            raise UserError(f"--{flag} {batch_size}: must be a multiple of the {len(self)} devices")
        return batch_size // len(self)

    def sharding(self, split: PartitionSpec = REPLICATED) -> NamedSharding:
        """Returns the sharding of an array that is split so."""
        return NamedSharding(self._mesh, split)

    def put(self, tree: PyTree, split: PyTree = REPLICATED) -> PyTree:
        """Puts arrays on the devices. Each process gives its part of split arrays, and all the same replicated ones.

        Arrays that are there already stay.

        Args:
            tree: of arrays.
            split: how they are split; a prefix of the tree.
        """
        shardings = jax.tree.map(self.sharding, split, is_leaf=lambda x: isinstance(x, PartitionSpec))
        if jax.process_count() == 1:
            return jax.device_put(tree, shardings)

        def put(sharding: NamedSharding, part: PyTree) -> PyTree:
            def put_leaf(x: Array) -> Array:
                if isinstance(x, jax.Array) and x.sharding.is_equivalent_to(sharding, x.ndim):
                    return x
                return jax.make_array_from_process_local_data(sharding, np.asarray(x))

            return jax.tree.map(put_leaf, part)

        return jax.tree.map(put, shardings, tree)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Returns zeros, replicated."""
        return jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=self.sharding())()

    def sharded(
        self, fn: Callable[..., PyTree], in_specs: Sequence[PyTree], out_specs: PyTree
    ) -> Callable[..., PyTree]:
        """Returns fn(replicated, *batches), for an fn that treats rows independently: each device computes its shard.

        For use inside a jitted function. A gradient with respect to `replicated` is the sum of the shards'.

        Args:
            fn: also takes a shard for a batch.
            in_specs, out_specs: how the batches and the results are split; prefixes of them.
        """
        if len(self) == 1:
            return fn
        return jax.shard_map(
            fn, mesh=self._mesh, in_specs=(REPLICATED, *in_specs), out_specs=out_specs, check_vma=False
        )

    def updater(self, update: Callable[[PyTree, PyTree], PyTree]) -> Callable[[PyTree, PyTree], PyTree]:
        """Returns run(tree, argument) -> tree: `update`, replicated, which donates the tree's buffers."""
        compiled = jax.jit(update, donate_argnums=0, out_shardings=self.sharding())
        return lambda tree, argument: self._wait(compiled(tree, argument))

    def stepper(self, step: Callable[[PyTree, PyTree, Any, Array], PyTree]) -> Callable[[PyTree, PyTree, Any], PyTree]:
        """Returns run(state, data, argument) -> result, all of them replicated.

        Each device calls step(state, data, argument, its index in 0 ... L-1). The results must be equal, as those of
        `mean` are.
        """

        positions = [i for i, device in enumerate(self._devices) if device.process_index == jax.process_index()]
        indices = np.array(positions, np.int32)
        # Replicated arrays go in and come out without a copy.
        in_axes = (None, None, None, 0)
        mapped = jax.pmap(step, axis_name=AXIS, in_axes=in_axes, out_axes=None, devices=self._devices)
        return lambda state, data, argument: self._wait(self._replicated(mapped(state, data, argument, indices)))

    def _replicated(self, tree: PyTree) -> PyTree:
        """Makes `pmap`'s results, equal in all processes but local to each, arrays replicated on all devices."""
        if jax.process_count() == 1:
            return tree
        make, sharding = jax.make_array_from_single_device_arrays, self.sharding()
        return jax.tree.map(lambda x: make(x.shape, sharding, [part.data for part in x.addressable_shards]), tree)

    def _wait(self, result: PyTree) -> PyTree:
        """Blocks on simulated devices: they share the cores' threads, and several steps in flight would deadlock."""
        if len(self) > 1 and self._devices[0].platform == "cpu":
            jax.block_until_ready(result)
        return result


def mean(tree: PyTree) -> PyTree:
    """Returns the mean over the devices, leaf by leaf; outside of a step of several devices, the tree as it is."""
    return jax.lax.pmean(tree, AXIS) if _is_sharded() else tree


def all_gather(batch: Array, axis: int) -> Array:
    """All-gathers the whole batch, of which each device has a shard along this axis.

    Outside of a step of several devices, returns the batch as it is.
    """
    return jax.lax.all_gather(batch, AXIS, axis=axis, tiled=True) if _is_sharded() else batch


def local_shard(batch: Array, axis: int) -> Array:
    """Returns this device's shard of a replicated batch, such as draws for all of it; the inverse of `all_gather`."""
    if not _is_sharded():
        return batch
    size = batch.shape[axis] // jax.lax.axis_size(AXIS)
    return jax.lax.dynamic_slice_in_dim(batch, jax.lax.axis_index(AXIS) * size, size, axis)


def _is_sharded() -> bool:
    """Returns whether this is traced for each of several devices."""
    try:
        jax.lax.axis_index(AXIS)
    except NameError:
        return False
    return True


def local(tree: PyTree) -> PyTree:
    """Returns what this process's first device holds of arrays on all devices, without a copy."""
    return jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, tree)


def local_rows(array: Array, axis: int = 1) -> np.ndarray:
    """Returns this process's part of an array that is split along this axis, on the host."""
    shards = {shard.index[axis].start or 0: shard for shard in array.addressable_shards}
    parts = [np.asarray(shards[start].data) for start in sorted(shards)]
    return np.concatenate(parts, axis) if len(parts) > 1 else parts[0]
