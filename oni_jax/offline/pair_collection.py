"""Plays games, and samples sub-episodes from them uniformly, without replacement, on the fly."""

import dataclasses
import os
import tempfile
from contextlib import closing

import numpy as np

from oni_jax.envs.nethack.scripted import ScriptedPlayer
from oni_jax.envs.nethack.tasks import nethack
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv
from oni_jax.envs.registry import make_vector_env
from oni_jax.evaluation.playing import ENDLESS, Agent, Envs, play
from oni_jax.host.files import ScratchFolder
from oni_jax.host.held_folders import held_name, watched_folder
from oni_jax.host.plugins import load_plugins
from oni_jax.host.reporting import report
from oni_jax.host.runtime import Every, StopRequest
from oni_jax.networks.registry import policy_observations
from oni_jax.offline.dataset import create_dataset
from oni_jax.offline.pair_config import CollectionConfig, CollectPairs
from oni_jax.offline.play import SharedDraws, checkpoint_agent
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError, counted

SUBEPISODE_STEPS, GAME_STEPS = 10, 500  # default number of steps, at least, per sub-episode and per game
PROGRESS_SECS = 5.0
# State of the game at a sub-episode's last step: key of info/ -> index into NLE's statistics.
INFO_BLSTATS = {
    "score": nethack.NLE_BL_SCORE,
    "turns": nethack.NLE_BL_TIME,
    "experience_level": nethack.NLE_BL_XP,
    "depth": nethack.NLE_BL_DEPTH,
    "gold": nethack.NLE_BL_GOLD,
    "hit_points": nethack.NLE_BL_HP,
}


def collect_pairs(config: CollectPairs, stop: StopRequest) -> int:
    """Writes a data set of pairs. Returns the exit code: 0, or 130 when it was interrupted and nothing was written.

    Raises:
        UserError: the directory is not empty, the task is not NetHack's, or there is no checkpoint.
    """
    collection = config.collection
    directory = os.path.abspath(collection.directory)
    if os.path.exists(directory) and (not os.path.isdir(directory) or os.listdir(directory)):
        raise UserError(f"--directory {directory}: holds something already; choose another, or empty it")
    env, agent = _build(config)
    try:
        parent = _parent(directory)
        with closing(env), held_name(directory, "directory"), closing(ScratchFolder(parent)) as partial:
            with watched_folder(partial.path, stop):
                finished = _play(env, agent, collection, partial.path, stop)
            if finished:
                os.chmod(partial.path, 0o755)
                os.rename(partial.path, directory)
                report(f"{directory}: {counted(collection.num_pairs, 'pair')}")
    except OSError as error:
        raise UserError(f"{directory}: can't be written ({error.strerror})") from None
    if not finished:
        report(f"{stop.reason}: {directory} was not written")
    return 0 if finished else 130


def _parent(directory: str) -> str:
    parent = os.path.dirname(directory)
    try:
        os.makedirs(parent, exist_ok=True)
    except OSError as error:
        raise UserError(f"--directory {directory}: {parent} can't be made ({error.strerror})") from None
    if not os.access(parent, os.W_OK):
        raise UserError(f"--directory {directory}: {parent} can't be written")
    return parent


def _build(config: CollectPairs) -> tuple[NetHackVectorEnv, Agent]:
    collection, env_config = config.collection, config.env
    rng = np.random.default_rng(collection.seed)
    folder = os.path.join(collection.train_dir, collection.experiment)
    run = Run(folder) if collection.policy == "checkpoint" else None
    if run:
        load_plugins(run.plan.config.env.plugin)  # one may register the encoder
        env_config = dataclasses.replace(env_config, nethack=run.config.env.nethack)
    try:
        reads = policy_observations(run.plan.config.network) if run else ()
        env = make_vector_env(env_config, collection.num_envs, collection.seed, 0, reads)
    except OSError as error:
        folder = tempfile.gettempdir()
        raise UserError(f"{folder}: the games can't write their files there ({error.strerror}); set $TMPDIR") from None
    try:
        if not isinstance(env, NetHackVectorEnv):
            raise UserError(f"--root_env {env_config.root_env}: pairs are collected from NetHack tasks only; name one")
        if run:
            return env, checkpoint_agent(run, env_config, collection.seed)
        if collection.policy == "random":
            return env, SharedDraws(env.spec.num_actions, rng)
        return env, ScriptedPlayer(env, rng)
    except BaseException:
        env.close()
        raise


