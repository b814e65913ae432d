"""Worlds of small environments, as training builds them, and the table of those that `test_conformance` tests."""

import dataclasses
import multiprocessing
from collections.abc import Callable, Collection, Mapping
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from oni_jax.envs.display import Canvas, Terminal
from oni_jax.envs.registry import env_spec, register_environment
from oni_jax.envs.small_env import SmallVectorEnv, small_environment
from oni_jax.host.runtime import ChildError
from oni_jax.learner.guidance import Guidance
from oni_jax.learner.loop import initial_key
from oni_jax.learner.peers.peers import SINGLE_PROCESS
from oni_jax.learner.update import TrainState
from oni_jax.networks.policy import ActorCritic, init_params, make_policy
from oni_jax.parallel import Replicas
from oni_jax.runs.plan import Devices, Plan
from oni_jax.runs.pretrained import make_actor
from oni_jax.settings.config import Config
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.worlds import ActorConfig, EnvConfig, GoalConfig
from oni_jax.training.loop import Progress
from oni_jax.training.parts import build_world
from oni_jax.types import EVERYTHING, EnvSpec, GoalModelFn
from oni_jax.worlds.actors.actor_world import ActorWorld
from oni_jax.worlds.actors.lockstep import LockstepWorld
from oni_jax.worlds.base import World
from oni_jax.worlds.device.device_world import DeviceWorld
from tests.envs.device.signals_env import SignalsEnv
from tests.support import signals_plugin


class Task(NamedTuple):
    """A world's environment, and the policy that acts in it."""

    spec: EnvSpec
    policy: ActorCritic


class Made(NamedTuple):
    """A world, what it plays, and the training state whose policy acts in it."""

    world: World
    task: Task
    state: TrainState


def make_world(
    config: Config,
    num_devices: int = 1,
    observations: Collection[str] = (),
    read: Mapping[str, Any] = {},
    goal_model: GoalModelFn | None = None,
) -> Made:
    """A world that shows these observations, final ones too.

    Args:
        config: settings of the run.
        num_devices: number of learning devices.
        observations: names.
        read: other parts of `EnvSpec` that rewards read; all when left out.
        goal_model: a reward's.
    """
    replicas = Replicas(jax.devices()[:num_devices])
    plan = Plan(config, devices=Devices(jax.devices()[:num_devices], jax.devices()[:1]))
    shown = dict.fromkeys((*plan.world_spec.observations, *observations))
    spec = env_spec(config.env, list(shown))._replace(
        final_observations=tuple(name for name in observations if name != EVERYTHING), **read
    )
    task = Task(spec, make_policy(config.network, plan.policy_spec))
    assert replicas.num_local == num_devices
    params = init_params(task.policy, task.spec, jax.random.key(1))
    state = TrainState(params, (), (), initial_key(config.run.seed))
    state = replicas.put(state)
    actor = make_actor(config, task.policy, replicas)
    acted = state._replace(params=Guidance(params_of=actor.params_of).acting_params(state.params))
    world = build_world(plan, spec, actor, acted, Progress(), SINGLE_PROCESS, replicas, goal_model)
    return Made(world, task, state)


class HostSignals(SmallVectorEnv):
    """`SignalsEnv` in NumPy, with all that an environment of the host may have. Each group had to replace one."""

    spec = SignalsEnv.spec._replace(has_events=False, episode_stats=("return", "length"), goals=())
    NOTE = "signals are played on the host"
    num_restarts = 1

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._signals = np.zeros(self.num_envs, np.int64)

    def begin(self, i: int) -> None:
        self._signals[i] = self.generators[i].integers(1, 8)

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rewards = np.where(actions == self._signals % 2, 1.0, 0.0)
        self._signals[:] = [generator.integers(8) for generator in self.generators]
        return rewards, self._signals == 0

    def observe(self) -> dict[str, np.ndarray]:
        return {"signal": self._signals[:, None], "parity": self._signals % 2}

    def captions(self) -> list[bytes]:
        return [b"The signal is %d." % signal for signal in self._signals]

    def note(self) -> str:
        return self.NOTE

    def terminal(self) -> Terminal:
        canvas = Canvas()
        canvas.write(0, 0, f"{self._signals[0]}")
        return canvas.terminal()


HOST_SIGNALS = "HostSignals-v0"
register_environment(small_environment(HOST_SIGNALS, HostSignals))


def config_of(root_env: str, num_envs: int, rollout: int, limit: int = 5000, **settings: Any) -> Config:
    """Settings of a run.

    Args:
        root_env: the environment.
        num_envs: trajectories of a batch.
        rollout: their steps.
        limit: steps of an episode.
        settings: others of `EnvConfig` and `Config`.
    """
    goals = settings.pop("goals", GoalConfig())
    return Config(
        env=EnvConfig(root_env=root_env, max_episode_steps=limit, goals=goals),
        network=NetworkConfig(encoder_custom="mlp_encoder", hidden_size=8, policy_initialization="xavier_uniform"),
        learner=LearnerConfig(batch_size=num_envs * rollout, rollout=rollout, recurrence=rollout),
        reward=RewardConfig(llm_reward_type="none"),
        **settings,
    )


def signal_of(observations: Mapping[str, np.ndarray]) -> bytes:
    return b"The signal is %d." % int(observations["signal"][0])


