"""Several processes of one run, one a host, each with games and accelerators of its own.

They compute one update, of one batch, over a mesh of all their accelerators (`parallel`). Everything else that has to
be the same everywhere they make the same: once an update, each tells all others what it met (`Shared.share`). So every
process draws the same pairs, has the same labels in the same order, and makes the same gradient steps of a reward
model; only process 0 asks the LLM, keeps the labels and the checkpoints, and writes anything but its games' files. What
is told travels by JAX's own collectives, over the CPU's, so that it does not queue behind the accelerators' work.
"""

import contextlib
import dataclasses
import io
import json
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from oni_jax.buffers.exchange import TrajectoryExchange
from oni_jax.checkpointing import Saved
from oni_jax.config import Config, DevicesConfig, UserError, changed, config_from_json, config_to_json
from oni_jax.learner.loop import Annotator
from oni_jax.learner.shares import merge_captions
from oni_jax.rewards.base import Item
from oni_jax.runtime import ChildError
from oni_jax.types import Annotation, Answer, Array, CaptionBatch, PyTree

HEARTBEAT_SECS = 30  # of silence, after which a process counts as dead, and the others are ended
SMALLEST_BYTES = 1 << 12  # that travel: with powers of two from here on, few sizes are compiled
BLOCK_BYTES = 1 << 20  # what process 0 alone tells may be larger than an int32: that many of these, and the rest


class PeerLost(Exception):
    """Another process of this run can't be reached."""


class Wishes(NamedTuple):
    """What a process would do after an update."""

    end: bool = False
    save: bool = False


class Alone:
    """The only process of a run; see `Peers`."""

    leads = True
    num, index = 1, 0

    def agree(self, wishes: Wishes) -> Wishes:
        return wishes

    def same(self, state: PyTree, saved: Saved | None) -> tuple[PyTree, Saved | None]:
        return (saved.state if saved else state), saved

    def check_settings(self, config: Config) -> None:
        pass


ALONE = Alone()


@contextlib.contextmanager
def joined(devices: DevicesConfig) -> Iterator["Alone | Peers"]:
    """Finds the other processes, if there are any, and yields them; ends this process with the body.

    With others, it ends here after an error: JAX would wait for them, and they for this one.
    """
    in_slurm = devices.num_processes == 0 and _num_slurm_tasks() > 1
    if not in_slurm and devices.num_processes <= 1:
        if devices.coordinator_address:
            raise UserError("--coordinator_address: outside of Slurm, give --num_processes and --process_id as well")
        yield ALONE
        return
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from us
    own: dict[str, Any] = {} if in_slurm else {"num_processes": devices.num_processes, "process_id": devices.process_id}
    # Left to itself JAX would take one accelerator for each of Slurm's tasks: with no number given, all are ours.
    own |= {"local_device_ids": [], "heartbeat_timeout_seconds": HEARTBEAT_SECS}
    try:
        jax.distributed.initialize(devices.coordinator_address or None, **own)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"--coordinator_address: the processes of this run did not meet ({_reason(error)})") from None
    try:
        yield Peers()
    except BaseException as error:
        _leave(error)
    jax.distributed.shutdown()


def _num_slurm_tasks() -> int:
    """Tasks of the job step that this process was started in by srun; 1 elsewhere, a batch script itself included."""
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))


