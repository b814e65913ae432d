"""Policies of earlier runs: to begin with, or to be guided by."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from oni_jax.envs.registry import env_spec
from oni_jax.host.reporting import report
from oni_jax.host.run_files import CHECKPOINTS
from oni_jax.networks.guided import GuidedPolicy
from oni_jax.networks.policy import ActorCritic, policy_and_shapes
from oni_jax.networks.registry import policy_observations
from oni_jax.parallel import Replicas
from oni_jax.runs.checkpointing import restore_params
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, counted, settings
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import EnvSpec, PyTree


class Pretrained(NamedTuple):
    """A policy of an earlier run."""

    policy: ActorCritic
    params: PyTree
    spec: EnvSpec  # spec with the observations that it reads
    env_steps: int  # its training steps


def load_pretrained(run: Run, env: EnvConfig, env_steps: int | None = None) -> Pretrained:
    """Loads the policy of a run's checkpoint, to act in an environment.

    Args:
        run: the run.
        env: it may be another one than the run's.
        env_steps: of the checkpoint; None: of the newest that can be read.

    Raises:
        UserError: there is no such run or checkpoint, or it was trained on another kind of task.
    """
    learnt, network = run.plan.policy_spec, run.plan.config.network
    spec = env_spec(env, policy_observations(network))
    if (spec.num_actions, spec.observations) != (learnt.num_actions, learnt.observations):
        raise UserError(
            f"{env.root_env} as chosen has other actions or observations than {run.config.env.root_env}, on which "
            f"{run.name} was trained: choose that with --root_env and the settings "
            "of its actions and its view, or one like it"
        )
    policy, shapes = policy_and_shapes(network, spec)
    found, params = restore_params(os.path.join(run.folder, CHECKPOINTS), shapes, env_steps)
    return Pretrained(policy, params, spec, found)


def initial_params(config: Config) -> PyTree:
    """Loads the parameters of --init_from. Raises UserError: as `load_pretrained`, or its network is another."""
    folder = config.pretrained.init_from
    learnt = {field.name: value for field, value in settings(Run(folder).plan.config.network)}
    for field, value in settings(config.network):
        if value != (before := learnt.get(field.name, field.default)):
            raise UserError(f"--{field.name} {value}: --init_from {folder} was trained with {before}; give that")
    pretrained = load_pretrained(Run(folder), config.env)
    report(f"parameters from {folder} at {counted(pretrained.env_steps, 'environment step')}")
    return pretrained.params


class Actor(NamedTuple):
    """The policy that acts while one learns."""

    policy: Any  # object with ActorCritic's interface for acting
    params_of: Callable[[PyTree, np.float32], PyTree]  # as in `learner.guidance`
    policy_state: Callable[[PyTree], PyTree]  # state of its recurrent core -> that of the policy's


def make_actor(config: Config, policy: ActorCritic, replicas: Replicas) -> Actor:
    """Makes the actor: the policy itself, or guided by an earlier run's. Raises UserError: as `load_pretrained`."""
    settings = config.pretrained
    if not settings.guide:
        return Actor(policy, lambda params, probability: params, lambda state: state)
    guide = load_pretrained(Run(settings.guide), config.env)
    report(f"guided by {settings.guide} at {counted(guide.env_steps, 'environment step')}")
    frozen = replicas.put(guide.params)

    def params_of(params: PyTree, probability: np.float32) -> PyTree:
        return params, frozen, probability

    return Actor(GuidedPolicy(policy, guide.policy), params_of, lambda state: state[0])
