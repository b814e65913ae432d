"""The usual world: environments in actor processes, served by inference threads of this process."""

import functools
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from oni_jax.envs.display import Terminal
from oni_jax.host.restarts import Restarts
from oni_jax.host.runtime import BackgroundThread
from oni_jax.networks.policy import ActorCritic, with_tables
from oni_jax.parallel import local
from oni_jax.settings.config import Config
from oni_jax.settings.learning import LearnerConfig
from oni_jax.settings.worlds import ActorConfig
from oni_jax.types import Array, EnvSpec, PyTree
from oni_jax.worlds.actors.batches import PAYLOAD_SHARDING, BatchAssembler, make_unpack_fn
from oni_jax.worlds.actors.exchange import TrajectoryExchange
from oni_jax.worlds.actors.group import MakeEnv
from oni_jax.worlds.actors.parameters import ParameterStore
from oni_jax.worlds.actors.parts import Part, split
from oni_jax.worlds.actors.policy_step import join_tables, make_policy_steps
from oni_jax.worlds.actors.pool import ActorPool, num_answerers, num_workers
from oni_jax.worlds.actors.process_pool import LIMITED_BY, ProcessPool
from oni_jax.worlds.actors.ring import RingShape, TrajectoryRing
from oni_jax.worlds.actors.serial_pool import SerialPool
from oni_jax.worlds.actors.server import InferenceServer
from oni_jax.worlds.base import Collected, World, WorldReport


class Acting(NamedTuple):
    """Policy, parameters and devices that a world starts with."""

    policy: ActorCritic
    params: PyTree
    version: int  # number of updates that made them
    key: Array  # [2] uint32; actions are drawn with it
    devices: Sequence[Any]  # devices that run inference; None stands for where the parameters are


