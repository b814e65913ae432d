"""The learner: takes batches, updates, publishes. One thread, the one that owns the training state."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.learner.batches import BatchAssembler, PackedBatch
from oni_jax.learner.message_counts import MessageCounts
from oni_jax.learner.shares import pack_shares
from oni_jax.learner.update import TrainState, Update, jit_update
from oni_jax.parallel import Replicas, local
from oni_jax.rewards.base import Item, Reward
from oni_jax.runtime import WaitClock
from oni_jax.types import Annotation, Answer, Array, CaptionBatch

BATCH_WAIT_SECS = 0.2

Metrics = Mapping[str, float]


class Annotator(Protocol):
    """The learner's side of the annotation service. No call blocks, but `close`, which waits for answers under way."""

    labels_of: str  # model and digest of the prompt; "" where nothing is asked

    def submit(self, items: Sequence[Item]) -> None: ...

    def poll(self) -> list[Annotation]: ...

    def stats(self) -> Mapping[str, float | str]: ...

    def answers(self) -> tuple[Answer, ...]: ...

    def close(self) -> None: ...


class NoAnnotator:
    """For rewards that ask nothing."""

    labels_of = ""

    def submit(self, items: Sequence[Item]) -> None:
        pass

    def poll(self) -> list[Annotation]:
        return []

    def stats(self) -> Mapping[str, float | str]:
        return {}

    def answers(self) -> tuple[Answer, ...]:
        return ()

    def close(self) -> None:
        pass


class Learner:
    """`step` makes one update. Between updates, `state`, `version` and `reward` are consistent and can be saved.

    The next `step` overwrites `state`: what is to outlive it has to be copied, but for the parameters and the reward's.
    """

    def __init__(
        self,
        update: Update,
        reward: Reward,
        assembler: BatchAssembler,
        publish: Callable[[int, object], None],
        annotator: Annotator,
        state: TrainState,
        version: int = 0,
        prefetch: bool = True,
        replicas: Replicas | None = None,
        share: Callable[[CaptionBatch], CaptionBatch] | None = None,
    ):
        """Args:
        prefetch: the next batch is taken while the device computes; without it none waits between updates.
        replicas: the devices that learn, on which the state is; all there are when left out.
        share: gives the captions of all processes for this one's; called once a batch, by each of them.
        """
        self._replicas = replicas or Replicas()
        self._update = jit_update(update, self._replicas.sharding())
        self._reward, self._assembler, self._annotator = reward, assembler, annotator
        self._publish = publish
        self.state, self.version = state, version
        # A CPU never idles: what the learner leaves of it, the games take.
        # Several processes make the same steps, whoever waits for games.
        self._device_idles = jax.default_backend() != "cpu" and share is None
        self._share = share or (lambda captions: captions)
        self.message_counts = MessageCounts()
        self.distributions: Mapping[str, Array] = {}  # of the last update, on the first device
        self.trajectory_wait = WaitClock()
        self._prefetch = prefetch
        self._next: PackedBatch | None = None

    def step(self) -> Metrics | None:
        """Updates once, and publishes unless the update was bad. None when no batch was complete in BATCH_WAIT_SECS."""
        if self._next is None:
            self._next = self._wait_for_batch()
            if self._next is None:
                self._reward.ingest(self._annotator.poll())
                return None
        # Both start from the same reward: on a CPU they run side by side, each in what the other leaves of the cores.
        trained = self._reward.train_step(self.state.reward_state) if self._reward.steps_due() else None
        # Kept at once: the old state is gone, and what follows may raise.
        self._assembler.begin_update()
        self.state, metrics = self._update(self.state, self._next, np.int32(self.version))
        if trained is not None:
            self.state = self.state._replace(reward_state=self._reward.merge(self.state.reward_state, trained))
        self._next = self._take_batch(0.0) if self._prefetch else None  # while the device computes
        self.distributions = {name: local(x) for name, x in metrics.items() if np.ndim(x)}
        metrics = {name: x for name, x in metrics.items() if name not in self.distributions}
        # Waited for before it is published: inference on parameters still being computed would wait as long.
        self.state = jax.block_until_ready(self.state)
        fetched = jax.device_get({"loss": metrics, "reward": dict(self._reward.metrics())})
        if not fetched["loss"]["bad_update"]:
            self.version += 1
            self._publish(self.version, self.state.params)
        return {f"{part}/{name}": float(value) for part, values in fetched.items() for name, value in values.items()}

    def _wait_for_batch(self) -> PackedBatch | None:
        """The next batch; an accelerator that would idle meanwhile makes the reward's gradient steps that are due."""
        while self._device_idles and self._reward.steps_due():
            if (batch := self._take_batch(0.0)) is not None:
                return batch
            reward_state = jax.block_until_ready(self._reward.train_step(self.state.reward_state))
            self.state = self.state._replace(reward_state=reward_state)
        with self.trajectory_wait.waiting():
            return self._take_batch(BATCH_WAIT_SECS)

    def _take_batch(self, timeout_secs: float) -> PackedBatch | None:
        """The next batch with its look-ups; what it holds that is new goes to the annotator."""
        batch = self._assembler.next(self.version, timeout_secs)
        if batch is None:
            return None
        captions = self._share(batch.captions)
        self.message_counts.add(captions)
        self._reward.ingest(self._annotator.poll())
        self._annotator.submit(self._reward.requests(captions))
        return pack_shares(batch, self._reward, self._replicas)


def initial_key(seed: int) -> Array:
    """A raw key [2] uint32, which a checkpoint can hold."""
    return jnp.asarray(jax.random.key_data(jax.random.key(seed)))
