"""Players by name: a run's policy, or random actions."""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import NamedTuple

from oni_jax.envs.goals import BY_LLM, NO_GOALS, TASK, Suggested
from oni_jax.envs.registry import env_spec, find_environment
from oni_jax.evaluation.agents import PolicyAgent, RandomAgent
from oni_jax.evaluation.config import ALL, BEST, GREEDY, LATEST, RANDOM, SAMPLE, EvaluationConfig
from oni_jax.evaluation.episodes import chosen_task
from oni_jax.evaluation.goals import load_goals
from oni_jax.evaluation.playing import Agent
from oni_jax.evaluation.step_rewards import Scoring, load_scoring
from oni_jax.host.run_files import CHECKPOINTS, METRICS, SETTINGS, saved_steps
from oni_jax.runs.experiment import read_settings
from oni_jax.runs.pretrained import load_pretrained
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import EnvSpec


class Player(NamedTuple):
    """An agent, its origin, and the environment as it observes it."""

    experiment: str  # "" for random actions
    env_steps: int | None  # that it was trained on; None for random actions
    policy: str  # sample, greedy, random
    env: EnvConfig
    spec: EnvSpec
    agent: Agent
    suggested: Suggested | None = None  # goals by an LLM, where the environment's are one's
    scoring: Scoring = Scoring()  # by the rewards that it was trained with

    @property
    def name(self) -> str:
        return f"{self.experiment} at {self.env_steps:,} steps" if self.experiment else "random policy"


def evaluated_task(config: EvaluationConfig) -> EnvConfig:
    """Returns the task to play: the run's own, unless the settings name another.

    Raises:
        UserError: there is no such run, or no such task.
    """
    folder = os.path.join(config.train_dir, config.experiment)
    if config.policy == RANDOM and config.root_env and not os.path.exists(os.path.join(folder, SETTINGS)):
        env = EnvConfig()
    else:
        env = read_settings(folder).env
    env = dataclasses.replace(env, plugin=",".join(filter(None, (env.plugin, config.plugin))))
    env = dataclasses.replace(env, root_env=config.root_env or env.root_env)
    return chosen_task(_with_goals(config, env), env.root_env, config.max_episode_steps)


def _with_goals(config: EvaluationConfig, env: EnvConfig) -> EnvConfig:
    """Returns a run's environment with the task to play, and with who suggests the goals that its policy sees."""
    if config.crafter_task:
        if find_environment(env).settings != "crafter":
            raise UserError(f"--crafter_task {config.crafter_task}: has no meaning in {env.root_env}; leave it out")
        suggester = env.goals.goal_suggester
        values = {"crafter_task": config.crafter_task, "goal_suggester": TASK if suggester != NO_GOALS else suggester}
        env = with_values(env, values)
    return with_values(env, {"goal_suggester": config.goal_suggester} if config.goal_suggester else {})


def chosen_players(config: EvaluationConfig, task: EnvConfig, experiment: str | None, which: str) -> list[Player]:
    """Returns a random player if `experiment` is None, else the policies of its checkpoints selected by `which`.

    Raises:
        UserError: as `chosen_checkpoints` and `load_player`.
    """
    if experiment is None:
        spec, folder = env_spec(task), os.path.join(config.train_dir, config.experiment)
        goals = load_goals(folder, task, None) if saved_steps(folder) else None  # none without a checkpoint
        return [Player("", None, RANDOM, task, spec, RandomAgent(spec.num_actions, config.seed), goals)]
    steps = chosen_checkpoints(config.train_dir, experiment, which)
    return [load_player(config, experiment, env_steps, task) for env_steps in steps]


def load_player(config: EvaluationConfig, experiment: str, env_steps: int | None, task: EnvConfig) -> Player:
    """Loads the policy of a run's checkpoint; env_steps None: of the newest that can be read.

    Raises:
        UserError: there is no such run or checkpoint, or it was trained on another kind of task.
    """
    folder = os.path.join(config.train_dir, experiment)
    run = read_settings(folder).env
    env = dataclasses.replace(task, nethack=run.nethack)
    policy, params, spec, found = load_pretrained(folder, env, env_steps)
    greedy = config.policy == GREEDY
    if run.goals.goal_suggester in BY_LLM:
        goals = load_goals(folder, env, found)
    else:  # of the run that it is compared with
        goals = load_goals(os.path.join(config.train_dir, config.experiment), env, None)
    agent = PolicyAgent(policy, spec, params, config.seed, greedy)
    return Player(experiment, found, GREEDY if greedy else SAMPLE, env, spec, agent, goals)


def with_scoring(player: Player, train_dir: str) -> Player:
    """Returns a player with the rewards that it was trained with."""
    if not player.experiment:
        return player
    scoring = load_scoring(os.path.join(train_dir, player.experiment), player.env, player.env_steps)
    return player._replace(scoring=scoring)


def chosen_checkpoints(train_dir: str, experiment: str, which: str) -> list[int | None]:
    """Returns the environment steps of the checkpoints selected by `which`; [None]: the newest that can be read.

    Raises:
        UserError: there is none, or no return is recorded to find the best.
    """
    folder = os.path.join(train_dir, experiment)
    read_settings(folder)  # reports a wrong name
    if which == LATEST:
        return [None]
    steps = saved_steps(folder)
    if not steps:
        raise UserError(f"{os.path.join(folder, CHECKPOINTS)}: holds no checkpoint")
    if which == ALL:
        return [*steps]
    if which != BEST:
        return [int(which)]
    returns = recorded_returns(os.path.join(folder, METRICS))
    until = {step: [mean for at, mean in returns.items() if at <= step] for step in steps}
    known = {step: means[-1] for step, means in until.items() if means}
    if not known:
        raise UserError(
            f"{folder}: metrics.jsonl has no mean_return of its checkpoints, so the best is unknown; choose the "
            "latest, or a number of steps"
        )
    return [max(known, key=lambda step: (known[step], step))]


def recorded_returns(path: str) -> Mapping[int, float]:
    """Returns {env_steps: mean_return} of a run's metrics, ascending; a resumed run's rows replace earlier ones."""
    returns: dict[int, float] = {}
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue  # the last one may be half written
        step, mean = row["step"], row.get("mean_return")
        if step <= next(reversed(returns), -1):
            returns = {earlier: value for earlier, value in returns.items() if earlier < step}
        if mean is not None:
            returns[step] = mean
    return returns
