"""An episode played step by step, with the labels, rewards and totals shown beside its screen."""

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.base import SingleEpisode
from oni_jax.envs.display import ActionKey, WatchedEnv
from oni_jax.evaluation.episodes import end_of
from oni_jax.settings.rewards import RewardConfig
from oni_jax.show.keys import action_text
from oni_jax.show.labels import Label, Labels


class MessageReward(NamedTuple):
    """The intrinsic reward of messages."""

    give: Callable[[bytes, np.ndarray], float]  # (message, its record) -> reward before the episodic count bonus
    settings: RewardConfig
    source: str


class Session:
    """One episode of a task.

    Attributes:
      game: its environment.
      keys: of its actions.
      record: the newest observation.
      step_count, returned: steps and return of the episode so far.
      action, reward: the last step's.
      message, label, count: the newest message, its label, and its episodic count.
      pays: whether a step is rewarded for it: not for an episode's last one, or with `next_obs` its first.
      message_reward, discounted: its reward, before and after the episodic count bonus.
      total: sum of the latter over the episode.
      end: reason for the episode's end; "" while it runs.
      hint: a remark on the last key.
    """

    def __init__(
        self,
        game: WatchedEnv,
        keys: Sequence[ActionKey],
        max_episode_steps: int,
        labels: Labels,
        reward: MessageReward,
    ):
        self.game, self.keys, self.max_episode_steps = game, keys, max_episode_steps
        self._labels, self.rewarding = labels, reward
        self._counts: collections.Counter[bytes] = collections.Counter()
        self.step_count, self.returned, self.total = 0, 0.0, 0.0
        self.action, self.reward, self.end, self.hint = "", 0.0, "", ""
        self._episode = SingleEpisode(game)
        self._observe(self._episode.begin())

    def step(self, action: int) -> None:
        """Takes an action of a running episode."""
        record = self._episode.act(action)
        self.step_count += 1
        self.action, self.reward, self.hint = action_text(self.keys[action]), float(record["reward"]), ""
        self.returned += self.reward
        if self._episode.ended:
            self.end = end_of(
                self._episode.stats, bool(record["truncated"]), self.max_episode_steps, float(record["reward"])
            )
        self._observe(record)

    def summary(self) -> str:
        """Returns the outcome in one line."""
        end = self.end or "left before its end"
        return f"return {self.returned:g} in {self.step_count:,} steps, {end}; of messages {self.total:g}"

    def _observe(self, record: np.ndarray) -> None:
        self.record = record
        self.message = self._episode.caption()
        self._counts[self.message] += 1
        self.count = self._counts[self.message]
        self.label: Label | None = self._labels.of(self.message)
        settings = self.rewarding.settings
        self.pays = not self.end if settings.intrinsic_reward_at == "obs" else self.step_count > 0
        self.message_reward = self.rewarding.give(self.message, record) * self.pays
        exponent = settings.beta_count_exponent
        self.discounted = float(discount(np.array(self.message_reward), np.array(self.count), exponent))
        self.total += self.discounted


def label_reward(labels: Labels, settings: RewardConfig) -> MessageReward:
    """Returns the reward that is 1 for messages labelled helpful, else 0."""

    def give(message: bytes, record: np.ndarray) -> float:
        del record
        label = labels.of(message)
        return float(bool(label and label.helpful))

    return MessageReward(give, settings, "1 for a helpful message, else 0")


def discount(rewards: np.ndarray, counts: np.ndarray, exponent: float) -> np.ndarray:
    """Applies the episodic count bonus as `ops.shaping.episodic_count_bonus`, without JAX. Equal shapes."""
    return rewards * np.maximum(1.0, counts) ** -exponent
