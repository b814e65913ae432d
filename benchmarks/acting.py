"""Acting without a network: real actors, ring, inference server and batches, with a policy that costs nothing."""

import functools
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from benchmarks.harness import ROOT_ENV
from oni_jax.envs.base import StepOutput, VectorEnv, record_dtype
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.learner.loop import initial_key
from oni_jax.networks.policy import PolicyOutput
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values
from oni_jax.types import Array, EnvSpec, PyTree
from oni_jax.worlds.actors.actor_world import Acting, ActorWorld
from oni_jax.worlds.base import World


class EmptyVectorEnv(VectorEnv):
    """An environment with constant observations, and endless episodes."""

    num_restarts = 0

    def __init__(self, spec: EnvSpec, num_envs: int, first_index: int):
        self.spec, self.num_envs = spec, num_envs
        self._records = np.ones(num_envs, np.uint8).repeat(record_dtype(spec).itemsize).view(record_dtype(spec))
        for name in ("is_first", "terminated", "truncated"):
            self._records[name] = False

    def reset(self, out: StepOutput) -> None:
        out.records[:] = self._records
        out.records["is_first"] = True

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        out.records[:] = self._records


class EmptyPolicy:
    """A policy without a network: all actions are equally likely."""

    encoder = None

    def __init__(self, spec: EnvSpec):
        self._num_actions = spec.num_actions

    def initial_state(self, batch_size: int) -> PyTree:
        return jnp.zeros((batch_size, 1))

    def apply(self, params: PyTree, observations: PyTree, core_state: PyTree, is_first: Array) -> tuple:
        return PolicyOutput(jnp.zeros((*is_first.shape, self._num_actions)), jnp.zeros(is_first.shape)), core_state


def config_with(num_games: int, batch_size: int, num_processes: int) -> Config:
    """Returns the default settings with so many games, evenly in so many processes."""
    values = {"num_workers": num_processes, "num_envs_per_worker": num_games // num_processes, "batch_size": batch_size}
    return with_values(Config(), {"root_env": ROOT_ENV, **values})


def measure_acting(config: Config, empty_games: bool, warm_up_secs: float, secs: float) -> dict[str, Any]:
    """Measures environment steps a second in batches on the host, CPU time per step of all processes and of the
    inference thread, and fractions of waiting.

    Args:
      config: environment, actors and batch size.
      empty_games: replaces the environment by EmptyVectorEnv.
      warm_up_secs: before the clock starts.
      secs: timed.
    """
    spec = env_spec(config.env)
    make_env: Callable = functools.partial(make_vector_env, config.env, seed=config.run.seed)
    if empty_games:
        make_env = functools.partial(EmptyVectorEnv, spec)
    policy: Any = EmptyPolicy(spec)
    try:
        with closing(
            ActorWorld(config, spec, make_env, Acting(policy, {}, 0, initial_key(config.run.seed), (None,)))
        ) as world:
            world.start()
            _take_batches(world, warm_up_secs)
            acted = world.gauges()["acted_steps"]  # also resets the fractions of waiting
            used, used_by_all, start = threads_secs(world), cpu_secs(), time.perf_counter()
            num_batches = _take_batches(world, secs)
            elapsed = time.perf_counter() - start
            used, used_by_all = threads_secs(world) - used, cpu_secs() - used_by_all
            gauges = world.gauges()
            num_steps = max(1, gauges["acted_steps"] - acted)
            return {
                "env_steps_per_sec": num_batches * config.learner.batch_size / elapsed,
                "cpu_secs_per_step": used_by_all / num_steps,
                "inference_thread_cpu_secs_per_step": used / num_steps,
                **{name: gauges[name] for name in ("inference_waits_fraction", "games_paused_fraction")},
            }
    finally:
        jax.clear_caches()


def threads_secs(world: ActorWorld) -> float:
    """Returns the CPU time of a world's inference threads."""
    clocks = [time.pthread_getcpuclockid(cast(int, thread.ident)) for thread in world.threads]
    return sum(map(time.clock_gettime, clocks))


def cpu_secs() -> float:
    """Returns the CPU time of this process and its children."""
    process = psutil.Process()
    return sum(sum(found.cpu_times()[:2]) for found in (process, *process.children(recursive=True)))


def _take_batches(world: World, secs: float) -> int:
    """Takes batches for `secs`, one at least. Returns their number."""
    deadline, count = time.perf_counter() + secs, 0
    while time.perf_counter() < deadline or not count:
        if world.next(0, 0.2) is not None:
            world.begin_update()
            count += 1
    return count
