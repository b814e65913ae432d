"""Episodes of an evaluation played again, from their seeds and actions, with a terminal that is recorded."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.config import UserError
from oni_jax.envs.single_game import SingleGame
from oni_jax.evaluation.episodes import Episode, nethack_seeds
from oni_jax.evaluation.results import Evaluation

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
    terminals: dict[int, Terminal]  # those asked for
    turns: np.ndarray  # [L + 1] int64, of game time
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


def replay(
    evaluation: Evaluation,
    episode: Episode,
    ttyrec: str,
    seen: Collection[int],
    observations: Sequence[str] = (),
    with_glyphs: bool = False,
) -> Replay:
    """Plays an episode of a NetHack task again.

    Args:
      evaluation: that the episode is of.
      episode: its actions are taken.
      ttyrec: file that the terminal is recorded in.
      seen: numbers t, whose terminals are kept.
      observations: names of those that are kept.
      with_glyphs: whether they are among those with glyphs.

    Raises:
      UserError: the file can't be written.
    """
    seeds = nethack_seeds(evaluation.seed, episode.index)
    try:
        game = SingleGame(evaluation.root_env, seeds, evaluation.max_episode_steps, with_glyphs, ttyrec=ttyrec)
    except OSError as error:
        raise UserError(f"{ttyrec}: can't be written ({error.strerror}); choose another --recordings_dir") from None
    kept: dict[str, list[np.ndarray]] = {name: [] for name in observations}
    messages: list[bytes] = []
    rewards: list[float] = []
    turns: list[int] = []
    terminals: dict[int, Terminal] = {}

    def observe(record: np.ndarray) -> None:
        if len(messages) in seen:
            terminals[len(messages)] = game.terminal()
        messages.append(record["message"].tobytes().rstrip(b"\0"))
        turns.append(game.turn())
        for name, values in kept.items():
            values.append(record[name].copy())

    try:
        observe(game.begin())
        for action in episode.actions:
            if game.ended:
                break
            record = game.act(action)
            rewards.append(float(record["reward"]))
            observe(record)
    finally:
        game.close()
    return Replay(
        messages=messages,
        observations={name: np.stack(values) for name, values in kept.items()},
        rewards=np.array(rewards, np.float32),
        terminals=terminals,
        turns=np.array(turns),
        mismatch=_mismatch(episode, game.stats),
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
