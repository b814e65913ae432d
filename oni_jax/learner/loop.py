"""The learner: takes batches, updates, publishes. One thread, the one that owns the training state."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.distributed.contributions import Contribution
from oni_jax.distributed.peers import SINGLE_PROCESS, Peers, SingleProcess
from oni_jax.learner.message_counts import MessageCounts
from oni_jax.learner.update import Batch, TrainState, Update
from oni_jax.parallel import local
from oni_jax.rewards.terms import RewardSum
from oni_jax.runtime import WaitClock
from oni_jax.types import Annotation, Answer, Array, Query
from oni_jax.worlds.base import Collected, World, WorldReport

BATCH_WAIT_SECS = 0.2

Scalars = Mapping[str, float]


class Annotator(Protocol):
    """The learner's side of the annotation service. No call blocks, but `close`, which waits for answers under way."""

    labels_of: str = ""  # models and digests of the prompts; "" where nothing is asked

    def submit(self, queries: Sequence[Query]) -> None:
        pass

    def poll(self) -> list[Annotation]:
        return []

    def stats(self) -> Mapping[str, float | str]:
        return {}

    def answers(self) -> tuple[Answer, ...]:
        return ()

    def close(self) -> None:
        pass


class NoAnnotator(Annotator):
    """For rewards that ask nothing."""


class Step(NamedTuple):
    """What an update is made of, compiled."""

    pack: Callable[[Collected], Batch]  # what crosses to the devices
    update: Update


class Learner:
    """`step` makes one update. Between updates, `state`, `version` and `reward` are consistent and can be saved.

    `step` donates `state`'s buffers; copy what you keep, but for the parameters and the reward's state.

    Args:
        step: of the training.
        reward: learns from what the annotator says, and says what to ask.
        world: where batches come from; it runs.
        annotator: of this process.
        state: on the devices that learn.
        version: number of updates behind the state.
        peers: the processes of the run.
    """

    def __init__(
        self,
        step: Step,
        reward: RewardSum,
        world: World,
        annotator: Annotator,
        state: TrainState,
        version: int = 0,
        peers: SingleProcess | Peers = SINGLE_PROCESS,
    ):
        self._compiled, self.reward, self._world, self._annotator = step, reward, world, annotator
        self.peers = peers
        self.state, self.version = state, version
        # A CPU never idles: what the learner leaves of it, the games take.
        # Several processes make the same steps, whoever waits for games.
        self._device_idles = jax.default_backend() != "cpu" and peers.num == 1
        self._prefetches = world.runs_ahead and peers.num == 1
        self.message_counts = MessageCounts()
        self.reports: deque[WorldReport] = deque()  # of all processes' worlds; taken by whoever counts
        self.distributions: Mapping[str, Array] = {}  # of the last update, on the first device
        self.trajectory_wait = WaitClock()
        self._next: Batch | None = None

    def step(self) -> Scalars | None:
        """Updates once, and publishes unless the update was bad. None when no batch was complete in BATCH_WAIT_SECS."""
        if self._next is None:
            self._next = self._wait_for_batch()
            if self._next is None:
                return None
        # Both start from the same reward: on a CPU they run side by side, each in what the other leaves of the cores.
        trained = self.reward.train_step(self.state.reward_state) if self.reward.steps_due() else None
        # Kept at once: the old state is gone, and what follows may raise.
        self._world.begin_update()
        self.state, metrics = self._compiled.update(self.state, self._next, np.int32(self.version))
        if trained is not None:
            self.state = self.state._replace(reward_state=self.reward.merge(self.state.reward_state, trained))
        self._next = self._take_batch(0.0) if self._prefetches else None  # while the device computes
        self.distributions = {name: local(x) for name, x in metrics.items() if np.ndim(x)}
        metrics = {name: x for name, x in metrics.items() if name not in self.distributions}
        # Waited for before it is published: inference on parameters still being computed would wait as long.
        self.state = jax.block_until_ready(self.state)
        fetched = jax.device_get({"loss": metrics, "reward": dict(self.reward.metrics())})
        if not fetched["loss"]["bad_update"]:
            self.version += 1
            self._world.publish(self.version, self.state.params)
        return {f"{part}/{name}": float(value) for part, values in fetched.items() for name, value in values.items()}

    def _wait_for_batch(self) -> Batch | None:
        """The next batch; an accelerator that would idle meanwhile makes the reward's gradient steps that are due."""
        while self._device_idles and self.reward.steps_due():
            if (batch := self._take_batch(0.0)) is not None:
                return batch
            reward_state = jax.block_until_ready(self.reward.train_step(self.state.reward_state))
            self.state = self.state._replace(reward_state=reward_state)
        with self.trajectory_wait.waiting():
            return self._take_batch(BATCH_WAIT_SECS)

    def _take_batch(self, timeout_secs: float) -> Batch | None:
        """The next batch with its look-ups; what it holds that is new goes to the annotator."""
        collected = self._world.next(self.version, timeout_secs)
        if collected is None:
            return None
        told = Contribution(self.reward.read(collected.captions), self._annotator.poll(), self._world.report())
        captions, annotations, report = self.peers.all_gather(told)
        self.reports.append(report)
        self.message_counts.add(captions.own)
        self.reward.ingest(annotations)
        self.reward.observe(captions)
        self._annotator.submit(self.reward.queries())
        return self._compiled.pack(collected)


def initial_key(seed: int) -> Array:
    """A raw key [2] uint32, which a checkpoint can hold."""
    return jnp.asarray(jax.random.key_data(jax.random.key(seed)))
