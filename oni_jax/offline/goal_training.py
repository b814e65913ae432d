"""Trains a goal model on recorded answers alone, before a training; see `rewards.ellm.goal_model`."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from oni_jax.annotation.queries.suggestions import Suggestions
from oni_jax.answers.answerer import find_answerer
from oni_jax.answers.form import NO_GOAL
from oni_jax.envs.goals import MODEL
from oni_jax.envs.registry import env_spec
from oni_jax.host.held_folders import HeldFolder, held_folder
from oni_jax.host.plugins import load_plugins
from oni_jax.offline.goal_config import TrainGoals
from oni_jax.rewards.ellm.goal_rewards import save_goal_model
from oni_jax.rewards.registry import GOAL_REWARDED, make_rewards
from oni_jax.rewards.terms import RewardSum
from oni_jax.rewards.trained import holds_trained
from oni_jax.runs.plan import Plan, with_chosen_env
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.rewards import RewardConfig, RewardModelConfig
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import EnvConfig, GoalConfig
from oni_jax.types import Annotation, Item, PyTree


class Learnt(NamedTuple):
    """A goal model's agreement with answers that it has not learnt from."""

    num_answers: int
    agreement: float  # mean Jaccard index
    calibration_error: float


def train_goals(config: TrainGoals) -> Learnt:
    """Trains a model, and saves it. Raises UserError: no such answers, or captions without features."""
    load_plugins(config.plugin)
    with held_folder(config.out, "out") as folder:
        return _train(config, folder)


def _train(config: TrainGoals, folder: HeldFolder) -> Learnt:
    if holds_trained(config.out):
        raise UserError(f"--out {config.out}: holds a model already; name another folder, or remove it")
    run = run_of(config)
    file = find_answerer(run.annotation, Plan(run).language, Suggestions.name).file
    assert file
    answers = [*file.under(NO_GOAL).items()]
    order = np.random.default_rng(config.seed).permutation(len(answers))  # the newest that are held out check it
    rewards, state = learn(run, dict(answers[i] for i in order))
    params, metrics = jax.device_get(rewards.acting(state)), rewards.metrics(state)
    folder.check()
    save_goal_model(config.out, params, env_spec(run.env).goals, file.header.made_by)
    number = int(metrics["captions_answered"])
    return Learnt(number, float(metrics["goals_agreement"]), float(metrics["goals_calibration_error"]))


def run_of(config: TrainGoals) -> Config:
    """Returns the settings of a run whose goal model learns in the same way."""
    run = Config(
        network=NetworkConfig(encoder_custom="generic_encoder"),
        env=EnvConfig(
            config.root_env,
            plugin=config.plugin,
            goals=GoalConfig(suggester=MODEL),
            plugin_sections=config.plugin_sections,
        ),
        reward=RewardConfig(
            llm_reward_type=GOAL_REWARDED,
            llm_reward_coeff=1.0,
            model=RewardModelConfig(learning_rate=config.reward_model_lr, batch_size=config.reward_model_batch_size),
        ),
        annotation=AnnotationConfig(answers=config.answers),
        run=RunConfig(seed=config.seed),
    )
    return with_chosen_env(run)


def learn(run: Config, answers: Mapping[Item, bytes]) -> tuple[RewardSum, PyTree]:
    """Returns the rewards of a run whose goal model has learnt these answers, and their state.

    Raises:
        UserError: the environment's captions have no features.
    """
    rewards = make_rewards(run, env_spec(run.env))
    if rewards.other_observations:
        raise UserError(
            f"--root_env {run.env.root_env}: its captions have no features, so it learns while a run trains"
        )
    state = rewards.init(jax.random.key(run.run.seed))
    rewards.ingest([Annotation(item, answer) for item, answer in answers.items()])
    while rewards.steps_due():
        state = rewards.train_step(state)
    return rewards, state