def _leave(error: BaseException) -> None:
    if isinstance(error, jax.errors.JaxRuntimeError) or (isinstance(error, ValueError) and "Gloo" in str(error)):
        traceback.print_exception(error)  # it may be this process's own
        error = lost(error)
    code = 2 if isinstance(error, UserError) else 130 if isinstance(error, KeyboardInterrupt) else 1
    if isinstance(error, PeerLost | UserError | ChildError):
        print(f"error: {error}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Peers:
    """All processes of this run. Each calls each method that says so, in the same order."""

    def __init__(self) -> None:
        self.num, self.index = jax.process_count(), jax.process_index()
        self.leads = self.index == 0
        self._wishes = self._agreed = Wishes()
        try:
            firsts = {device.process_index: device for device in reversed(jax.devices("cpu"))}
        except RuntimeError:
            raise UserError("$JAX_PLATFORMS: add cpu at its end, through which processes talk") from None
        mesh = Mesh(np.array([firsts[index] for index in range(self.num)]), ("processes",))
        self._split, whole = NamedSharding(mesh, PartitionSpec("processes")), NamedSharding(mesh, PartitionSpec())
        self._spread = jax.jit(lambda x: x, out_shardings=whole)
        self._sum = jax.jit(lambda x: jnp.sum(x, axis=0, dtype=x.dtype), out_shardings=whole)

    def gather(self, arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """What each process gives, which may be of any shape, in their order. All processes call it.

        Raises:
            PeerLost: one of them is gone.
        """
        content = _to_npz(arrays)
        sizes = self._compute(self._spread, np.array([content.size], np.int32))[:, 0]
        size = max(SMALLEST_BYTES, 1 << int(sizes.max() - 1).bit_length())
        rows = self._compute(self._spread, np.pad(content, (0, size - content.size)))
        return [_from_npz(row[:size]) for row, size in zip(rows, sizes)]

    def _compute(self, fn: Callable[[Array], Array], row: np.ndarray) -> np.ndarray:
        """fn of [P, N] where each process gives a row [N], N the same everywhere."""
        try:
            rows = jax.make_array_from_process_local_data(self._split, row[None])
            return np.asarray(fn(rows).addressable_data(0))
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # the latter where it failed before it was waited for
            raise lost(error) from None

    def same(self, state: PyTree, saved: Saved | None) -> tuple[PyTree, Saved | None]:
        """What process 0 begins with: the state, which is its checkpoint's if it has one, and that checkpoint.

        All processes call it.
        """
        own: dict[str, np.ndarray] = {}
        if self.leads:
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
        content = _to_npz(arrays) if self.leads else np.zeros(0, np.uint8)
        blocks, rest = self._compute(self._sum, np.array(divmod(content.size, BLOCK_BYTES), np.int32)).tolist()
        size = blocks * BLOCK_BYTES + rest
        return _from_npz(self._compute(self._sum, np.pad(content, (0, size - content.size))))

    def check_settings(self, config: Config) -> None:
        """Raises UserError in each process when not all have the same settings. All processes call it."""
        own = {name: getattr(DevicesConfig, name) for name in ("coordinator_address", "num_processes", "process_id")}
        alike = dataclasses.replace(config, devices=dataclasses.replace(config.devices, **own))
        texts = [str(found["config"]) for found in self.gather({"config": np.array(config_to_json(alike))})]
        for index, text in enumerate(texts):
            if text != texts[0]:
                differences = "; ".join(changed(config_from_json(texts[0]), config_from_json(text)))
                raise UserError(f"process {index} was started with other settings than process 0: {differences}")

    def agree(self, wishes: Wishes) -> Wishes:
        """After an update: what any process wished when it was shared; these wishes are told at the next."""
        self._wishes = Wishes(*map(max, self._wishes, wishes))
        agreed, self._agreed = self._agreed, Wishes()
        return agreed

    def tell(self, arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """`gather`, and the wishes with it. All processes call it, once an update."""
        told = self.gather({**arrays, "wishes": np.array(self._wishes)})
        self._wishes = Wishes()
        self._agreed = Wishes(*np.any([found.pop("wishes") for found in told], axis=0).tolist())
        return told


class Shared:
    """The annotator of a run of several processes: process 0's own, of which all hear.

    Args:
        annotator: process 0's; the others' is asked nothing.
        observations: names of those that the reward learns from, which travel with the captions.
    """

    def __init__(self, peers: Peers, annotator: Annotator, exchange: TrajectoryExchange, observations: Sequence[str]):
        self._peers, self._annotator, self._exchange = peers, annotator, exchange
        self._observations = observations
        self._annotations: list[Annotation] = []
        self.episodes: deque[np.ndarray] = deque()  # statistics of those that ended in any process
        names = peers.gather({"labels_of": np.array(annotator.labels_of)})
        self.labels_of = str(names[0]["labels_of"])

    def share(self, captions: CaptionBatch) -> CaptionBatch:
        """Tells the others of this process's trajectories, and gives the captions of all. All processes call it."""
        annotations = self._annotator.poll()
        episodes = [self._exchange.episodes.popleft() for _ in range(len(self._exchange.episodes))]
        told = self._peers.tell(
            {
                **_pack_texts("messages", captions.messages),
                "index": captions.index,
                **{f"observation {name}": captions.observations[name] for name in self._observations},
                **_pack_texts("items", [message for a in annotations for message in a.item]),
                "labels": np.array([a.label for a in annotations], np.int32),
                "probabilities": np.array([a.probability for a in annotations], np.float64),
                **({"episodes": np.stack(episodes)} if episodes else {}),
            }
        )
        for found in told:
            self.episodes.extend(found.get("episodes", ()))
        first = told[0]
        messages, labels = _unpack_texts("items", first), first["labels"].tolist()
        size = len(messages) // max(1, len(labels))
        items = [tuple(messages[i : i + size]) for i in range(0, len(messages), max(1, size))]
        self._annotations += map(Annotation, items, labels, first["probabilities"].tolist())
        return merge_captions(
            [
                CaptionBatch(
                    _unpack_texts("messages", found),
                    found["index"],
                    {name: found[f"observation {name}"] for name in self._observations},
                )
                for found in told
            ]
        )

    def submit(self, items: Sequence[Item]) -> None:
        self._annotator.submit(items)

    def poll(self) -> list[Annotation]:
        """Those that all have heard of."""
        annotations, self._annotations = self._annotations, []
        return annotations

    def stats(self) -> Mapping[str, float | str]:
        return self._annotator.stats()

    def answers(self) -> tuple[Answer, ...]:
        return self._annotator.answers()

    def close(self) -> None:
        self._annotator.close()


def lost(error: BaseException) -> PeerLost:
    """What a collective that failed means."""
    return PeerLost(
        f"another process of this run is gone ({_reason(error)}): this one ends too; start all of them again, or "
        "another number, to go on from the newest checkpoint"
    )


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _pack_texts(name: str, texts: Sequence[bytes]) -> dict[str, np.ndarray]:
    return {
        name: np.frombuffer(b"".join(texts), np.uint8),
        f"{name} lengths": np.array([len(text) for text in texts], np.int32),
    }


def _unpack_texts(name: str, arrays: Mapping[str, np.ndarray]) -> list[bytes]:
    joined, ends = arrays[name].tobytes(), np.cumsum(arrays[f"{name} lengths"])
    return [joined[end - length : end] for end, length in zip(ends.tolist(), arrays[f"{name} lengths"].tolist())]


def _to_npz(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return np.frombuffer(file.getvalue(), np.uint8)


def _from_npz(content: np.ndarray) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content.tobytes()), allow_pickle=False) as arrays:
        return dict(arrays)