class SubepisodeSampler:
    """Keeps a uniform sample of all sub-episodes added so far, in the files themselves (reservoir sampling).

    Args:
        directory: an empty one.
        sources: key of data/ -> [N, ...], overwritten in place by each step.
        num_pairs: P.
        length: L.
        rng: generator of the sample.
    """

    def __init__(
        self, directory: str, sources: dict[str, np.ndarray], num_pairs: int, length: int, rng: np.random.Generator
    ):
        self._sources, self._length, self._rng = sources, length, rng
        # The last L steps of each game, the newest last
        self._recent = {key: np.zeros((length, *array.shape), array.dtype) for key, array in sources.items()}
        arrays = {
            f"data/{key}": ((num_pairs, 2, length, *array.shape[1:]), array.dtype.str) for key, array in sources.items()
        }
        arrays |= {f"info/{key}": ((num_pairs, 2), "<i8") for key in INFO_BLSTATS}
        self._arrays = create_dataset(directory, arrays)
        self._num_slots = 2 * num_pairs
        self._slots = rng.permutation(self._num_slots)  # so that sub-episodes adjacent in time are not paired
        self.num_seen = 0
        self._ages = np.zeros(len(next(iter(sources.values()))), np.int64)  # observations so far in each episode

    @property
    def full(self) -> bool:
        return self.num_seen >= self._num_slots

    def add(self, is_first: np.ndarray) -> None:
        """Adds a step of every game; is_first [N]."""
        for key, array in self._sources.items():
            recent = self._recent[key]
            recent[:-1] = recent[1:]
            recent[-1] = array
        self._ages = np.where(is_first, 1, self._ages + 1)
        games = np.flatnonzero(self._ages >= self._length)
        numbers = self.num_seen + np.arange(len(games))
        slots = np.where(numbers < self._num_slots, numbers, self._rng.integers(0, numbers + 1))
        self.num_seen += len(games)
        for game, slot in zip(games.tolist(), slots.tolist()):
            if slot < self._num_slots:
                self._keep(game, *divmod(int(self._slots[slot]), 2))

    def _keep(self, game: int, pair: int, side: int) -> None:
        for key, recent in self._recent.items():
            self._arrays[f"data/{key}"][pair, side] = recent[:, game]
        last = self._recent["blstats"][-1, game]
        for key, index in INFO_BLSTATS.items():
            self._arrays[f"info/{key}"][pair, side] = last[index]


def _play(env: NetHackVectorEnv, agent: Agent, collection: CollectionConfig, directory: str, stop: StopRequest) -> bool:
    """Plays and samples. Returns False if a stop request came first."""
    num_envs = env.num_envs
    num_steps = collection.num_env_steps or max(SUBEPISODE_STEPS * 2 * collection.num_pairs, GAME_STEPS * num_envs)
    rewards = np.zeros(num_envs, np.float32)
    arrays = env.arrays
    sources = {"message": arrays.message, "blstats": arrays.blstats, "rewards": rewards, **arrays.screen}
    if collection.record_glyphs:
        sources["glyphs"] = arrays.glyphs
    rng = np.random.default_rng([collection.seed, 1])
    sampler = SubepisodeSampler(directory, sources, collection.num_pairs, collection.subepisode_length, rng)
    due, num_played, episodes = Every(PROGRESS_SECS), 0, 0
    for step in play(Envs(lambda **_: env, env.spec, group_size=num_envs, first=num_envs), agent, ENDLESS, stop):
        # An observation's reward is that of the action before it; an episode's first has none.
        is_first = step.records["is_first"]
        rewards[:] = np.where(is_first, 0.0, step.records["reward"])
        sampler.add(is_first)
        num_played += num_envs
        episodes += int(is_first.sum())
        if num_played >= num_steps and sampler.full:
            seen = f"{sampler.num_seen:,} sub-episodes to draw from"
            report(f"{counted(num_played, 'step')} of {counted(episodes, 'episode')}, {seen}")
            return True
        if due():
            report(f"{num_played:,} of {counted(num_steps, 'step')}")
    return False
