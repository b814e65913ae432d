"""Play before a training: the players that pairs are collected from, and episodes that are kept whole."""

import collections
import functools
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from oni_jax.envs.registry import env_spec, make_vector_env, offered_spec
from oni_jax.evaluation import playing
from oni_jax.evaluation.agents import PolicyAgent
from oni_jax.evaluation.config import RANDOM
from oni_jax.evaluation.players import Player, chosen_players, evaluated_task
from oni_jax.evaluation.playing import Agent, Envs, Step
from oni_jax.host.files import ScratchFolder
from oni_jax.host.held_folders import held_name, watched_folder
from oni_jax.host.reporting import report
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.segment_config import CollectSegments, SegmentsConfig, as_evaluation
from oni_jax.offline.segment_episodes import Segment, read_episodes, write_episodes
from oni_jax.rewards.bk.windows import Windows
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError, counted
from oni_jax.settings.worlds import EnvConfig


class SharedDraws(Agent):
    """Draws actions uniformly, those of all environments from one generator."""

    def __init__(self, num_actions: int, rng: np.random.Generator):
        self._num_actions, self._rng = num_actions, rng

    def act(self, group: int, records: np.ndarray, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        return self._rng.integers(self._num_actions, size=len(steps), dtype=np.int32)


def checkpoint_agent(run: Run, env: EnvConfig, seed: int) -> Agent:
    """Makes the policy of a run's newest checkpoint, which samples actions. Raises UserError: see `load_pretrained`."""
    policy, params, spec, env_steps = run.policy(env)
    report(f"the policy after {counted(env_steps, 'environment step')} plays")
    return PolicyAgent(policy, spec, params, seed, greedy=False)


def collect_segments(config: CollectSegments, stop: StopRequest) -> int:
    """Writes a folder of episodes. Returns the exit code: 0, or 130 when interrupted, with nothing written.

    Raises:
        UserError: the folder is there already or can't be written, or there is no such run or task.
    """
    section = config.segments
    directory = os.path.abspath(section.directory)
    if os.path.exists(directory):
        raise UserError(f"--directory {directory}: is there already; choose another")
    evaluation = as_evaluation(section)
    task = evaluated_task(evaluation)
    players = chosen_players(
        evaluation, task, None if section.policy == RANDOM else section.experiment, section.checkpoint
    )
    try:
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        parent = os.path.dirname(directory)
        with held_name(directory, "directory"), closing(ScratchFolder(parent)) as partial:
            with watched_folder(partial.path, stop):
                for i, player in enumerate(players):
                    episodes = list(play(player, section, i, stop))
                    if stop:
                        report(f"{stop.reason}: {directory} was not written")
                        return 130
                    name = "random" if player.env_steps is None else f"step{player.env_steps:012d}"
                    write_episodes(os.path.join(partial.path, f"{name}.npz"), episodes)
                    mean_return = np.mean([episode.rewards.sum() for episode in episodes])
                    report(f"{player.name}: {len(episodes)} episodes, mean return {mean_return:.3g}")
            os.chmod(partial.path, 0o755)
            os.rename(partial.path, directory)
    except OSError as error:
        raise UserError(f"--directory {directory}: can't be written ({error.strerror})") from None
    report(f"{directory}: episodes of {len(players)} players")
    return 0


def play(player: Player, config: SegmentsConfig, number: int, stop: StopRequest) -> Iterator[Segment]:
    """Yields episodes of a player, in the order of their indices; `number`: the player's, for the seeds."""
    num_envs = min(config.num_envs, config.episodes)
    names = tuple(offered_spec(player.env).observations)
    seed = int(np.random.SeedSequence([config.seed, number]).generate_state(1)[0])
    shown = tuple(dict.fromkeys((*names, *player.spec.observations)))  # the policy may read captions
    make_env = functools.partial(make_vector_env, player.env, seed=seed, observations=shown, suggested=player.suggested)
    envs = Envs(make_env, env_spec(player.env, shown), group_size=num_envs)
    running: dict[int, _Running] = collections.defaultdict(lambda: _Running([], [], [], []))  # keyed by episode
    waiting: dict[int, Segment] = {}
    index = 0
    for step in playing.play(envs, player.agent, config.episodes, stop):
        for i, episode in enumerate(step.episodes.tolist()):
            if step.steps[i]:
                running[episode].add(step, i)
            if i in step.ended:
                waiting[episode] = running.pop(episode).segment(names, bool(step.records["terminated"][i]))
                episode += num_envs
            if i in step.ended or not step.steps[i]:
                running[episode].begin(step, i)
        while index in waiting and index < config.episodes and not stop:
            yield waiting.pop(index)
            index += 1


class _Running(NamedTuple):
    """An episode so far."""

    records: list[np.ndarray]
    captions: list[bytes]
    actions: list[int]
    rewards: list[float]

    def begin(self, step: Step, row: int) -> None:
        self.records.append(step.records[row].copy())
        self.captions.append(step.captions[int(step.texts["caption"][row])])

    def add(self, step: Step, row: int) -> None:
        record, caption = step.seen(row)
        self.records.append(record.copy())
        self.captions.append(caption)
        self.actions.append(int(step.actions[row]))
        self.rewards.append(float(step.records["reward"][row]))

    def segment(self, names: tuple[str, ...], terminated: bool) -> Segment:
        observations = {name: np.stack([row[name] for row in self.records]) for name in names}
        actions, rewards = np.array(self.actions, np.int32), np.array(self.rewards, np.float32)
        return Segment(observations, self.captions, actions, rewards, terminated)


def windows_of(segments: Sequence[Segment], names: Collection[str] = ()) -> Windows:
    """Returns the windows that segments of H steps end with, of these observations; of all, where none is named.

    Raises:
        UserError: the segments were recorded without one of them.
    """
    recorded = segments[0].observations
    if missing := [name for name in names if name not in recorded]:
        raise UserError(f"--segments: were recorded without {', '.join(missing)}; run launch.collect_segments again")
    steps = {name: np.stack([segment.observations[name] for segment in segments]) for name in names or recorded}
    return Windows(steps, np.stack([segment.actions for segment in segments]))


def given_episodes(folder: str, env: EnvConfig, num_episodes: int, seed: int, stop: StopRequest) -> list[Segment]:
    """Reads the episodes of a folder; without one, plays some with random actions. Raises UserError."""
    return read_episodes(folder) if folder else random_episodes(env, num_episodes, seed, stop)


def random_episodes(env: EnvConfig, num_episodes: int, seed: int, stop: StopRequest) -> list[Segment]:
    """Plays episodes with random actions. Raises UserError: there is no such task."""
    config = SegmentsConfig(policy=RANDOM, episodes=num_episodes, seed=seed)
    (player,) = chosen_players(as_evaluation(config), env, None, RANDOM)
    return list(play(player, config, 0, stop))