class ActorWorld(World):
    """Starts the actor processes when it is made; from `start` on a thread serves each part of them.

    Args:
        config: the whole run's, but with the batch size of this process.
        spec: spec of the environments.
        make_env: makes a group of them.
        acting: the initial policy.
    """

    payload_sharding = PAYLOAD_SHARDING
    runs_ahead = True

    def __init__(self, config: Config, spec: EnvSpec, make_env: MakeEnv, acting: Acting):
        actors, self.spec, self._is_closed = config.actors, spec, False
        self._num_workers = num_workers(actors)
        self._tabulate = jax.jit(functools.partial(with_tables, acting.policy))
        self._parameters = ParameterStore(acting.version, self._tabulate(local(acting.params)), acting.devices)
        ring = build_ring(actors, config.learner, spec)
        num_groups, num_devices = ring.shape.num_groups, len(self._parameters.devices)
        parts = split(self._num_workers, num_groups, num_devices, num_answerers(actors))
        self._pools = _make_pools(actors, make_env, ring, parts)
        self._exchange = TrajectoryExchange(ring, max_waiting(actors, config.learner), self._wake)
        try:
            for pool in self._pools:
                pool.start()
            self._servers = self._make_servers(acting, parts)
        except BaseException:
            self._close_pools()
            raise
        self._assembler = BatchAssembler(self._exchange, config.learner, self._initial_core_states)
        self.unpack = make_unpack_fn(spec, ring.records.dtype, self._exchange.policy_records.dtype)
        threads = f", answered by {len(parts)} threads" if len(parts) > 1 else ""
        self.num_envs = num_groups * ring.shape.group_size
        self.description = f"{self.num_envs} environments in {num_groups} groups{threads}"
        self.threads = [BackgroundThread("inference", server.run) for server in self._servers]
        self._num_restarts = 0
        self._noted: set[str] = set()
        self._busy_secs, self._busy_since = 0.0, time.perf_counter()

    def _make_servers(self, acting: Acting, parts: Sequence[Part]) -> list[InferenceServer]:
        ring = self._exchange.ring
        steps = make_policy_steps(acting.policy.apply, ring.spec, ring.records.dtype, ring.shape.group_size)
        shared = self._parameters, acting.key
        return [
            InferenceServer(acting.policy, self._exchange, pool, *shared, part, steps)
            for pool, part in zip(self._pools, parts, strict=True)
        ]

    def _initial_core_states(self, rows: np.ndarray, tables: np.ndarray) -> PyTree:
        return join_tables([found for server in self._servers for found in server.initial_rows(rows)], tables)

    def _wake(self) -> None:
        for pool in self._pools:
            pool.wake()

    def start(self) -> None:
        for server in self._servers:
            server.warm_up()
        for thread in self.threads:
            thread.start()

    def publish(self, version: int, params: PyTree) -> None:
        self._parameters.publish(version, self._tabulate(local(params)))

    def next(self, version: int, timeout_secs: float) -> Collected | None:
        for thread in self.threads:
            thread.check()
        return self._assembler.next(version, timeout_secs)

    def begin_update(self) -> None:
        self._assembler.begin_update()

    def report(self) -> WorldReport:
        exchange = self._exchange
        notes = [note for note in exchange.ring.notes() if note not in self._noted]
        self._noted.update(notes)
        before, self._num_restarts = self._num_restarts, int(np.sum(exchange.ring.env_restarts))
        episodes = [exchange.episodes.popleft() for _ in range(len(exchange.episodes))]
        failures = [exchange.failures.popleft() for _ in range(len(exchange.failures))]
        return WorldReport(episodes, failures, self._num_restarts - before, notes)

    def gauges(self) -> Mapping[str, float]:
        exchange, servers = self._exchange, self._servers
        return {
            "acted_steps": sum(server.num_acted_steps for server in servers),
            "inference_calls": sum(server.num_calls for server in servers),
            "inference_waits_fraction": statistics.fmean(server.actor_wait.fraction() for server in servers),
            "games_paused_fraction": statistics.fmean(server.learner_wait.fraction() for server in servers),
            "actors_wait_fraction": self._actors_wait_fraction(),
            "captions_seen": len(exchange.captions),
            "ring_slots_full": exchange.num_full,
            "ring_slots_free": exchange.num_free,
            "groups_paused": sum(server.num_paused for server in servers),
        }

    def terminal(self) -> Terminal | None:
        return self._exchange.ring.terminal.take()

    def _actors_wait_fraction(self) -> float:
        """Returns the fraction of the actor processes' time since the last call that was not spent stepping."""
        busy, now = float(np.sum(self._exchange.ring.busy_secs)), time.perf_counter()
        fraction = (busy - self._busy_secs) / max(1e-9, (now - self._busy_since) * self._num_workers)
        self._busy_secs, self._busy_since = busy, now
        return max(0.0, 1.0 - fraction)

    def stop(self) -> None:
        for server in self._servers:
            server.stop()
        for thread in self.threads:
            if thread.is_alive():
                thread.join()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.stop()
            self._close_pools()

    def _close_pools(self) -> None:
        for pool in self._pools:
            pool.close()


def _make_pools(
    actors: ActorConfig, make_env: MakeEnv, ring: TrajectoryRing, parts: Sequence[Part]
) -> Sequence[ActorPool]:
    if actors.actor_pool == "serial":
        return [SerialPool(make_env, ring)]
    limits = num_workers(actors), actors.max_actor_restarts
    restarts = Restarts(actors.max_actor_restarts, LIMITED_BY)
    return [ProcessPool(make_env, ring, *limits, part.workers, restarts) for part in parts]


def max_waiting(actors: ActorConfig, learner: LearnerConfig) -> int:
    """Returns how many complete trajectories may be pending: at least a group's, else the learner would wait more."""
    return max(_group_size(actors), learner.num_batches_to_accumulate * learner.batch_size // learner.rollout)


def _group_size(actors: ActorConfig) -> int:
    return actors.num_envs_per_worker // actors.worker_num_splits


def build_ring(actors: ActorConfig, learner: LearnerConfig, spec: EnvSpec) -> TrajectoryRing:
    """Builds a ring in which every group has a slot to fill until `max_waiting` trajectories are pending."""
    num_groups, num_envs = num_workers(actors) * actors.worker_num_splits, _group_size(actors)
    num_waiting = math.ceil(max_waiting(actors, learner) / num_envs)
    num_slots = num_groups + num_waiting + 1  # the one that the learner is reading
    return TrajectoryRing(spec, RingShape(num_groups, num_envs, num_slots, learner.rollout))
