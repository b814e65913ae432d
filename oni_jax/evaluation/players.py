"""Players by name: a run's policy, or random actions."""

import dataclasses
import os
from typing import NamedTuple

import numpy as np

from oni_jax.envs.episode_goals import fixed_goal, goal_names
from oni_jax.envs.goals import BY_LLM, NO_GOALS, TASK, Suggested
from oni_jax.envs.registry import check_env, env_spec
from oni_jax.evaluation.agents import PolicyAgent, RandomAgent
from oni_jax.evaluation.config import ALL, BEST, GREEDY, LATEST, RANDOM, SAMPLE, EvaluationConfig
from oni_jax.evaluation.episodes import chosen_task
from oni_jax.evaluation.goals import load_goals
from oni_jax.evaluation.playing import Agent
from oni_jax.evaluation.step_rewards import Scoring, load_scoring
from oni_jax.host.plugins import with_plugins
from oni_jax.host.run_files import CHECKPOINTS, SETTINGS
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError, section_settings, with_values
from oni_jax.settings.worlds import CrafterConfig, EnvConfig
from oni_jax.types import EnvSpec


class Player(NamedTuple):
    """An agent, its origin, and the environment as it observes it."""

    experiment: str  # "" for random actions
    env_steps: int | None  # training steps; None for random actions
    policy: str  # sample, greedy, random
    env: EnvConfig
    spec: EnvSpec
    agent: Agent
    suggested: Suggested | None = None  # goals by an LLM, where the environment's are one's
    run: Run | None = None  # run that it was trained in; None for random actions
    scoring: Scoring = Scoring()  # scoring by the rewards of that run
    goal: str = ""  # goal of all its episodes, for an agent of several; "": none is asked for

    @property
    def name(self) -> str:
        return f"{self.experiment} at {self.env_steps:,} steps" if self.experiment else "random policy"


def evaluated_task(config: EvaluationConfig) -> EnvConfig:
    """Returns the task to play: the run's, unless the settings name another.

    Raises:
        UserError: there is no such run, or no such task.
    """
    folder = os.path.join(config.train_dir, config.experiment)
    if config.policy == RANDOM and config.root_env and not os.path.exists(os.path.join(folder, SETTINGS)):
        env = EnvConfig()
    else:
        env = Run(folder).plan.config.env
    env = dataclasses.replace(env, plugin=",".join(filter(None, (env.plugin, config.plugin))))
    env = dataclasses.replace(env, root_env=config.root_env or env.root_env)
    values = {field.name: value for part in config.plugin_sections for field, value in section_settings(part)}
    env = with_values(with_plugins(env, env.plugin), values)
    return chosen_task(_with_goals(config, env), env.root_env, config.max_episode_steps)


def _with_goals(config: EvaluationConfig, env: EnvConfig) -> EnvConfig:
    """Returns a run's environment with the task to play, and with who suggests the goals that its policy sees."""
    if config.crafter_task:
        check_env(EnvConfig(env.root_env, plugin=env.plugin, crafter=CrafterConfig(task=config.crafter_task)))
        suggester = env.goals.suggester
        values = {"crafter_task": config.crafter_task, "goal_suggester": TASK if suggester != NO_GOALS else suggester}
        env = with_values(env, values)
    return with_values(env, {"goal_suggester": config.goal_suggester} if config.goal_suggester else {})


def chosen_players(config: EvaluationConfig, task: EnvConfig, experiment: str | None, which: str) -> list[Player]:
    """Returns a random player if `experiment` is None, else the policies of its checkpoints selected by `which`.

    Raises:
        UserError: as `chosen_checkpoints` and `load_player`.
    """
    if experiment is None:
        spec, run = env_spec(task), Run(os.path.join(config.train_dir, config.experiment))
        goals = load_goals(run, task, None) if run.steps() else None  # none without a checkpoint
        return [Player("", None, RANDOM, task, spec, RandomAgent(spec.num_actions, config.seed), goals)]
    steps = chosen_checkpoints(config.train_dir, experiment, which)
    return [load_player(config, experiment, env_steps, task) for env_steps in steps]


def players_by_goal(config: EvaluationConfig, task: EnvConfig) -> list[Player]:
    """Returns the policies of the selected checkpoints under each of the run's goals.

    Raises:
        UserError: the run has one goal; and as `chosen_players`.
    """
    names = goal_names(Run(os.path.join(config.train_dir, config.experiment)).plan.config.env.episode_goal)
    if not names:
        raise UserError(f"--by_goal: {config.experiment} was trained for one goal; leave it out")
    asked = [dataclasses.replace(config, goal=name) for name in names]
    return [player for query in asked for player in chosen_players(query, task, query.experiment, query.checkpoint)]


def load_player(config: EvaluationConfig, experiment: str, env_steps: int | None, task: EnvConfig) -> Player:
    """Loads the policy of a run's checkpoint; env_steps None: of the newest that can be read.

    Raises:
        UserError: there is no such run or checkpoint, or it was trained on another kind of task.
    """
    run = Run(os.path.join(config.train_dir, experiment))
    drawn = run.plan.config.env.episode_goal
    # A run that it is compared with may have one goal
    goal = config.goal if drawn.names or experiment == config.experiment else ""
    episode_goal = fixed_goal(drawn, goal) if goal else drawn
    env = dataclasses.replace(task, nethack=run.config.env.nethack, episode_goal=episode_goal)
    policy, params, spec, found = run.policy(env, env_steps)
    greedy = config.policy == GREEDY
    if run.config.env.goals.suggester in BY_LLM:
        goals = load_goals(run, env, found)
    else:  # the run that it is compared with
        goals = load_goals(Run(os.path.join(config.train_dir, config.experiment)), env, None)
    agent = PolicyAgent(policy, spec, params, config.seed, greedy)
    return Player(experiment, found, GREEDY if greedy else SAMPLE, env, spec, agent, goals, run, goal=goal)


def with_scoring(player: Player) -> Player:
    """Returns a player with the rewards that it was trained with."""
    if player.run is None:
        return player
    return player._replace(scoring=load_scoring(player.run, player.env, player.env_steps))


def chosen_checkpoints(train_dir: str, experiment: str, which: str) -> list[int | None]:
    """Returns the environment steps of the checkpoints selected by `which`; [None]: the newest that can be read.

    Raises:
        UserError: there is none, or no return is recorded to find the best.
    """
    folder = os.path.join(train_dir, experiment)
    run = Run(folder)
    _ = run.config  # reports a wrong name
    if which == LATEST:
        return [None]
    steps = run.steps()
    if not steps:
        raise UserError(f"{os.path.join(folder, CHECKPOINTS)}: holds no checkpoint")
    if which == ALL:
        return [*steps]
    if which != BEST:
        return [int(which)]
    returns = _recorded_returns(run)
    until = {step: [mean for at, mean in returns if at <= step] for step in steps}
    known = {step: means[-1] for step, means in until.items() if means}
    if not known:
        raise UserError(
            f"{folder}: metrics.jsonl has no mean_return of its checkpoints, so the best is unknown; choose the "
            "latest, or a number of steps"
        )
    return [max(known, key=lambda step: (known[step], step))]


def _recorded_returns(run: Run) -> list[tuple[float, float]]:
    """Returns (env_steps, mean_return) of a run's metrics, ascending."""
    try:
        found = run.metrics(())
    except UserError:  # no rows yet
        return []
    pairs = zip(found.env_steps.tolist(), found.metrics.get("mean_return", np.zeros(0)).tolist())
    return [(step, mean) for step, mean in pairs if np.isfinite(mean)]
