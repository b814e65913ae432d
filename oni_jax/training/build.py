"""Builds the parts of a training run, runs them, and shuts them down."""

import dataclasses
from contextlib import ExitStack, closing
from typing import Any

import jax

from oni_jax.host.caches import keep_compiled_code
from oni_jax.host.gpu import why_no_gpu
from oni_jax.host.reporting import report
from oni_jax.host.runtime import StopRequest
from oni_jax.learner.guidance import Guidance
from oni_jax.learner.peers.meeting import joined
from oni_jax.learner.peers.peers import SINGLE_PROCESS, Peers, SingleProcess
from oni_jax.learner.update import make_optimizer
from oni_jax.parallel import Replicas
from oni_jax.runs.experiment import experiment_folder, open_experiment, write_settings
from oni_jax.runs.kept import keep_files
from oni_jax.runs.plan import Plan
from oni_jax.runs.pretrained import make_actor
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.training.loop import OnRow, Training
from oni_jax.training.memory import check_memory
from oni_jax.training.parts import (
    USUAL,
    Makers,
    build_step,
    build_world,
    fresh_state,
    resume_acting,
    resume_state,
)
from oni_jax.training.plan import resolve


def run(config: Config, stop: StopRequest, makers: Makers = USUAL, on_row: OnRow = lambda row: None) -> None:
    """Trains until a limit of `config.run` or a stop request, and saves. `on_row` is called with each row of metrics.

    Raises:
        UserError: bad input, or too little memory on the accelerator; all that was started is stopped.
        ChildError: an actor process or the annotation service died; a checkpoint is saved.
    """
    keep_compiled_code()
    known: Any = jax.config
    if config.devices.cpu_devices != max(1, known.jax_num_cpu_devices):  # JAX refuses it together with XLA's flag
        try:
            jax.config.update("jax_num_cpu_devices", config.devices.cpu_devices)
        except RuntimeError:  # JAX has computed
            asked, number = config.devices.cpu_devices, jax.local_device_count("cpu")
            raise UserError(
                f"--cpu_devices {asked}: this process computes with {number} already; start another one"
            ) from None
    with joined(config.devices, stop) as peers:
        try:
            _train(resolve(config, num_processes=peers.num), stop, peers, makers, on_row)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise UserError(
                f"{str(error).splitlines()[0]}: lower --batch_size, --num_envs_per_worker or --hidden_size"
            ) from error


def _train(plan: Plan, stop: StopRequest, peers: SingleProcess | Peers, makers: Makers, on_row: OnRow) -> None:
    config = plan.config
    if peers.is_primary:
        _explain(plan)
    with ExitStack() as stack:
        folder = stack.enter_context(open_experiment(config, stop)) if peers.is_primary else experiment_folder(config)
        peers.check_settings(config)  # also waits for the folder
        training = build_training(plan, folder, stack, peers, makers)
        if peers.is_primary:
            write_settings(config, folder)
            if differing := keep_files(plan, folder):
                report(f"changed since this run was last started: {', '.join(differing)}")
        if not stop or peers.num > 1:
            stop.awaits("the compilation is done")
            training.train(stop, on_row)
        else:
            training.leave(stop)


def _explain(plan: Plan) -> None:
    """Reports the settings chosen for this machine and environment, and probable mistakes."""
    for choice in plan.chosen:
        report(f"--{choice.flag} {choice.value} suits this {choice.suits}: {choice.reason}")
    if reason := why_no_gpu(jax.default_backend()):
        report(reason)
    terms = plan.config.terms()
    if not plan.config.reward.extrinsic_reward_coeff and not any(term.reward.llm_reward_coeff for term in terms):
        report("warning: --extrinsic_reward_coeff 0 and no intrinsic reward: nothing is learnt")
    if plan.config.annotation.llm_server_addr and not plan.questions:
        report("warning: --llm_server_addr: nothing in this run asks an LLM")


def build_training(
    plan: Plan,
    folder: str,
    stack: ExitStack,
    peers: SingleProcess | Peers = SINGLE_PROCESS,
    makers: Makers = USUAL,
) -> Training:
    """Builds all parts of a run, as the picture in docs/design.md shows them; `stack` closes them in reverse order."""
    config, replicas = plan.config, Replicas(plan.devices.learning)
    # The policy, its rewards, and the LLM.
    policy = makers.policy(config.network, plan.policy_spec)
    rewards = makers.rewards(config, plan.world_spec, replicas)
    spec = rewards.read_from(plan.world_spec)
    annotator = stack.enter_context(makers.annotator(plan, folder, peers.is_primary))
    # The training state: new, or a checkpoint's.
    optimizer = make_optimizer(config.learner)
    checkpoints = stack.enter_context(closing(makers.open_checkpoints(config, folder))) if peers.is_primary else None
    shapes = jax.eval_shape(lambda: makers.params(policy, spec, jax.random.key(0)))
    check_memory(plan, sum(x.size for x in jax.tree.leaves(shapes)), peers.num)
    state = fresh_state(config.run.seed, policy, spec, rewards, optimizer, makers.params)
    state, saved, progress = resume_state(config, state, checkpoints, annotator.labels_of, folder, peers)
    # Its final sharding: another one after the reward's first gradient step would compile the update again.
    state = replicas.put(state)
    if saved:
        rewards.restore(saved.reward)
    rewards.save()  # state that no checkpoint can hold fails now, rather than hours later
    # The world. Each process collects its part of a batch.
    actor = make_actor(config, policy, replicas)
    before = progress.env_steps, progress.reward_sum, progress.steps_before_reward
    guidance = Guidance(config.pretrained, config.learner.batch_size, actor.params_of, *before)
    acted = state._replace(params=guidance.acting_params(state.params))
    part = with_values(config, {"batch_size": config.learner.batch_size // peers.num})
    here = dataclasses.replace(plan, config=part)
    world = build_world(here, spec, actor, acted, progress, peers, replicas, rewards.goal_model)
    stack.enter_context(closing(world))
    world.suggest_by(rewards.acting(state.reward_state))
    resumed = resume_acting(world, saved, progress)
    # The learner.
    step = build_step(plan, peers.num, policy, rewards, world, actor.policy_state, optimizer, replicas)
    learner = makers.learner(step, rewards, world, annotator, state, progress.updates, peers, guidance)
    learner.running_returns.restore(resumed)
    return Training(plan, folder, learner, world, annotator, checkpoints, progress)