def actors() -> list[BaseProcess]:
    """The actor processes of all worlds."""
    return [process for process in multiprocessing.active_children() if process.name.startswith("actor-")]


def kill_actors() -> None:
    for process in actors():
        process.kill()


Break = Callable[[], None]
NEVER, ALWAYS = (0.0, 0.0), (1.0, 1.0)


def a_step_raises(patch: pytest.MonkeyPatch) -> Break:
    def step(*_: object) -> None:
        raise RuntimeError("no such signal")

    return lambda: patch.setattr(HostSignals, "step", step)


def a_caption_raises(patch: pytest.MonkeyPatch) -> Break:
    """A caption raises: of the host's work for a device world, only this is a plugin's and is waited for."""
    is_broken: list[bool] = []
    caption = SignalsEnv.caption

    def broken(self: SignalsEnv, key: np.ndarray) -> bytes:
        if is_broken:
            raise RuntimeError("no such signal")
        return caption(self, key)

    patch.setattr(SignalsEnv, "caption", broken)
    return lambda: is_broken.append(True)


class Kind(NamedTuple):
    """A world to be tested."""

    world: type[World]
    config: Config
    observations: tuple[str, ...]  # shown, also at an episode's end
    caption_of: Callable[[Mapping[str, np.ndarray]], bytes]  # the caption of the state that shows these observations
    idle: Mapping[str, tuple[float, float]]  # ranges of its fractions of time, while nothing is played
    break_it: Callable[[pytest.MonkeyPatch], Break]  # called before the world is made; then breaks a part of it
    error: type[Exception]  # error that it raises then
    words: str  # words of the error
    lose: Break | None = None  # breaks a part that is replaced
    lacking: str = ""  # name of an array without which `restore` refuses the others; empty: nothing can be saved
    has_looks: bool = True  # the environment can be seen
    has_queue: bool = False  # trajectories may wait for the learner, until they are too old for it
    goals: Mapping[bytes, np.ndarray] = {}  # worths that `suggest` can be given
    notes: tuple[str, ...] = ()  # reported notes
    num_restarts: int = 0  # reported restarts
    num_devices: int = 1

    def made(self, config: Config | None = None) -> Made:
        """A new world of this kind. config: replaces the kind's."""
        made = make_world(config or self.config, self.num_devices, self.observations)
        assert type(made.world) is self.world
        return made


# Catch's episodes have nine steps: as many as a trajectory, so that an incomplete one holds no end of an episode.
PROCESSES = ActorConfig(num_workers=1, num_envs_per_worker=6, actor_pool="process", max_actor_restarts=1)
TWO_ANSWERERS = dataclasses.replace(
    PROCESSES, num_workers=2, num_envs_per_worker=3, worker_num_splits=1, num_answerers=2
)
# 6 environments, 3 of a group; 4 trajectories a batch: a slot is half read, and another waits, after two batches. After
# three, all that was played is in them.
SERIAL = ActorConfig(num_workers=1, num_envs_per_worker=6, actor_pool="serial")
SUGGESTED = GoalConfig(suggester="llm", similarity="embeddings", table_size=2)

ACTORS = Kind(
    ActorWorld,
    config_of("Catch-v0", 3, 9, actors=PROCESSES),
    ("message",),
    lambda observations: observations["message"].tobytes().rstrip(b"\0"),
    {"inference_waits_fraction": NEVER, "games_paused_fraction": (0.6, 1.0), "actors_wait_fraction": ALWAYS},
    lambda patch: kill_actors,
    ChildError,
    "actor-0 .*killed by SIGKILL",
    lose=kill_actors,
    has_looks=False,
    has_queue=True,
)
WORLDS: dict[str, Kind] = {
    "actors": ACTORS,
    "actors_2": ACTORS._replace(
        config=config_of("Catch-v0", 3, 9, actors=TWO_ANSWERERS),
        words="actor-. .*killed by SIGKILL",
        lose=lambda: max(actors(), key=lambda process: process.name).kill(),
    ),
    "lockstep": Kind(
        LockstepWorld,
        config_of(HOST_SIGNALS, 4, 5, limit=6, actors=SERIAL),
        ("signal",),
        signal_of,
        {"inference_waits_fraction": NEVER, "games_paused_fraction": NEVER, "actors_wait_fraction": ALWAYS},
        a_step_raises,
        RuntimeError,
        "no such signal",
        lacking="exchange/group",
        has_queue=True,
        notes=(HostSignals.NOTE,),
        num_restarts=2 * HostSignals.num_restarts,
    ),
    "device": Kind(
        DeviceWorld,
        config_of(signals_plugin.NAME, 8, 5, limit=6, goals=SUGGESTED),
        ("signal", "open_goals", "goal_reward"),
        signal_of,
        {"captions_read_fraction": NEVER},
        a_caption_raises,
        RuntimeError,
        "no such signal",
        lacking=".is_first",
        goals={b"The signal is %d." % i: np.full(4, i / 7, np.float32) for i in range(8)},
    ),
}
# Variants without goals, and on two devices.
WORLDS["device_2"] = WORLDS["device"]._replace(
    config=config_of(signals_plugin.NAME, 8, 5, limit=6), observations=("signal",), goals={}, num_devices=2
)
