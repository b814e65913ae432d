"""An episode played step by step, with the labels, rewards and totals shown beside its screen."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from oni_jax.envs.display import ActionKey, WatchedEnv
from oni_jax.envs.episode_goals import GoalVectorEnv
from oni_jax.evaluation.episodes import end_of
from oni_jax.evaluation.intrinsic import NewestSteps, Scorer, Steps
from oni_jax.evaluation.playing import Agent, Envs, Step, play
from oni_jax.settings.fields import counted
from oni_jax.settings.rewards import RewardConfig
from oni_jax.show.keys import action_text
from oni_jax.show.labels import Label, Labels
from oni_jax.types import EPISODE_GOAL, EnvSpec


class _Chosen(Agent):
    """Takes the actions that are chosen elsewhere."""

    action = 0

    def act(self, group: int, records: np.ndarray, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        return np.array([self.action], np.int32)


class Session:
    """One episode of a task.

    Attributes:
      game: its environment.
      keys: of its actions.
      scorer: of the intrinsic rewards.
      record: the newest observation.
      step_count, returned: steps and return of the episode so far.
      action, reward: the last step's.
      message, said, count: the newest message, its labels by the rewards' names, and its episodic count.
      rewards: [K] intrinsic rewards, each of the newest state or of the step that led to it, as it is paid for.
      totals: [K] their sums over the episode.
      end: reason for the episode's end; "" while it runs.
      hint: a remark on the last key.
      goals: of an agent of several: their names.
    """

    def __init__(
        self,
        game: WatchedEnv,
        keys: tuple[ActionKey, ...],
        max_episode_steps: int,
        labels: Mapping[str, Labels],
        scorer: Scorer,
        goals: Sequence[str] = (),
    ):
        self.goals = goals
        self.game, self.keys, self.max_episode_steps = game, keys, max_episode_steps
        self.scorer, self._labels, self._chosen = scorer, labels, _Chosen()
        self._newest = NewestSteps(scorer.spec, num_at_once=2)
        self.totals = np.zeros(len(scorer.labels))
        self.step_count, self.returned = 0, 0.0
        self.action, self.reward, self.end, self.hint = "", 0.0, "", ""
        self.chosen_goal = ""  # goal chosen by `next_goal`, for the next step
        self._steps = play(Envs(lambda **_: game, scorer.spec), self._chosen, 1)
        self._observe(next(self._steps))

    def step(self, action: int) -> None:
        """Takes an action of a running episode."""
        self._chosen.action = action
        step = next(self._steps)
        self.step_count, self.chosen_goal = self.step_count + 1, ""
        row = step.records[0]
        self.action, self.reward, self.hint = action_text(self.keys[action]), float(row["reward"]), ""
        self.returned += self.reward
        if step.ended:
            stats = dict(zip(self.scorer.spec.episode_stats, step.stats[0].tolist()))
            self.end = end_of(stats, bool(row["truncated"]), self.max_episode_steps, self.reward)
        self._observe(step)

    @property
    def goal(self) -> str:
        """The goal of the newest observation; "" where there is none."""
        return self.goals[int(self.record[EPISODE_GOAL])] if self.goals else ""

    def next_goal(self) -> None:
        """Switches to the next of several goals, from the next step on."""
        chosen = (self.goals.index(self.chosen_goal or self.goal) + 1) % len(self.goals)
        cast(GoalVectorEnv, self.game).choose(chosen)
        self.chosen_goal = self.goals[chosen]

    def summary(self) -> str:
        """Returns the outcome in one line."""
        end = self.end or "left before its end"
        return f"return {self.returned:g} in {counted(self.step_count, 'step')}, {end}; intrinsic return {self.total:g}"

    @property
    def intrinsic(self) -> float:
        """The rewards' sum by their coefficients."""
        return float(self.scorer.coeffs @ self.rewards)

    @property
    def total(self) -> float:
        """The sum of the same over the episode."""
        return float(self.scorer.coeffs @ self.totals)

    def close(self) -> None:
        """Ends the episode, and closes its environment."""
        self._steps.close()

    def _observe(self, step: Step) -> None:
        self.record, self.message = step.seen(0)
        self.count = int(self.record["caption_count"])
        given = {name: labels.of(self.message) for name, labels in self._labels.items()}
        self.said: Mapping[str, Label] = {name: label for name, label in given.items() if label}
        self._newest.add(step)
        steps, num = self._newest.take()
        # The last of these two steps stays in the newest state: what is paid for that is known before an action.
        led, stays = self.scorer.score(steps)[:, [0, -1], 0].T
        self.rewards = np.where(self.scorer.pays_before, 0.0 if self.end else stays, led if num else 0.0)
        self.totals += self.rewards


class LabelScorer(Scorer):
    """Pays 1 for a helpful message, divided by n^exponent: n its occurrences in the episode so far; without JAX.

    Args:
        labels: of the messages.
        settings: of the count's exponent, and of the end of a step whose message pays.
        spec: of the environment.
    """

    source, problem = "1 for a helpful message, else 0", ""

    def __init__(self, labels: Labels, settings: RewardConfig, spec: EnvSpec):
        self.spec, self.labels, self.coeffs = spec, ("helpful",), np.ones(1)
        self._labels, self._exponent = labels, settings.captions.count_exponent
        self.pays_before = np.array([settings.captions.at == "obs"])

    def score(self, steps: Steps) -> np.ndarray:
        is_before = bool(self.pays_before[0])
        name, rows = ("caption", slice(-1)) if is_before else ("outcome_caption", slice(1, None))
        said = [self._labels.of(steps.captions[number]) for number in steps.texts[name][rows].ravel().tolist()]
        helpful = np.array([bool(label and label.helpful) for label in said], np.float32)
        counts = steps.records[f"{name}_count"][rows]
        return (helpful.reshape(counts.shape) * np.maximum(1.0, counts) ** -self._exponent)[None]
