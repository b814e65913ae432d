"""Play before a training: the players that pairs are collected from, and episodes that are kept whole."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from oni_jax.envs.base import StepOutput, VectorEnv, make_step_output, record_dtype
from oni_jax.envs.nethack import scripted
from oni_jax.envs.registry import make_vector_env, offered_spec
from oni_jax.evaluation.agents import PolicyAgent
from oni_jax.evaluation.config import RANDOM
from oni_jax.evaluation.players import Player, chosen_players, evaluated_task
from oni_jax.host.files import ScratchFolder
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.segment_config import CollectSegments, SegmentsConfig, as_evaluation
from oni_jax.offline.segment_episodes import Segment, write_episodes
from oni_jax.rewards.bk.windows import Windows
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig


def random_player(num_envs: int, num_actions: int, rng: np.random.Generator) -> scripted.Player:
    return lambda out: rng.integers(num_actions, size=num_envs, dtype=np.int32)


def checkpoint_player(run: Run, env: EnvConfig, num_envs: int, seed: int) -> scripted.Player:
    """Plays by the policy of a run's newest checkpoint, sampling actions. Raises UserError: there is none."""
    policy, params, spec, env_steps = run.policy(env)
    print(f"the policy after {env_steps:,} environment steps plays", flush=True)
    agent = PolicyAgent(policy, spec, params, seed, greedy=False)
    episodes, steps = np.stack([np.arange(num_envs), np.zeros(num_envs)]).astype(np.int32)

    def play(out: StepOutput) -> np.ndarray:
        is_first = out.records["is_first"]
        episodes[is_first] += num_envs
        steps[:] = np.where(is_first, 0, steps + 1)
        return agent.act(0, out.records, episodes, steps)

    return play


def collect_segments(config: CollectSegments, stop: StopRequest) -> int:
    """Writes a folder of episodes. Returns the exit code: 0, or 130 when interrupted, with nothing written.

    Raises:
        UserError: the folder is there already or can't be written, or there is no such run or task.
    """
    own = config.segments
    directory = os.path.abspath(own.directory)
    if os.path.exists(directory):
        raise UserError(f"--directory {directory}: is there already; choose another")
    evaluation = as_evaluation(own)
    task = evaluated_task(evaluation)
    players = chosen_players(evaluation, task, None if own.policy == RANDOM else own.experiment, own.checkpoint)
    try:
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        with closing(ScratchFolder(os.path.dirname(directory))) as partial:
            for i, player in enumerate(players):
                episodes = list(play(player, own, i, stop))
                if stop:
                    print(f"{stop.reason}: {directory} was not written", flush=True)
                    return 130
                name = "random" if player.env_steps is None else f"step{player.env_steps:012d}"
                write_episodes(os.path.join(partial.path, f"{name}.npz"), episodes)
                mean_return = np.mean([episode.rewards.sum() for episode in episodes])
                print(f"{player.name}: {len(episodes)} episodes, mean return {mean_return:.3g}", flush=True)
            os.chmod(partial.path, 0o755)
            os.rename(partial.path, directory)
    except OSError as error:
        raise UserError(f"--directory {directory}: can't be written ({error.strerror})") from None
    print(f"{directory}: episodes of {len(players)} players", flush=True)
    return 0


def play(player: Player, config: SegmentsConfig, number: int, stop: StopRequest) -> Iterator[Segment]:
    """Yields episodes of a player, in the order of their indices; `number`: of the player, which has its own seeds."""
    num_envs = min(config.num_envs, config.episodes)
    names = tuple(offered_spec(player.env).observations)
    seed = int(np.random.SeedSequence([config.seed, number]).generate_state(1)[0])
    shown = tuple(dict.fromkeys((*names, *player.spec.observations)))  # the policy may read captions
    with closing(make_vector_env(player.env, num_envs, seed, 0, shown)) as env:
        recorder = _Recorder(env, player, names)
        waiting: dict[int, Segment] = {}
        for index in range(config.episodes):
            while index not in waiting:
                if stop:
                    return
                waiting.update(recorder.step())
            yield waiting.pop(index)


class _Running(NamedTuple):
    """An episode so far."""

    records: list[np.ndarray]
    captions: list[bytes]
    actions: list[int]
    rewards: list[float]

    def see(self, record: np.ndarray, caption: bytes) -> None:
        self.records.append(record.copy())
        self.captions.append(caption.replace(b"\0", b""))

    def segment(self, names: tuple[str, ...], terminated: bool) -> Segment:
        observations = {name: np.stack([row[name] for row in self.records]) for name in names}
        actions, rewards = np.array(self.actions, np.int32), np.array(self.rewards, np.float32)
        return Segment(observations, self.captions, actions, rewards, terminated)


class _Recorder:
    """Plays N environments, and keeps their running episodes; episode i is played by environment i mod N."""

    def __init__(self, env: VectorEnv, player: Player, names: tuple[str, ...]):
        self._env, self._agent, self._names = env, player.agent, names
        self._out = make_step_output(env.spec, env.num_envs)
        self._seen = np.zeros(env.num_envs, record_dtype(player.spec))  # by the agent
        self._episodes = np.arange(env.num_envs, dtype=np.int32)
        self._steps = np.zeros(env.num_envs, np.int32)
        self._running = [_Running([], [], [], []) for _ in range(env.num_envs)]
        env.reset(self._out)
        for i in range(env.num_envs):
            self._running[i].see(self._out.records[i], self._out.texts.captions[i])

    def step(self) -> dict[int, Segment]:
        """Takes a step of all; returns the episodes that ended, by their indices."""
        for name in self._seen.dtype.names or ():
            self._seen[name] = self._out.records[name]
        actions = self._agent.act(0, self._seen, self._episodes, self._steps)
        self._env.step(actions, self._out)
        self._steps += 1
        rows, ended = self._out.records, {}
        for i, action in enumerate(actions.tolist()):
            running, is_last = self._running[i], bool(rows["terminated"][i] | rows["truncated"][i])
            running.actions.append(action)
            running.rewards.append(float(rows["reward"][i]))
            if is_last:
                running.see(self._out.finals[i], self._out.texts.final_captions[i])
                ended[int(self._episodes[i])] = running.segment(self._names, bool(rows["terminated"][i]))
                running = self._running[i] = _Running([], [], [], [])
                self._episodes[i] += len(actions)
                self._steps[i] = 0
            running.see(rows[i], self._out.texts.captions[i])
        return ended


def windows_of(segments: Sequence[Segment]) -> Windows:
    """Returns the windows that segments of H steps end with."""
    steps = {name: np.stack([own.observations[name] for own in segments]) for name in segments[0].observations}
    return Windows(steps, np.stack([own.actions for own in segments]))


def random_episodes(env: EnvConfig, num_episodes: int, seed: int, stop: StopRequest) -> list[Segment]:
    """Plays episodes with random actions. Raises UserError: there is no such task."""
    config = SegmentsConfig(policy=RANDOM, episodes=num_episodes, seed=seed)
    (player,) = chosen_players(as_evaluation(config), env, None, RANDOM)
    return list(play(player, config, 0, stop))
