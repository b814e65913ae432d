"""Environments on the learner's accelerators: each batch is collected in one jitted scan, with the policy inside.

There are batch_size / rollout environments. Nothing runs ahead: a batch is collected with the parameters of the update
that learns from it. It stays on the device, but for the codes of its captions. Nothing depends on timing, so equal
seeds give equal runs, and a resumed run continues bit for bit where one process can save it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import jax
import numpy as np

from oni_jax.envs.captions import under_goal
from oni_jax.envs.device.base import DeviceEnv
from oni_jax.envs.device.episodes import step_limit
from oni_jax.envs.device.saving import from_arrays, is_like, to_arrays
from oni_jax.envs.device.shown import first_scene, join_codes
from oni_jax.envs.display import Terminal, drawn, failed_terminal
from oni_jax.envs.goals import BY_LLM
from oni_jax.host.runtime import WaitClock
from oni_jax.ops.captions import NO_CAPTIONS, a_step_of_each
from oni_jax.parallel import AXIS_0, AXIS_1, TRAJECTORY, Replicas, local, local_rows
from oni_jax.settings.config import Config
from oni_jax.types import EPISODE_GOAL, Array, CaptionBatch, EnvSpec, GoalModelFn, PyTree, StepCaptions, Trajectory
from oni_jax.worlds.actors.actor_world import Acting
from oni_jax.worlds.base import Collected, Episodes, World, WorldReport, with_finals
from oni_jax.worlds.device.device_captions import CodeCounts, TextReader
from oni_jax.worlds.device.device_rollout import Inputs, Running, Task, Texts, make_collect_fn, make_start_fn
from oni_jax.worlds.device.goal_table import SuggestedGoals


class DeviceWorld(World):
    """N device environments, sharded over the learner's devices. See the module.

    Args:
        config: the whole run's, but with the batch size of this process.
        spec: spec of the environments.
        env: functions of one environment.
        acting: the initial policy; its devices are not used.
        replicas: the learner's devices.
        seed: seed of the environments, the same in all processes.
        goal_model: model of an LLM's suggestions; `suggest_by` brings its parameters.
    """

    payload_sharding = TRAJECTORY
    runs_ahead = False

    def __init__(
        self,
        config: Config,
        spec: EnvSpec,
        env: DeviceEnv,
        acting: Acting,
        replicas: Replicas,
        seed: int,
        goal_model: GoalModelFn | None = None,
    ):
        self.spec, self._replicas, self._params = spec, replicas, acting.params
        self._goal_params: PyTree = ()
        learner = config.learner
        self.num_envs = learner.batch_size // learner.rollout
        self.description = f"{self.num_envs} environments (batch_size / rollout) on the learner's device"
        limit = step_limit(env, config.env.max_episode_steps)
        task = Task(env, spec, acting.policy, limit, learner.rollout, goal_model)
        collect = replicas.sharded(
            make_collect_fn(task),
            (AXIS_0, AXIS_0, AXIS_0),
            (AXIS_0, AXIS_0, TRAJECTORY, Texts(*[AXIS_1] * len(Texts._fields))),
        )
        self._collect: Any = jax.jit(collect, donate_argnums=(1, 3))  # compiled by `start`
        start = make_start_fn(task, seed)
        self._start_fn = jax.jit(replicas.sharded(lambda _, indices: start(indices), (AXIS_0,), AXIS_0))
        self._first_index = jax.process_index() * self.num_envs
        # Saved environments can be restored only where this is equal.
        self._signature = f"{config.env} {self.num_envs} {learner.rollout}"
        self._running: Running | None = None
        self._num_rollouts, self._steps_before = 0, 0
        self._env = env
        self._terminal: Terminal | None = None  # see `terminal`
        self._scene: PyTree = None  # requested scene of the first environment, until `terminal` draws it
        self._is_scene_asked, self._has_scenes = False, True
        self._counts, self._texts = CodeCounts(self.num_envs), TextReader(env)
        unread = np.full((learner.rollout, self.num_envs), np.nan, np.float32)  # counts that no reward reads
        self._counted = replicas.put((unread, unread), AXIS_1)
        self._episodes: list[np.ndarray] = []
        self._caption_wait = WaitClock()
        goals = config.env.goals
        has_table = goals.suggester in BY_LLM and goals.answers == "first" and not config.reward.reward_dir
        is_exact = goals.similarity == "exact"
        self._goals = SuggestedGoals(len(spec.goals) + 1, goals.table_size, is_exact) if has_table else None
        self._goal_table: PyTree = ()

    def unpack(self, payload: PyTree, version: Array) -> Trajectory:  # type: ignore
        return payload

    def _indices(self) -> np.ndarray:
        return np.arange(self._first_index, self._first_index + self.num_envs, dtype=np.uint32)

    def start(self) -> None:
        if self._running is None:
            self._running = self._start_fn((), self._replicas.put(self._indices(), AXIS_0))
        self._answer_scene()
        self._collect = self._collect.lower(self._inputs(), *self._suggestions(), self._running).compile()

    def _suggestions(self) -> tuple[PyTree, PyTree]:
        """Returns the table of suggested goals, and its new rows: each device has all; () without an LLM's goals."""
        if not self._goals:
            return (), ()
        new = self._goals.new_rows()
        if new is None or self._goal_table == ():
            self._goal_table, new = self._copies(self._goals.table()), self._goals.new_rows()
        return self._goal_table, self._copies(new)

    def _copies(self, tree: PyTree) -> PyTree:
        """Puts arrays on each device."""
        number = self._replicas.num_local
        return self._replicas.put(jax.tree.map(lambda x: np.tile(x, (number, *[1] * (x.ndim - 1))), tree), AXIS_0)

    def suggest(self, worths: Mapping[bytes, np.ndarray]) -> None:
        if self._goals:
            self._goals.add(worths)

    def suggest_by(self, goal_params: PyTree) -> None:
        self._goal_params = goal_params

    def _inputs(self) -> Inputs:
        return Inputs(self._params, np.int32(self._num_rollouts), self._goal_params)  # type: ignore

    def publish(self, version: int, params: PyTree) -> None:
        self._params = params

    def next(self, version: int, timeout_secs: float) -> Collected | None:
        suggestions = self._suggestions()
        self._running, self._goal_table, trajectory, on_device = self._collect(
            self._inputs(), *suggestions, self._running
        )
        self._num_rollouts += 1
        self._answer_scene()
        ended = local_rows(trajectory.terminations) | local_rows(trajectory.truncations)  # blocks
        texts = Texts(*map(local_rows, on_device))
        self._episodes += [texts.stats[t, i] for t, i in zip(*np.nonzero(ended))]
        with self._caption_wait.waiting():
            codes, final_codes = join_codes(texts.codes), join_codes(texts.final_codes)
            if self.spec.reads_counts:
                counted = self._under_goals(trajectory, codes, final_codes)
                self._counted = self._replicas.put(tuple(self._counts.count(*counted, ended)), AXIS_1)
            before, caused = (
                self._captions(codes[:-1], texts.keys[:-1], _HostRows(trajectory, ended, True)),
                NO_CAPTIONS,
            )
            if "caused" in self.spec.captions_read:
                after = np.where(ended, final_codes, codes[1:])
                caused = self._captions(after, texts.final_keys, _HostRows(trajectory, ended, False))
            captions = StepCaptions(before, caused)
            if self._goals:
                steps = a_step_of_each(before.index, len(before.captions))
                self._goals.see(before.captions, codes[:-1].ravel()[steps])
        before_counts, caused_counts = self._counted
        payload = trajectory._replace(before_counts=before_counts, caused_counts=caused_counts)
        is_first = local_rows(trajectory.is_first)[:-1]
        episodes = Episodes(np.arange(self.num_envs, dtype=np.int32), is_first, ended, np.zeros(self.num_envs, bool))
        return Collected(payload, captions, episodes)

    def _under_goals(
        self, trajectory: Trajectory, codes: np.ndarray, final_codes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns codes of captions under the goals of their steps, where episodes have goals."""
        if EPISODE_GOAL not in self.spec.observations:
            return codes, final_codes
        goals = local_rows(trajectory.observations[EPISODE_GOAL]).astype(np.uint64)
        return under_goal(codes, goals), under_goal(final_codes, goals[:-1])

    def _answer_scene(self) -> None:
        """Starts reading the first environment's scene, if it is asked for."""
        if self._is_scene_asked:
            assert self._running is not None
            self._is_scene_asked = False
            try:
                scene = first_scene(self._env, local(self._running.episodes.state))
                for x in jax.tree.leaves(scene):
                    x.copy_to_host_async()
            except Exception as error:  # an error of a plugin
                self._terminal, self._has_scenes = failed_terminal(error), False
                return
            self._scene = scene

    def terminal(self) -> Terminal | None:
        if self._scene is None:
            self._is_scene_asked = self._has_scenes
        elif all(x.is_ready() for x in jax.tree.leaves(self._scene)):
            scene = self._scene
            self._terminal = drawn(lambda: self._env.draw(jax.device_get(scene)))  # an error on a device raises here
            self._scene, self._is_scene_asked = None, True
        return self._terminal

    def _captions(self, codes: np.ndarray, keys: np.ndarray, observations: Mapping[str, np.ndarray]) -> CaptionBatch:
        return self._texts.captions(codes, keys)._replace(observations=observations)

    def begin_update(self) -> None:
        pass

    def report(self) -> WorldReport:
        episodes, self._episodes = self._episodes, []
        return WorldReport(episodes)

    def gauges(self) -> Mapping[str, float]:
        return {
            "captions_seen": self._texts.num_captions,
            "captions_read_fraction": self._caption_wait.fraction(),
        }

    def save(self) -> dict[str, np.ndarray]:
        if jax.process_count() > 1 or self._running is None:
            return {}
        header = {"device_world": np.array(self._signature), "num_rollouts": np.array(self._num_rollouts)}
        counts = self._counts.save() if self.spec.reads_counts else {}
        goals = self._goals.save() if self._goals else {}
        return {**header, **counts, **goals, **to_arrays(self._running)}

    def restore(self, saved: Mapping[str, np.ndarray]) -> bool:
        if str(saved.get("device_world")) != self._signature:
            return False
        if self.spec.reads_counts and not self._counts.are_in(saved):  # a reward read none when they were saved
            return False
        like = cast(Running, jax.eval_shape(self._start_fn, (), self._indices()))
        if not is_like(saved, like):  # state of a policy, or a guide, with another memory or other observations
            return False
        self._running = self._replicas.put(from_arrays(saved, like), AXIS_0)
        self._num_rollouts = int(saved["num_rollouts"])
        if self.spec.reads_counts:
            self._counts.restore(saved)
        if self._goals:
            self._goals.restore(saved)
        return True

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


class _HostRows(Mapping[str, np.ndarray]):
    """Observations at a batch's steps [T, B, ...] of this process, fetched from the devices when they are read.

    Args:
        trajectory: trajectory of the batch.
        ended: [T, B] bool; episodes ended with these steps.
        is_before: before the actions, else after them: where an episode ended, the final observation if there is one.
    """

    def __init__(self, trajectory: Trajectory, ended: np.ndarray, is_before: bool):
        self._trajectory, self._ended, self._is_before = trajectory, ended, is_before

    def __getitem__(self, name: str) -> np.ndarray:
        rows = local_rows(self._trajectory.observations[name])
        if self._is_before:
            return rows[:-1]
        finals = self._trajectory.final_observations
        return with_finals(rows[1:], local_rows(finals[name]), self._ended) if name in finals else rows[1:]

    def __iter__(self) -> Iterator[str]:
        return iter(self._trajectory.observations)

    def __len__(self) -> int:
        return len(self._trajectory.observations)
