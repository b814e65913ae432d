"""The processes of a run, and what each tells all others."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from oni_jax.checkpointing import Saved
from oni_jax.config import Config, UserError, changed, config_from_json, config_to_json, of_all_processes
from oni_jax.distributed.contributions import Contribution, merge_contributions, pack_contribution
from oni_jax.npz import from_npz, to_npz
from oni_jax.types import Array, PyTree

SMALLEST_BYTES = 1 << 12  # that travel: with powers of two from here on, few sizes are compiled
BLOCK_BYTES = 1 << 20  # what process 0 alone tells may be larger than an int32: that many of these, and the rest


class PeerLost(Exception):
    """Another process of this run can't be reached."""


class Decision(NamedTuple):
    """What a process would do after an update."""

    end: bool = False
    save: bool = False


class SingleProcess:
    """The only process of a run; see `Peers`."""

    is_primary = True
    num, index = 1, 0

    def agree(self, decision: Decision) -> Decision:
        return decision

    def broadcast_state(self, state: PyTree, saved: Saved | None) -> tuple[PyTree, Saved | None]:
        return (saved.state if saved else state), saved

    def check_settings(self, config: Config) -> None:
        pass

    def broadcast_text(self, text: str) -> str:
        return text

    def all_gather(self, told: Contribution) -> Contribution:
        return told


SINGLE_PROCESS = SingleProcess()


class Peers:
    """All processes of this run. Each calls each method that says so, in the same order."""

    def __init__(self) -> None:
        _start_backends()
        self.num, self.index = jax.process_count(), jax.process_index()
        self.is_primary = self.index == 0
        self._decision = self._agreed = Decision()
        try:
            firsts = {device.process_index: device for device in reversed(jax.devices("cpu"))}
        except RuntimeError:
            raise UserError("$JAX_PLATFORMS: add cpu at its end, through which processes talk") from None
        mesh = Mesh(np.array([firsts[index] for index in range(self.num)]), ("processes",))
        self._split, whole = NamedSharding(mesh, PartitionSpec("processes")), NamedSharding(mesh, PartitionSpec())
        self._spread = jax.jit(lambda x: x, out_shardings=whole)
        self._sum = jax.jit(lambda x: jnp.sum(x, axis=0, dtype=x.dtype), out_shardings=whole)
        try:
            self.all_gather_arrays({})  # while all are here: gloo waits 30 s for whom it has not met, and no longer
        except PeerLost as error:
            raise UserError(
                "the processes of this run met, but one has ended since, or can't be reached: each host's own name has "
                f"to stand for its network's address ({one_line(error.__context__ or error)})"
            ) from None

    def all_gather_arrays(self, arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """What each process gives, which may be of any shape, in their order. All processes call it.

        Raises:
            PeerLost: one of them is gone.
        """
        content = to_npz(arrays)
        sizes = self._compute(self._spread, np.array([content.size], np.int32))[:, 0]
        size = max(SMALLEST_BYTES, 1 << int(sizes.max() - 1).bit_length())
        rows = self._compute(self._spread, np.pad(content, (0, size - content.size)))
        return [from_npz(row[:size]) for row, size in zip(rows, sizes)]

    def _compute(self, fn: Callable[[Array], Array], row: np.ndarray) -> np.ndarray:
        """fn of [P, N] where each process gives a row [N], N the same everywhere."""
        try:
            rows = jax.make_array_from_process_local_data(self._split, row[None])
            return np.asarray(fn(rows).addressable_data(0))
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # the latter where it failed before it was waited for
            raise lost(error) from None

    def broadcast_state(self, state: PyTree, saved: Saved | None) -> tuple[PyTree, Saved | None]:
        """What process 0 begins with: the state, which is its checkpoint's if it has one, and that checkpoint.

        All processes call it.
        """
        own: dict[str, np.ndarray] = {}
        if self.is_primary:
            leaves = jax.tree.leaves(saved.state if saved else state)
            own |= {f"state {i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        if saved:
            own |= {f"reward {name}": x for name, x in saved.reward.items()}
            own["progress"] = np.array(json.dumps(saved.progress))
        held = self._broadcast(own)
        structure = jax.tree.structure(state)
        state = jax.tree.unflatten(structure, [held[f"state {i}"] for i in range(structure.num_leaves)])
        if "progress" not in held:
            return state, None
        reward = {name.removeprefix("reward "): x for name, x in held.items() if name.startswith("reward ")}
        return state, Saved(state, reward, json.loads(str(held["progress"])))

    def _broadcast(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Process 0's arrays; the others give none."""
        content = to_npz(arrays) if self.is_primary else np.zeros(0, np.uint8)
        blocks, rest = self._compute(self._sum, np.array(divmod(content.size, BLOCK_BYTES), np.int32)).tolist()
        size = blocks * BLOCK_BYTES + rest
        return from_npz(self._compute(self._sum, np.pad(content, (0, size - content.size))))

    def check_settings(self, config: Config) -> None:
        """Raises UserError in each process when not all have the same settings. All processes call it."""
        own = np.array(config_to_json(of_all_processes(config)))
        texts = [str(found["config"]) for found in self.all_gather_arrays({"config": own})]
        for index, text in enumerate(texts):
            if text != texts[0]:
                differences = "; ".join(changed(config_from_json(texts[0]), config_from_json(text)))
                raise UserError(f"process {index} was started with other settings than process 0: {differences}")

    def agree(self, decision: Decision) -> Decision:
        """After an update: what any process wished when it was shared; these decision are told at the next."""
        self._decision = Decision(*map(max, self._decision, decision))
        agreed, self._agreed = self._agreed, Decision()
        return agreed

    def broadcast_text(self, text: str) -> str:
        """Process 0's. All processes call it."""
        return str(self.all_gather_arrays({"text": np.array(text)})[0]["text"])

    def all_gather(self, told: Contribution) -> Contribution:
        """What all processes tell, and what they wish with it. All processes call it, once a batch."""
        found = self.all_gather_arrays({**pack_contribution(told), "decision": np.array(self._decision)})
        self._decision = Decision()
        self._agreed = Decision(*np.any([own.pop("decision") for own in found], axis=0).tolist())
        return merge_contributions(found)


def _start_backends() -> None:
    """Starts JAX's backends, and with them the thread by which gloo hears the others.

    While another thread sends, that one spins (gloo's issue 246); where it wakes up on the sender's core, it takes the
    time that sending needs, and a few bytes take milliseconds. A thread of the batch policy waits for its turn instead.
    A thread's policy is that of who started it. Where there are accelerators all get the usual one back.
    """
    if sys.platform != "linux" or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        on_cpus = jax.default_backend() == "cpu"
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    for thread in [] if on_cpus else os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))


def lost(error: BaseException) -> PeerLost:
    """What a collective that failed means."""
    return PeerLost(
        f"another process of this run is gone ({one_line(error)}): this one ends too; start all of them again, or "
        "another number, to go on from the newest checkpoint"
    )


def one_line(error: BaseException) -> str:
    """The beginning of what it says."""
    return " ".join(str(error).split())[:200]
