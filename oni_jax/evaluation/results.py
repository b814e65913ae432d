"""Results of an evaluation: a player's statistics, and differences between two players."""

import collections
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.evaluation import statistics
from oni_jax.evaluation.episodes import Episode, has_goal, succeeded
from oni_jax.evaluation.statistics import Difference, Fraction, Summary, difference, fraction, summarise

# Statistic of an environment -> its name here. Others keep theirs; `end_status` is reported in words.
NAMES = {"dlvl": "depth", "xlvl": "experience level", "scout": "explored squares"}


class Evaluation(NamedTuple):
    """The episodes of a player."""

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

    @property
    def complete(self) -> bool:
        return len(self.episodes) == self.num_episodes

    def measures(self) -> dict[str, np.ndarray]:
        """Returns {name: [E] float64}, the measures of each episode."""
        names = [name for name in self.episodes[0].stats if name != "end_status"]
        return {NAMES.get(name, name): np.array([episode.stats[name] for episode in self.episodes]) for name in names}

    def summaries(self) -> dict[str, Summary]:
        return {name: summarise(values) for name, values in self.measures().items()}

    def ends(self) -> dict[str, Fraction]:
        """Returns the fraction of each reason for an end, the most frequent first."""
        counts = collections.Counter(sorted(episode.end for episode in self.episodes))
        return {end: fraction(count, len(self.episodes)) for end, count in counts.most_common()}

    def success(self) -> Fraction | None:
        """Returns the fraction of episodes that reached the goal; None for a task without one."""
        if not has_goal(self.root_env):
            return None
        return fraction(sum(map(succeeded, self.episodes)), len(self.episodes))


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
    found = {name: difference(values[0][name], values[1][name]) for name in values[0]}
    if has_goal(first.root_env):
        successes = [np.array([succeeded(episode) for episode in side.episodes]) for side in pair]
        found["success"] = statistics.fraction_difference(*successes)
    return len(common), found
