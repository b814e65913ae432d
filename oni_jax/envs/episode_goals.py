"""Environments whose episodes have goals, which a policy sees: one agent for all goals of --goal_key.

An episode's goal is drawn at its start, and again after every --goal_steps. The draws depend on the seed, on the
environment's index and on the episode's number alone. Two observations, shown when they are asked for by name:
`episode_goal` [] int32, the goal's index, by which a reward looks up labels; `goal_features` [F] float32, what the
policy sees of it, one-hot or the hashed words of a text.
"""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oni_jax.envs.base import Environment, StepOutput, VectorEnv, VectorEnvWrapper
from oni_jax.ops.words import hashed_words
from oni_jax.settings.fields import UserError, given
from oni_jax.settings.worlds import EnvConfig, EpisodeGoalConfig
from oni_jax.types import EPISODE_GOAL, GOAL_FEATURES, ArraySpec, EnvSpec

if TYPE_CHECKING:
    from oni_jax.envs.device.base import DeviceEnv

SHOWN = (EPISODE_GOAL, GOAL_FEATURES)
NUM_TEXT_FEATURES = 64
SEPARATOR = "|"  # separator of texts
_DRAWS = 0x60A2  # apart from the environments' other random numbers


def goal_names(settings: EpisodeGoalConfig) -> Sequence[str]:
    """Returns the names of the goals; none: episodes have no goals."""
    return settings.names.split(",") if settings.names else ()


