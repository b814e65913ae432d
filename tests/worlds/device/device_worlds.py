"""Device worlds of a small environment."""

from collections.abc import Collection, Mapping
from typing import Any

from oni_jax.learner.update import TrainState
from oni_jax.settings.config import Config
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import GoalModelFn
from oni_jax.worlds.base import Collected
from oni_jax.worlds.device.device_world import DeviceWorld
from tests.support import signals_plugin
from tests.worlds import made

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
    goal_model: GoalModelFn | None = None,
) -> tuple[DeviceWorld, made.Task, TrainState]:
    """See `made.make_world`."""
    world, task, state = made.make_world(config, num_devices, observations, read, goal_model)
    assert isinstance(world, DeviceWorld)
    return world, task, state


def collect(world: DeviceWorld, number: int) -> list[Collected]:
    """The next batches."""
    found = [world.next(0, 1.0) for _ in range(number)]
    assert all(found)
    return found  # type: ignore
