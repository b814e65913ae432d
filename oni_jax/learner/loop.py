"""The learner: takes batches, updates, publishes. One thread, the one that holds the training state."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.host.runtime import WaitClock
from oni_jax.learner.guidance import Guidance
from oni_jax.learner.intrinsic_returns import IntrinsicReturns
from oni_jax.learner.peers.contributions import Contribution
from oni_jax.learner.peers.peers import SINGLE_PROCESS, Peers, SingleProcess
from oni_jax.learner.update import Batch, TrainState, Update
from oni_jax.parallel import local, local_rows
from oni_jax.rewards.terms import RewardSum
from oni_jax.runs.message_counts import MessageCounts
from oni_jax.types import Annotation, Answer, Array, Query
from oni_jax.worlds.base import Collected, Episodes, World, WorldReport

BATCH_WAIT_SECS = 0.2

Scalars = Mapping[str, float]


class Annotator(Protocol):
    """The learner's interface to the annotation service. Only `close` blocks: it waits for queries in flight."""

    labels_of: str = ""  # models and digests of the prompts; "" where nothing is asked

    def submit(self, queries: Sequence[Query]) -> None:
        pass

    def room(self) -> int:
        """Returns how many queries it has room for."""
        return 0

    def poll(self) -> list[Annotation]:
        return []

    def stats(self) -> Mapping[str, float | str]:
        return {}

    def answers(self) -> tuple[Answer, ...]:
        return ()

    def close(self) -> None:
        pass


class NoAnnotator(Annotator):
    """The annotator of rewards that ask nothing."""


class Step(NamedTuple):
    """The compiled functions of an update."""

    pack: Callable[[Collected], Batch]  # puts a batch on the devices
    update: Update


class Taken(NamedTuple):
    """A batch taken from the world, with data that its update does not need."""

    batch: Batch
    episodes: Episodes | None = None


