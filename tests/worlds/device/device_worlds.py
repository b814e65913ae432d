"""Device worlds of a small environment."""

from collections.abc import Collection, Mapping
from typing import Any

import jax

from oni_jax.envs.registry import env_spec
from oni_jax.learner.guidance import Guidance
from oni_jax.learner.peers.peers import SINGLE_PROCESS
from oni_jax.learner.update import TrainState
from oni_jax.networks.policy import init_params
from oni_jax.parallel import Replicas
from oni_jax.runs.pretrained import make_actor
from oni_jax.settings.config import Config
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.training import build
from oni_jax.training.loop import Progress
from oni_jax.types import EVERYTHING
from oni_jax.worlds.base import Collected
from oni_jax.worlds.device.device_world import DeviceWorld
from tests.support import signals_plugin

N, T, LIMIT = 8, 5, 6
CONFIG = Config(
    env=EnvConfig(root_env=signals_plugin.NAME, max_episode_steps=LIMIT),
    network=NetworkConfig(encoder_custom="mlp_encoder", hidden_size=8),
    learner=LearnerConfig(batch_size=N * T, rollout=T, recurrence=T),
    reward=RewardConfig(llm_reward_type="none"),
)


def make_world(
    config: Config = CONFIG,
    num_devices: int = 1,
    observations: Collection[str] = ("signal",),
    read: Mapping[str, Any] = {},
) -> tuple[DeviceWorld, build.Task, TrainState]:
    """A world that shows these observations, final ones too; with its task and a training state.

    read: what else of `EnvSpec` rewards read; all when left out.
    """
    task = build.build_task(config)
    shown = dict.fromkeys((*task.spec.observations, *observations))
    spec = env_spec(config.env, list(shown))._replace(
        final_observations=tuple(name for name in observations if name != EVERYTHING), **read
    )
    task = task._replace(spec=spec)
    replicas = Replicas(jax.devices()[:num_devices])
    assert replicas.num_local == num_devices
    state = TrainState(init_params(task.policy, task.spec, jax.random.key(1)), (), (), build.initial_key(0))
    state = replicas.put(state)
    actor = make_actor(config, task.policy, replicas)
    acted = state._replace(params=Guidance(params_of=actor.params_of).acting_params(state.params))
    world = build.build_world(config, task, actor, acted, Progress(), jax.devices()[:1], SINGLE_PROCESS, replicas)
    assert isinstance(world, DeviceWorld)
    return world, task, state


def collect(world: DeviceWorld, number: int) -> list[Collected]:
    """The next batches."""
    found = [world.next(0, 1.0) for _ in range(number)]
    assert all(found)
    return found  # type: ignore
