"""The processes of a run, and their collectives: broadcast and all-gather."""

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

from oni_jax.host.npz import from_npz, to_npz
from oni_jax.learner.peers.contributions import Contribution, merge_contributions, pack_contribution
from oni_jax.runs.checkpointing import Saved
from oni_jax.settings.config import Config, changed, config_from_json, config_to_json, of_all_processes
from oni_jax.settings.fields import UserError
from oni_jax.types import Array, PyTree

SMALLEST_BYTES = 1 << 12  # smallest all-gather: sizes are powers of two from here on, so that few are compiled
BLOCK_BYTES = 1 << 20  # a broadcast's size may exceed an int32: it is sent as a number of blocks, and the rest


class PeerLost(Exception):
    """Another process of this run can't be reached."""


class Decision(NamedTuple):
    """Request of a process to save, or to end, after an update."""

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

    def all_gather(self, contribution: Contribution) -> Contribution:
        return contribution


SINGLE_PROCESS = SingleProcess()


class Peers:
    """All processes of this run. Methods marked so are collective: all processes call them, in the same order."""

    def __init__(self) -> None:
        _start_backends()
        self.num, self.index = jax.process_count(), jax.process_index()
        self.is_primary = self.index == 0
        self._decision = self._agreed = Decision()
        try:
            firsts = {device.process_index: device for device in reversed(jax.devices("cpu"))}
        except RuntimeError:
            raise UserError("$JAX_PLATFORMS: add cpu at its end, through which processes communicate") from None
        mesh = Mesh(np.array([firsts[index] for index in range(self.num)]), ("processes",))
        specs = PartitionSpec("processes"), PartitionSpec()
        self._sharded, replicated = (NamedSharding(mesh, spec) for spec in specs)
        self._replicate = jax.jit(lambda x: x, out_shardings=replicated)
        self._sum = jax.jit(lambda x: jnp.sum(x, axis=0, dtype=x.dtype), out_shardings=replicated)
        try:
            self.all_gather_arrays({})  # while all are here: gloo connects within 30 s, or fails
        except PeerLost as error:
            raise UserError(
                "the processes of this run met, but one has ended since, or can't be reached: each host's name has "
                f"to resolve to its network's address ({one_line(error.__context__ or error)})"
            ) from None

    def all_gather_arrays(self, arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """Returns each process's arrays, of any shapes, in order of process index. Collective.

        Raises:
            PeerLost: another process is gone.
        """
        content = to_npz(arrays)
        sizes = self._compute(self._replicate, np.array([content.size], np.int32))[:, 0]
        size = max(SMALLEST_BYTES, 1 << int(sizes.max() - 1).bit_length())
        rows = self._compute(self._replicate, np.pad(content, (0, size - content.size)))
        return [from_npz(row[:size]) for row, size in zip(rows, sizes)]

    def _compute(self, fn: Callable[[Array], Array], row: np.ndarray) -> np.ndarray:
        """Returns fn of [P, N], made of a row [N] of each process; N is the same in all."""
        try:
            rows = jax.make_array_from_process_local_data(self._sharded, row[None])
            return np.asarray(fn(rows).addressable_data(0))
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # the latter if it failed at dispatch
            raise lost(error) from None

    def broadcast_state(self, state: PyTree, saved: Saved | None) -> tuple[PyTree, Saved | None]:
        """Broadcasts the primary process's state, that of its checkpoint if it has one, and the checkpoint.

        Collective.
        """
        arrays: dict[str, np.ndarray] = {}
        if self.is_primary:
            leaves = jax.tree.leaves(saved.state if saved else state)
            arrays |= {f"state {i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        if saved:
            arrays |= {f"reward {name}": x for name, x in saved.reward.items()}
            arrays["progress"] = np.array(json.dumps(saved.progress))
        received = self._broadcast(arrays)
        structure = jax.tree.structure(state)
        state = jax.tree.unflatten(structure, [received[f"state {i}"] for i in range(structure.num_leaves)])
        if "progress" not in received:
            return state, None
        reward = {name.removeprefix("reward "): x for name, x in received.items() if name.startswith("reward ")}
        return state, Saved(state, reward, json.loads(str(received["progress"])))

    def _broadcast(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the primary process's arrays; the others' are ignored. Collective."""
        content = to_npz(arrays) if self.is_primary else np.zeros(0, np.uint8)
        blocks, rest = self._compute(self._sum, np.array(divmod(content.size, BLOCK_BYTES), np.int32)).tolist()
        size = blocks * BLOCK_BYTES + rest
        return from_npz(self._compute(self._sum, np.pad(content, (0, size - content.size))))

    def check_settings(self, config: Config) -> None:
        """Raises UserError in all processes unless all have the same settings. Collective."""
        config_json = np.array(config_to_json(of_all_processes(config)))
        texts = [str(found["config"]) for found in self.all_gather_arrays({"config": config_json})]
        for index, text in enumerate(texts):
            if text != texts[0]:
                differences = "; ".join(changed(config_from_json(texts[0]), config_from_json(text)))
                raise UserError(f"process {index} was started with other settings than process 0: {differences}")

    def agree(self, decision: Decision) -> Decision:
        """Returns what any process had requested by the last `all_gather`; `decision` goes with the next one."""
        self._decision = Decision(*map(max, self._decision, decision))
        agreed, self._agreed = self._agreed, Decision()
        return agreed

    def broadcast_text(self, text: str) -> str:
        """Returns the primary process's text. Collective."""
        return str(self.all_gather_arrays({"text": np.array(text)})[0]["text"])

    def all_gather(self, contribution: Contribution) -> Contribution:
        """Returns all processes' contributions, merged, and exchanges their decisions. Collective, once a batch."""
        found = self.all_gather_arrays({**pack_contribution(contribution), "decision": np.array(self._decision)})
        self._decision = Decision()
        self._agreed = Decision(*np.any([packed.pop("decision") for packed in found], axis=0).tolist())
        return merge_contributions(found)


def _start_backends() -> None:
    """Starts JAX's backends, and with them gloo's receiving thread, under the scheduling policy SCHED_BATCH.

    While another thread sends, the receiving one spins (gloo's issue 246); on the sender's core it preempts the sender,
    and a few bytes take milliseconds. Under SCHED_BATCH it waits for its turn instead. Threads inherit the policy of
    their creator. Where there are accelerators all threads get the default policy back.
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
    """Returns the error to raise for a failed collective."""
    return PeerLost(
        f"another process of this run is gone ({one_line(error)}): this one ends too; start them again, in any "
        "number, to resume from the newest checkpoint"
    )


def one_line(error: BaseException) -> str:
    """Returns the beginning of an error's text, on one line."""
    return " ".join(str(error).split())[:200]
