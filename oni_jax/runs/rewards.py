"""The rewards of a run, as a checkpoint holds them."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from oni_jax.host.run_files import CHECKPOINTS
from oni_jax.rewards.registry import make_rewards
from oni_jax.rewards.terms import RewardSum
from oni_jax.runs.checkpointing import restore_reward
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation, EnvSpec, PyTree

if TYPE_CHECKING:  # it imports this
    from oni_jax.runs.run import Run


class NoRewardError(UserError):
    """A run learns from the environment's reward alone."""


class RunRewards(NamedTuple):
    """A run's rewards, as a checkpoint holds them."""

    env_steps: int  # steps of the checkpoint
    config: Config
    spec: EnvSpec  # spec with the observations that are read
    rewards: RewardSum
    state: PyTree
    saved: Mapping[str, np.ndarray]  # the host's state, `RewardSum.save`
    annotations: Sequence[Annotation]


def load_rewards(run: "Run", env_steps: int | None = None) -> RunRewards:
    """Loads the rewards of a checkpoint, with the run's labels so far; env_steps None: of the newest readable one.

    Raises:
        NoRewardError: there is no reward but the environment's.
        UserError: there is no such run, or no checkpoint that can be read.
    """
    config, spec, folder = run.plan.config, run.plan.reward_spec, run.folder
    rewards = make_rewards(config, spec, frozen=True)
    if not rewards.paying:
        raise NoRewardError(f"{folder}: its --llm_reward_type is none, so there is nothing to inspect")
    shapes = jax.eval_shape(rewards.init, jax.random.key(0))
    found, (state, saved) = restore_reward(os.path.join(folder, CHECKPOINTS), shapes, env_steps)
    try:
        rewards.restore(saved)
    except (ValueError, KeyError, TypeError):  # a stranger's, or an older version's
        raise UserError(f"{folder}: checkpoint {found} holds no reward of this version; train the run again") from None
    annotations = run.annotations()
    read = {term.question for term in rewards.terms if term.reward.reads_answers}
    rewards.ingest([annotation for annotation in annotations if annotation.question in read])
    return RunRewards(found, config, spec, rewards, state, saved, annotations)