def goal_probabilities(settings: EpisodeGoalConfig) -> np.ndarray:
    """Returns how often each goal is drawn [G] float64. Raises UserError: the weights are not valid."""
    names, given = goal_names(settings), settings.weights
    try:
        weights = np.array([float(text) for text in given.split(",")]) if given else np.ones(len(names))
    except ValueError:
        raise UserError(f"--goal_weights {given}: must be numbers with commas between them") from None
    if len(weights) != len(names):
        raise UserError(f"--goal_weights {given}: give one for each of {', '.join(names)}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise UserError(f"--goal_weights {given}: must be finite, not negative, and not all 0")
    return weights / weights.sum()


@functools.lru_cache(maxsize=8)
def feature_table(settings: EpisodeGoalConfig) -> np.ndarray:
    """Returns what a policy sees of each goal [G, F] float32. Raises UserError: the texts are not one for each."""
    names = goal_names(settings)
    if not settings.texts:
        return np.eye(len(names), dtype=np.float32)
    texts = settings.texts.split(SEPARATOR)
    if len(texts) != len(names):
        raise UserError(
            f"--goal_texts {settings.texts}: give one for each of {', '.join(names)}, with {SEPARATOR} between"
        )
    return np.stack([hashed_words(text, NUM_TEXT_FEATURES) for text in texts])


def goal_spec(spec: EnvSpec, settings: EpisodeGoalConfig) -> EnvSpec:
    table = feature_table(settings)
    shown = {
        EPISODE_GOAL: ArraySpec((), "int32", num_ids=len(table)),
        GOAL_FEATURES: ArraySpec((table.shape[1],), "float32"),
    }
    return spec._replace(observations={**spec.observations, **shown})


def check_episode_goals(settings: EpisodeGoalConfig) -> None:
    """Raises UserError: a setting is not valid, or has no meaning without several goals."""
    if not settings.names:
        for name, value in given(settings).items():
            raise UserError(f"--{name} {value}: has no meaning without several goals in --goal_key; leave it out")
        return
    goal_probabilities(settings)
    feature_table(settings)


def with_episode_goals(environment: Environment) -> Environment:
    """Returns the environment with a goal for each episode, as its settings say."""

    def make_spec(config: EnvConfig) -> EnvSpec:
        return goal_spec(environment.make_spec(config), config.episode_goal)

    def make(config: EnvConfig, shown: EnvSpec, num_envs: int, seed: int, first_index: int) -> VectorEnv:
        made = environment.make(config, _without_goals(shown), num_envs, seed, first_index)
        return GoalVectorEnv(made, shown, config.episode_goal, seed, first_index)

    def device(config: EnvConfig) -> "DeviceEnv":
        # Imported here: JAX is needed where environments run, not where they are named
        from oni_jax.envs.device.episode_goals import WithEpisodeGoal

        assert environment.device is not None
        return WithEpisodeGoal(environment.device(config), config.episode_goal)

    display = environment.display
    if display:
        watch = display.watch

        def watched(config: EnvConfig, shown: EnvSpec, seed: int, index: int, number: int, ttyrec: str) -> Any:
            made = watch(config, _without_goals(shown), seed, index, number, ttyrec)
            return GoalVectorEnv(made, shown, config.episode_goal, seed, index, number)

        display = display._replace(watch=watched)
    changed = {"make_spec": make_spec, "make": make, "display": display}
    on_request = (*environment.on_request, *SHOWN)
    return environment._replace(**changed, device=environment.device and device, on_request=on_request)


def _without_goals(shown: EnvSpec) -> EnvSpec:
    return shown._replace(observations={name: x for name, x in shown.observations.items() if name not in SHOWN})


class GoalVectorEnv(VectorEnvWrapper):
    """Environments of the host whose episodes have goals.

    Args:
        env: environments without goals.
        spec: spec of the environments, with the observations to show.
        settings: settings of the goals.
        seed, first_index: environment i draws its goals by (seed, first_index + i).
        first_number: number of the episodes that come first.
    """

    def __init__(
        self, env: Any, spec: EnvSpec, settings: EpisodeGoalConfig, seed: int, first_index: int, first_number: int = 0
    ):
        super().__init__(env, spec)
        self._names: Collection[str] = {*SHOWN} & {*spec.observations}
        self._table, self._every = feature_table(settings), settings.steps
        self._bounds = np.cumsum(goal_probabilities(settings))
        self._seed, self._first_index = seed, first_index
        # State of the running episodes; the steps are counted where they matter
        self._goals, self._steps = np.zeros((2, self.num_envs), np.int32)
        self._features = self._table[self._goals]
        self._numbers = np.full(self.num_envs, first_number - 1, np.int32)

    def reset(self, out: StepOutput) -> None:
        self._env.reset(out)
        self._begin(np.ones(self.num_envs, bool))
        self._show(out.records)

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        self._env.step(actions, out)
        first = out.records["is_first"]
        has_ended = True in first.tolist()  # list: quicker than any() for a few environments
        if has_ended:
            self._show(out.finals)
        if self._every:
            self._steps += 1
            self._draw(np.flatnonzero(~first & (self._steps % self._every == 0)))
        if has_ended:
            self._begin(first)
        self._show(out.records)

    def choose(self, goal: int) -> None:
        """Gives all running episodes this goal from their next observation on."""
        self._goals[:] = goal
        self._features = self._table[self._goals]

    def _begin(self, chosen: np.ndarray) -> None:
        self._numbers[chosen] += 1
        self._steps[chosen] = 0
        self._draw(np.flatnonzero(chosen))

    def _draw(self, rows: np.ndarray) -> None:
        for i in rows.tolist():
            count = self._steps[i] // self._every if self._every else 0
            parts = [self._seed, self._first_index + i, int(self._numbers[i]), int(count)]
            draw = np.random.default_rng(np.random.SeedSequence(parts, spawn_key=(_DRAWS,))).random()
            self._goals[i] = min(np.searchsorted(self._bounds, draw, side="right"), len(self._bounds) - 1)
        self._features = self._table[self._goals]

    def _show(self, records: np.ndarray) -> None:
        if EPISODE_GOAL in self._names:
            records[EPISODE_GOAL] = self._goals
        if GOAL_FEATURES in self._names:
            records[GOAL_FEATURES] = self._features

    def save(self) -> Mapping[str, np.ndarray]:
        saved = self._env.save()
        goals = {"goal": self._goals, "goal_steps": self._steps, "goal_episodes": self._numbers}
        goals = {**goals, "goal_seed": np.array(self._seed)}
        return saved and {**saved, **{name: x.copy() for name, x in goals.items()}}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._env.restore(saved)
        self._goals[:], self._steps[:] = saved["goal"], saved["goal_steps"]
        self._numbers[:], self._seed = saved["goal_episodes"], int(saved["goal_seed"])
        self._features = self._table[self._goals]


def goal_features(settings: EpisodeGoalConfig, goal: str) -> np.ndarray:
    """Returns what a policy sees of a goal [F] float32. Raises UserError: see `fixed_goal`."""
    settings = fixed_goal(settings, goal)
    return feature_table(settings)[goal_probabilities(settings).argmax()]


def fixed_goal(settings: EpisodeGoalConfig, goal: str, flag: str = "goal") -> EpisodeGoalConfig:
    """Returns settings by which all episodes have this goal: one by name, or any text where the policy reads texts.

    Raises:
        UserError: episodes have no goals, or there is no such goal.
    """
    names = goal_names(settings)
    if not names:
        raise UserError(f"--{flag} {goal}: this run was trained for one goal; leave it out")
    index = names.index(goal) if goal in names else 0
    weights = ",".join("1" if i == index else "0" for i in range(len(names)))
    settings = dataclasses.replace(settings, weights=weights, steps=0)
    if goal in names:
        return settings
    if not settings.texts:
        raise UserError(f"--{flag} {goal}: must be one of {', '.join(names)}")
    if not goal.strip() or SEPARATOR in goal:
        raise UserError(f"--{flag} {goal}: must be a text without {SEPARATOR}")
    texts = [goal, *settings.texts.split(SEPARATOR)[1:]]
    return dataclasses.replace(settings, texts=SEPARATOR.join(texts))
