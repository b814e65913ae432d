"""Replays episodes of an evaluation from their seeds and actions, and keeps what a terminal shows of them."""

import contextlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.display import Terminal, WatchedEnv
from oni_jax.envs.episode_goals import goal_names
from oni_jax.envs.goals import Suggested
from oni_jax.envs.history import with_history
from oni_jax.envs.registry import base_spec, display_of, env_spec, make_vector_env
from oni_jax.evaluation.episodes import NUM_SLOTS, Episode, evaluation_seed
from oni_jax.evaluation.intrinsic import NewestSteps, Scorer
from oni_jax.evaluation.playing import Envs, RecordedAgent, Step, play
from oni_jax.evaluation.results import Evaluation
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import EPISODE_GOAL, EVERYTHING

BEST, MEDIAN, WORST = "best", "median", "worst"


class Choice(NamedTuple):
    """An episode worth watching, and its rank."""

    rank: str  # best, median or worst
    position: int  # counts from 1 within the rank
    episode: Episode


class Replay(NamedTuple):
    """A replayed episode of L steps. Index t of L + 1 is before action t, or the end."""

    captions: Sequence[bytes]  # [L + 1]
    rewards: np.ndarray  # [L] float32, the environment's
    intrinsic: np.ndarray  # [K, L] float32, before the coefficients; NaN where they can't be computed
    terminals: dict[int, Terminal]  # t -> terminal, where requested; empty without a terminal
    turns: Sequence[int | None]  # [L + 1] game times, where there are any; empty without a terminal
    goals: Sequence[str]  # [L + 1] of the episode, where it has one that a reward pays by; else empty
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
    env: EnvConfig,
    suggested: Suggested | None,
    seed: int,
    index: int,
    observations: Collection[str] = (),
    ttyrec: str = "",
) -> WatchedEnv | None:
    """Makes the environment of episode `index` of the evaluations with this seed; None: it can't be watched.

    suggested: see `find_environment`.

    Raises OSError: see `Display`.
    """
    number, slot = divmod(index, NUM_SLOTS)
    display = display_of(env, suggested)
    if display is None:
        return None
    watched = display.watch(env, base_spec(env, observations), evaluation_seed(seed), slot, number, ttyrec)
    return with_history(watched, env_spec(env, observations))  # type: ignore


class _Recorder:
    """Record of a replayed episode.

    Args:
        seen: see `replay`.
        scorer: of its steps.
        watched: the environment, if it can be watched.
    """

    def __init__(self, seen: Collection[int], scorer: Scorer | None, watched: WatchedEnv | None):
        self._seen, self._scorer, self._watched = seen, scorer, watched
        self._newest = NewestSteps(scorer.spec) if scorer else None
        self.captions: list[bytes] = []
        self.rewards: list[float] = []
        self.turns: list[int | None] = []
        self.terminals: dict[int, Terminal] = {}
        self.goals: list[int] = []
        self.stats: list[float] = []  # empty before the end
        self._scored = [np.zeros((len(scorer.labels), 0), np.float32)] if scorer else []

    def begin(self, step: Step) -> None:
        """Takes in the step that shows the first observation."""
        self._observe(step, step.captions[int(step.texts["caption"][0])])

    def add(self, step: Step) -> None:
        self.rewards.append(float(step.records["reward"][0]))
        self.stats = step.stats[0].tolist() if step.ended else []
        self._observe(step, step.seen(0)[1])

    def _observe(self, step: Step, caption: bytes) -> None:
        if self._watched:
            self.turns.append(self._watched.turn())
            if len(self.captions) in self._seen:
                self.terminals[len(self.captions)] = self._watched.terminal()
        self.captions.append(caption)
        if EPISODE_GOAL in (step.records.dtype.names or ()):
            self.goals.append(int(step.seen(0)[0][EPISODE_GOAL]))
        if self._newest and self._newest.add(step):
            self._score()

    def _score(self) -> None:
        assert self._scorer and self._newest
        steps, num = self._newest.take()
        self._scored.append(self._scorer.score(steps)[:, :num, 0])

    def intrinsic(self) -> np.ndarray:
        """Returns the intrinsic rewards of all steps [K, L]."""
        if self._newest and self._newest.num > 0:
            self._score()
        return np.concatenate(self._scored, axis=1) if self._scorer else np.zeros((0, len(self.rewards)), np.float32)


def replay(
    env: EnvConfig,
    evaluation: Evaluation,
    episode: Episode,
    ttyrec: str,
    seen: Collection[int],
    scorer: Scorer | None = None,
    suggested: Suggested | None = None,
) -> Replay:
    """Replays an episode.

    Args:
      env: the player's settings.
      evaluation: holds the episode.
      episode: the episode.
      ttyrec: file to which a real terminal's output is recorded.
      seen: indices t of the terminals to return.
      scorer: of the intrinsic rewards.
      suggested: the player's.

    Raises:
      UserError: the file can't be written.
    """
    goal = [EPISODE_GOAL] if env.episode_goal.names else []
    spec = scorer.spec if scorer else env_spec(env, [EVERYTHING, *goal])
    index, seed = episode.index, evaluation.seed
    first, names = index, tuple(spec.observations)
    try:
        game = watched = watched_episode(env, suggested, seed, index, names, ttyrec)
        if game is None:  # it is played after the earlier episodes of its slot
            first = index % NUM_SLOTS
            game = make_vector_env(env, 1, evaluation_seed(seed), first, names, suggested)
    except OSError as error:
        raise UserError(f"{ttyrec}: can't be written ({error.strerror}); choose another --recordings_dir") from None
    kept, num_steps = _Recorder(seen, scorer, watched), len(episode.actions)
    agent = RecordedAgent({**{x.index: x.actions for x in evaluation.episodes}, index: episode.actions})
    envs = Envs(lambda **_: game, spec, first=first, stride=NUM_SLOTS)
    with contextlib.closing(play(envs, agent, index + 1)) as steps:
        for step in steps:
            playing, number = int(step.episodes[0]), int(step.steps[0])
            if playing == index and number:
                kept.add(step)
            elif playing == index or (step.ended and playing + NUM_SLOTS == index):
                kept.begin(step)
            if playing == index and number == num_steps:
                break
    return Replay(
        captions=kept.captions,
        rewards=np.array(kept.rewards, np.float32),
        intrinsic=kept.intrinsic(),
        terminals=kept.terminals,
        turns=kept.turns,
        goals=[goal_names(env.episode_goal)[goal] for goal in kept.goals],
        mismatch=_mismatch(episode, dict(zip(spec.episode_stats, kept.stats))),
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
