"""Episodes of an evaluation played again, from their seeds and actions; a terminal is recorded where there is one."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.config import EnvConfig, UserError
from oni_jax.envs.base import SingleEpisode, VectorEnv
from oni_jax.envs.nethack.single_game import SingleGame
from oni_jax.envs.registry import make_vector_env
from oni_jax.evaluation.episodes import NUM_SLOTS, Episode, evaluation_seed, has_terminal, nethack_seeds
from oni_jax.evaluation.results import Evaluation
from oni_jax.types import EVERYTHING

BEST, MEDIAN, WORST = "best", "median", "worst"
Terminal = tuple[np.ndarray, np.ndarray, np.ndarray]  # see SingleGame.terminal


class Choice(NamedTuple):
    """An episode that is worth watching, and why."""

    rank: str  # best, median or worst
    place: int  # counts from 1 within the rank
    episode: Episode


class Replay(NamedTuple):
    """An episode of L steps played again. Index t of L + 1 is before action t, or the end."""

    messages: Sequence[bytes]  # [L + 1]
    observations: dict[str, np.ndarray]  # [L + 1, ...] each
    rewards: np.ndarray  # [L] float32, the environment's
    terminals: dict[int, Terminal]  # those asked for; none where the environment has no terminal
    turns: Sequence[int]  # [L + 1], of game time; none without a terminal
    mismatch: str  # how it ended otherwise than the episode did; "" where it didn't


def chosen_episodes(episodes: Sequence[Episode], num: int) -> list[Choice]:
    """The `num` best, median and worst by their return, each episode once: the best first, then the worst."""
    ranked = sorted(episodes, key=lambda episode: (-episode.stats["return"], episode.index))
    middle = (len(ranked) - 1) / 2
    orders = {
        BEST: ranked,
        WORST: ranked[::-1],
        MEDIAN: [ranked[i] for i in sorted(range(len(ranked)), key=lambda i: (abs(i - middle), i))],
    }
    taken: set[int] = set()
    choices = []
    for rank, order in orders.items():
        left = [episode for episode in order if episode.index not in taken][:num]
        taken.update(episode.index for episode in left)
        choices += [Choice(rank, place, episode) for place, episode in enumerate(left, 1)]
    return choices


def _game(evaluation: Evaluation, index: int, ttyrec: str, names: Sequence[str]) -> tuple[VectorEnv, bytes]:
    """What plays an episode, and the actions that come before its own."""
    of = evaluation
    if has_terminal(of.root_env):
        seeds = nethack_seeds(of.seed, index)
        return SingleGame(of.root_env, seeds, of.max_episode_steps, names, ttyrec=ttyrec), b""
    config = EnvConfig(root_env=of.root_env, max_episode_steps=of.max_episode_steps)
    slot = index % NUM_SLOTS
    earlier = [x.actions for x in of.episodes if x.index < index and x.index % NUM_SLOTS == slot]
    return make_vector_env(config, 1, evaluation_seed(of.seed), slot, names or (EVERYTHING,)), b"".join(earlier)


def replay(
    evaluation: Evaluation,
    episode: Episode,
    ttyrec: str,
    seen: Collection[int],
    observations: Sequence[str] = (),
) -> Replay:
    """Plays an episode again.

    Args:
      evaluation: that the episode is of.
      episode: its actions are taken.
      ttyrec: file that the terminal is recorded in, where there is one.
      seen: numbers t, whose terminals are kept.
      observations: names of those that are kept.

    Raises:
      UserError: the file can't be written.
    """
    try:
        game, earlier = _game(evaluation, episode.index, ttyrec, observations)
    except OSError as error:
        raise UserError(f"{ttyrec}: can't be written ({error.strerror}); choose another --recordings_dir") from None
    own = SingleEpisode(game)
    kept: dict[str, list[np.ndarray]] = {name: [] for name in observations}
    messages: list[bytes] = []
    rewards: list[float] = []
    turns: list[int] = []
    terminals: dict[int, Terminal] = {}

    def observe(record: np.ndarray) -> None:
        if isinstance(game, SingleGame):
            turns.append(game.turn())
            if len(messages) in seen:
                terminals[len(messages)] = game.terminal()
        messages.append(own.caption())
        for name, values in kept.items():
            values.append(record[name].copy())

    try:
        observe(own.begin(earlier))
        for action in episode.actions:
            if own.ended:
                break
            record = own.act(action)
            rewards.append(float(record["reward"]))
            observe(record)
    finally:
        game.close()
    return Replay(
        messages=messages,
        observations={name: np.stack(values) for name, values in kept.items()},
        rewards=np.array(rewards, np.float32),
        terminals=terminals,
        turns=turns,
        mismatch=_mismatch(episode, own.stats),
    )


def _mismatch(episode: Episode, stats: dict[str, float]) -> str:
    if not stats:
        return f"the replay of episode {episode.index} has not ended where the episode did"
    differences = [
        f"{name} {stats[name]:g} was {value:g}" for name, value in episode.stats.items() if stats[name] != value
    ]
    if not differences:
        return ""
    return f"the replay of episode {episode.index} went another way: {', '.join(differences)}"
