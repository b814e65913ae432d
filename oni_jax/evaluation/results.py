"""Results of an evaluation: a player's statistics, and differences between two players."""

import collections
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.evaluation.episodes import SUCCESS, Episode, succeeded
from oni_jax.ops import statistics
from oni_jax.ops.episode_sums import INTRINSIC_RETURN
from oni_jax.ops.statistics import (
    Difference,
    Fraction,
    Score,
    Summary,
    difference,
    fraction,
    summarise,
    summarise_achievements,
)

# Statistic of an environment -> its name here. Others keep theirs; ELSEWHERE are not reported as measures.
NAMES = {"dlvl": "depth", "xlvl": "experience level", "scout": "explored squares"}
ELSEWHERE = ("end_status", SUCCESS)
STEPS_TO_SUCCESS = "steps to success"


class Evaluation(NamedTuple):
    player: str
    experiment: str  # "" for random actions
    env_steps: int | None
    policy: str
    root_env: str
    max_episode_steps: int
    seed: int
    num_episodes: int  # requested
    episodes: Sequence[Episode]  # at least one
    interrupted: str = ""  # reason
    achievements: tuple[str, ...] = ()  # see `EnvSpec`
    labels_by: str = ""  # source of the labels that the player was trained with, in words
    goals: Mapping[str, str] = {}  # settings of the goals that were asked for, other than the run's
    not_reported: Mapping[str, str] = {}  # rewards that it was trained with and can't be computed here, and why

    @property
    def complete(self) -> bool:
        return len(self.episodes) == self.num_episodes

    def measures(self) -> dict[str, np.ndarray]:
        """Returns {name: [E] float64}, the measures of each episode."""
        names = [name for name in self.episodes[0].stats if name not in (*ELSEWHERE, *self.achievements)]
        found = {NAMES.get(name, name): np.array([x.stats[name] for x in self.episodes]) for name in names}
        rows = [named_returns(episode) for episode in self.episodes]
        return {**found, **{name: np.array([row[name] for row in rows]) for name in rows[0]}}

    def summaries(self) -> dict[str, Summary]:
        """Returns {name: of a measure}; with the statistic SUCCESS also of the lengths of successful episodes."""
        measures, successes = self.measures(), self.successes()
        if successes is not None and SUCCESS in self.episodes[0].stats and successes.any():
            measures[STEPS_TO_SUCCESS] = measures["length"][successes]
        return {name: summarise(values) for name, values in measures.items()}

    def ends(self) -> dict[str, Fraction]:
        """Returns the fraction of each reason for an end, the most frequent first."""
        counts = collections.Counter(sorted(episode.end for episode in self.episodes))
        return {end: fraction(count, len(self.episodes)) for end, count in counts.most_common()}

    def successes(self) -> np.ndarray | None:
        """Returns [E] bool, the goal was reached; None for a task without one."""
        found = [succeeded(self.root_env, episode) for episode in self.episodes]
        return None if None in found else np.array(found)

    def success(self) -> Fraction | None:
        """Returns the fraction of episodes that reached the goal; None for a task without one."""
        successes = self.successes()
        return None if successes is None else fraction(int(successes.sum()), len(successes))

    def achievement_rates(self) -> dict[str, Fraction]:
        """Returns the fraction of episodes with each achievement."""
        counts = zip(self.achievements, self._achieved().sum(axis=0).tolist())
        return {name: fraction(count, len(self.episodes)) for name, count in counts}

    def score(self) -> Score | None:
        """Returns the score of the achievements; None for a task without any."""
        return summarise_achievements(self._achieved()) if self.achievements else None

    def _achieved(self) -> np.ndarray:
        """Returns [E, A] bool, episodes by achievements."""
        return np.array([[episode.stats[name] > 0 for name in self.achievements] for episode in self.episodes])

    def behaviours(self) -> dict[str, np.ndarray]:
        """Returns {name: [E] float64}: the measures, success and achievements of each episode."""
        successes = self.successes()
        found = {} if successes is None else {SUCCESS: successes.astype(np.float64)}
        achieved = dict(zip(self.achievements, self._achieved().T.astype(np.float64))) if self.achievements else {}
        return {**self.measures(), **found, **achieved}


def named_returns(episode: Episode) -> dict[str, float]:
    """Returns an episode's intrinsic returns by the names of training's metrics."""
    return {f"{INTRINSIC_RETURN}{label}": x for label, x in episode.intrinsic_returns.items()}


def differences(first: Evaluation, second: Evaluation) -> tuple[int, dict[str, Difference]]:
    """Returns the number of episodes that both finished, and for these each measure's first minus second."""
    common = {episode.index for episode in first.episodes} & {episode.index for episode in second.episodes}
    if not common:
        return 0, {}
    pair = [
        side._replace(episodes=[episode for episode in side.episodes if episode.index in common])
        for side in (first, second)
    ]
    values = [side.measures() for side in pair]
    # Not of the intrinsic returns, each by a player's rewards.
    names = [name for name in values[0] if not name.startswith(INTRINSIC_RETURN)]
    found = {name: difference(values[0][name], values[1][name]) for name in names}
    successes = [side.successes() for side in pair]
    if successes[0] is not None and successes[1] is not None:
        found[SUCCESS] = statistics.fraction_difference(successes[0], successes[1])
    return len(common), found