class Learner:
    """Makes updates, one a `step`. Between updates, `state`, `version` and `reward` are consistent and can be saved.

    `step` donates `state`'s buffers; copy what you keep, but for the parameters and the reward's state.

    Args:
        step: the compiled functions of an update.
        reward: learns from the annotations, and returns the queries.
        world: the source of batches, already running.
        annotator: of this process.
        state: on the learner's devices.
        version: number of updates that led to the state.
        peers: the processes of the run.
        guidance: decides when the policy learns, and what the world acts with.
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
        guidance: Guidance | None = None,
    ):
        self._compiled, self.reward, self._world, self._annotator = step, reward, world, annotator
        self.peers, self.guidance = peers, guidance or Guidance()
        self.state, self.version = state, version
        # A CPU never idles: the environments use what the learner leaves.
        # Several processes make the same gradient steps, however long each waits for batches.
        self._device_idles = jax.default_backend() != "cpu" and peers.num == 1
        self._prefetches = world.runs_ahead and peers.num == 1
        self.message_counts = MessageCounts()
        self.reports: deque[WorldReport] = deque()  # reports of all processes' worlds, until the caller removes them
        self.distributions: Mapping[str, Array] = {}  # distributions of the last update, on this process's first device
        self.trajectory_wait, self.lookup_wait = WaitClock(), WaitClock()
        # Returns of all processes, until the caller removes them; K = 0 without an intrinsic reward.
        self.intrinsic_returns: deque[np.ndarray] = deque()
        self.running_returns = IntrinsicReturns(reward.paying)
        self._next: Taken | None = None
        self._answered: set[bytes] = set()  # captions with an answer, as queries say them

    def unanswered_fraction(self) -> float:
        """Returns the fraction of all steps so far whose caption has no answer; of the empty caption none is needed.

        0 where answers are about several captions each.
        """
        if not self.reward.asks_about_captions:
            return 0.0
        counts, asked_as, answered = self.message_counts.counts(), self.reward.asked_as, self._answered
        of_none = sum(n for caption, n in counts.items() if caption and asked_as(caption) not in answered)
        return of_none / max(1, sum(counts.values()))

    def step(self) -> Scalars | None:
        """Makes an update, published unless it is bad. Returns metrics; None without a batch in BATCH_WAIT_SECS."""
        if self._next is None:
            self._next = self._wait_for_batch()
            if self._next is None:
                return None
        # Both start from the same reward state: on a CPU they run concurrently, each on cores the other leaves idle.
        trained = self.reward.train_step(self.state.reward_state) if self.reward.steps_due() else None
        # Assigned at once: the old state's buffers are donated, and what follows may raise.
        self._world.begin_update()
        batch, episodes = self._next
        params, waits = self.state.params, self.guidance.waits
        opt_state = jax.tree.map(jnp.copy, self.state.opt_state) if waits else ()
        self.state, metrics = self._compiled.update(self.state, batch, np.int32(self.version))
        if trained is not None:
            self.state = self.state._replace(reward_state=self.reward.merge(self.state.reward_state, trained))
        self._next = self._take_batch(0.0) if self._prefetches else None  # while the device computes
        metrics = dict(metrics)
        each_reward = metrics.pop("each_intrinsic_reward", None)
        self.distributions = {name: local(x) for name, x in metrics.items() if np.ndim(x)}
        metrics = {name: x for name, x in metrics.items() if name not in self.distributions}
        # Blocks before publishing: inference on parameters still being computed would block as long.
        self.state = jax.block_until_ready(self.state)
        fetched = jax.device_get({"loss": metrics, "reward": dict(self.reward.metrics(self.state.reward_state))})
        if episodes and self.running_returns.labels:
            rewards = local_rows(each_reward, axis=2)
            known = rewards if self.reward.is_known(self.state.reward_state) else np.full_like(rewards, np.nan)
            self.running_returns.add(known, episodes)
        bad = bool(fetched["loss"]["bad_update"])
        is_learnt = self.guidance.take(0.0 if bad else float(fetched["loss"]["reward_mean"]))
        if waits and not is_learnt:
            self.state = self.state._replace(params=params, opt_state=opt_state)
        if not bad:
            self.version += is_learnt
            self._world.publish(self.version, self.guidance.acting_params(self.state.params))
        return {f"{part}/{name}": float(value) for part, values in fetched.items() for name, value in values.items()}

    def _wait_for_batch(self) -> Taken | None:
        """Waits for the next batch; an accelerator makes the gradient steps of the reward that are due meanwhile."""
        while self._device_idles and self.reward.steps_due():
            if (taken := self._take_batch(0.0)) is not None:
                return taken
            with self.trajectory_wait.waiting():  # the learner would wait without these steps, too
                reward_state = jax.block_until_ready(self.reward.train_step(self.state.reward_state))
            self.state = self.state._replace(reward_state=reward_state)
        return self._take_batch(BATCH_WAIT_SECS)

    def _take_batch(self, timeout_secs: float) -> Taken | None:
        """Returns the next batch with its look-ups, after submitting the reward's queries."""
        with self.trajectory_wait.waiting():
            self._world.suggest_by(self.reward.acting(self.state.reward_state))
            collected = self._world.next(self.version, timeout_secs)
            if collected is None:
                return None
            contribution = Contribution(
                self.reward.read(collected.captions, observed=True),
                self._annotator.poll(),
                self._world.report(),
                self.running_returns.take(),
            )
            captions, annotations, report, returns = self.peers.all_gather(contribution)
        self.reports.append(report)
        self.intrinsic_returns.extend(returns)
        self.message_counts.add(captions.before)
        self._answered.update(item[0] for item, answer, _ in annotations if answer is not None and len(item) == 1)
        self.reward.ingest(annotations)
        self.reward.observe(captions)
        self._world.suggest(self.reward.suggested())
        self._annotator.submit(self.reward.queries(self._annotator.room()))
        with self.lookup_wait.waiting():
            return Taken(self._compiled.pack(collected), collected.episodes)


def initial_key(seed: int) -> Array:
    """Returns a raw key [2] uint32, which a checkpoint can hold."""
    return jnp.asarray(jax.random.key_data(jax.random.key(seed)))
