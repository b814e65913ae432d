"""Replays episodes of an evaluation from their seeds and actions, and keeps what a terminal shows of them."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.base import SingleEpisode, VectorEnv
from oni_jax.envs.display import Display, Terminal, WatchedEnv
from oni_jax.envs.history import with_history
from oni_jax.envs.registry import display_of, env_spec, make_vector_env, own_spec
from oni_jax.evaluation.episodes import NUM_SLOTS, Episode, evaluation_seed
from oni_jax.evaluation.results import Evaluation
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import EVERYTHING

BEST, MEDIAN, WORST = "best", "median", "worst"


class Choice(NamedTuple):
    """An episode worth watching, and its rank."""

    rank: str  # best, median or worst
    position: int  # counts from 1 within the rank
    episode: Episode


class Replay(NamedTuple):
    """A replayed episode of L steps. Index t of L + 1 is before action t, or the end."""

    captions: Sequence[bytes]  # [L + 1]
    observations: dict[str, np.ndarray]  # [L + 1, ...] each
    rewards: np.ndarray  # [L] float32, the environment's
    terminals: dict[int, Terminal]  # by t, those requested; empty without a terminal
    turns: Sequence[int | None]  # [L + 1] game times, where there are any; empty without a terminal
    terminated: bool  # it ended by the environment's rules
    mismatch: str  # difference from the episode's end; "" for none


def chosen_episodes(episodes: Sequence[Episode], num: int) -> list[Choice]:
    """Returns the `num` best, worst and median episodes by return, each episode once, in this order of choice."""
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
        choices += [Choice(rank, position, episode) for position, episode in enumerate(left, 1)]
    return choices


def watched_episode(
    display: Display, env: EnvConfig, seed: int, index: int, observations: Collection[str] = (), ttyrec: str = ""
) -> WatchedEnv:
    """Makes the environment of episode `index` of the evaluations with this seed. Raises OSError: see `Display`."""
    number, slot = divmod(index, NUM_SLOTS)
    return display.watch(env, own_spec(env, observations), evaluation_seed(seed), slot, number, ttyrec)


def _replayed(
    env: EnvConfig, evaluation: Evaluation, index: int, ttyrec: str, names: Sequence[str]
) -> tuple[VectorEnv, WatchedEnv | None, bytes]:
    """Returns an episode's environment, that again if it can be watched, and the actions to replay before it."""
    if display := display_of(env):
        watched = watched_episode(display, env, evaluation.seed, index, names, ttyrec)
        return with_history(watched, env_spec(env, names)), watched, b""
    slot = index % NUM_SLOTS
    earlier = [x.actions for x in evaluation.episodes if x.index < index and x.index % NUM_SLOTS == slot]
    made = make_vector_env(env, 1, evaluation_seed(evaluation.seed), slot, names or (EVERYTHING,))
    return made, None, b"".join(earlier)


def replay(
    env: EnvConfig,
    evaluation: Evaluation,
    episode: Episode,
    ttyrec: str,
    seen: Collection[int],
    observations: Sequence[str] = (),
) -> Replay:
    """Replays an episode.

    Args:
      env: the player's settings.
      evaluation: holds the episode.
      episode: the episode.
      ttyrec: file to which a real terminal's output is recorded.
      seen: indices t of the terminals to return.
      observations: names of those to return.

    Raises:
      UserError: the file can't be written.
    """
    try:
        game, watched, earlier = _replayed(env, evaluation, episode.index, ttyrec, observations)
    except OSError as error:
        raise UserError(f"{ttyrec}: can't be written ({error.strerror}); choose another --recordings_dir") from None
    own = SingleEpisode(game)
    kept: dict[str, list[np.ndarray]] = {name: [] for name in observations}
    captions: list[bytes] = []
    rewards: list[float] = []
    turns: list[int | None] = []
    terminals: dict[int, Terminal] = {}

    def observe(record: np.ndarray) -> None:
        if watched:
            turns.append(watched.turn())
            if len(captions) in seen:
                terminals[len(captions)] = watched.terminal()
        captions.append(own.caption())
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
        captions=captions,
        observations={name: np.stack(values) for name, values in kept.items()},
        rewards=np.array(rewards, np.float32),
        terminals=terminals,
        turns=turns,
        terminated=own.terminated,
        mismatch=_mismatch(episode, own.stats),
    )


def _mismatch(episode: Episode, stats: dict[str, float]) -> str:
    if not stats:
        return f"the replay of episode {episode.index} did not end where the episode did"
    differences = [
        f"{name} {stats[name]:g} was {value:g}" for name, value in episode.stats.items() if stats[name] != value
    ]
    if not differences:
        return ""
    return f"the replay of episode {episode.index} differs: {', '.join(differences)}"
