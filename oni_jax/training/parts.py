"""The parts that a training run is built of, each made from the plan."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple

import jax
import numpy as np
import optax

from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.service import AnnotationService
from oni_jax.annotation.stored import check_stored
from oni_jax.answers.answerer import open_questions
from oni_jax.envs.device.history import with_history
from oni_jax.envs.registry import make_vector_env
from oni_jax.host.reporting import report
from oni_jax.host.restarts import Restarts
from oni_jax.host.run_files import CHECKPOINTS
from oni_jax.host.runtime import LOWEST_PRIORITY
from oni_jax.learner.descent import Epochs
from oni_jax.learner.loop import Annotator, Learner, NoAnnotator, Step, initial_key
from oni_jax.learner.loss import RewardCoeffs, make_loss_fn, make_targets_fn
from oni_jax.learner.peers.peers import Peers, SingleProcess
from oni_jax.learner.shards import pack_shards, shard_policy, shard_score, shard_take
from oni_jax.learner.update import TrainState, jit_update, make_update_fn
from oni_jax.networks.policy import ActorCritic, init_params, make_policy
from oni_jax.parallel import Replicas, local
from oni_jax.rewards.registry import make_rewards
from oni_jax.rewards.terms import RewardSum
from oni_jax.runs.checkpointing import Checkpoints, Saved
from oni_jax.runs.labels import store_path
from oni_jax.runs.plan import Plan
from oni_jax.runs.pretrained import Actor, initial_params
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, counted
from oni_jax.settings.learning import LearnerConfig
from oni_jax.training.loop import Progress
from oni_jax.training.memory import check_update_memory
from oni_jax.types import Array, EnvSpec, GoalModelFn, PyTree, Trajectory
from oni_jax.worlds.actors.actor_world import Acting, ActorWorld
from oni_jax.worlds.actors.lockstep import LockstepWorld
from oni_jax.worlds.base import World
from oni_jax.worlds.device.device_world import DeviceWorld
from oni_jax.worlds.device.goal_table import GOAL_ARRAYS


@contextmanager
def open_annotator(plan: Plan, folder: str, is_primary: bool = True) -> Iterator[Annotator]:
    """Runs the annotation service, and the embedded judge where no server was named; neither where nothing is asked."""
    if not (plan.questions and is_primary):
        yield NoAnnotator()
        return
    asked = plan.questions
    # Environments on a CPU have no time to spare: the process that answers takes what is left.
    shares_cpu = plan.environment.device is not None and jax.default_backend() == "cpu"
    restarts = Restarts()  # restarts of the judge and of the process that asks
    with ExitStack() as stack:
        prompts = open_questions(asked, plan.language, stack, shares_cpu, restarts)
        soft = {
            term.annotation for term in plan.config.terms_by_goal() if term.reward.llm_reward_value == "probability"
        }
        prompts = [x._replace(needs_probability=settings in soft) for x, (settings, _) in zip(prompts, asked)]
        store = LabelStore(store_path(plan.config, folder))
        store.check_writable()
        for question in prompts:
            check_stored(store, question.prompt.kind, question.recorded, question.models, question.prompt.digest)
        service = AnnotationService(prompts, store, LOWEST_PRIORITY * shares_cpu, restarts)
        try:
            yield service
        except KeyboardInterrupt:  # interrupted twice: don't wait
            service.close(grace_secs=0.0)
            raise
        finally:
            service.close()


class Makers(NamedTuple):
    """Functions that make the parts of a run; a caller may hand in others."""

    policy: Callable[..., ActorCritic] = make_policy
    params: Callable[..., PyTree] = init_params
    rewards: Callable[..., RewardSum] = make_rewards
    annotator: Callable[..., AbstractContextManager[Annotator]] = open_annotator
    checkpoints: Callable[..., Checkpoints] = Checkpoints
    learner: Callable[..., Learner] = Learner

    def open_checkpoints(self, config: Config, folder: str) -> Checkpoints:
        run, path = config.run, os.path.join(folder, CHECKPOINTS)
        return self.checkpoints(path, run.keep_checkpoints, run.save_milestones_sec)


USUAL = Makers()


def fresh_state(
    seed: int,
    policy: ActorCritic,
    spec: EnvSpec,
    rewards: RewardSum,
    optimizer: optax.GradientTransformation,
    make_params: Callable[..., PyTree] = init_params,
) -> TrainState:
    """Returns the training state before the first update."""
    key = initial_key(seed)
    params = make_params(policy, spec, key)
    return TrainState(params, optimizer.init(params), rewards.init(jax.random.fold_in(key, 1)), key)


def resume_state(
    config: Config,
    state: TrainState,
    checkpoints: Checkpoints | None,
    labels_of: str,
    folder: str,
    peers: SingleProcess | Peers,
) -> tuple[TrainState, Saved | None, Progress]:
    """Returns the state, the checkpoint that it is of (None: it is new), and the progress; equal in all processes.

    Args:
        config: of the run.
        state: a fresh one.
        checkpoints: of the primary process.
        labels_of: the primary process's `Annotator`.
        folder: of the run.
        peers: the processes of the run.

    Raises:
        UserError: see `find_progress`, `Checkpoints.restore`, `initial_params`.
    """
    saved = checkpoints.restore(jax.device_get(state)) if checkpoints else None
    if config.pretrained.init_from and peers.is_primary and not saved:
        state = state._replace(params=initial_params(config))
    state, saved = peers.broadcast_state(state, saved)
    return state, saved, find_progress(saved, peers.broadcast_text(labels_of), folder)


def find_progress(saved: Saved | None, labels_of: str, folder: str) -> Progress:
    """Returns the progress of a restored checkpoint, or of a new run. `labels_of`: of the run's `Annotator`.

    Raises:
        UserError: the checkpoint is of another version, or its reward model has learnt from another LLM or prompt.
    """
    if saved is None:
        return Progress(labels_of=labels_of)
    path = os.path.join(folder, CHECKPOINTS, str(saved.progress["env_steps"]))
    try:
        progress = Progress(**saved.progress)
        _check_progress(progress)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{path} is of another version of this program ({error}); choose another --experiment"
        ) from None
    if saved.reward and progress.labels_of not in ("", labels_of):
        raise UserError(
            "this run's reward model has learnt from another LLM or prompt (--llm_server_addr, --llm_model, --answers, "
            "--goal_key, --goal, --prompt_version, --prompt_file or --llm_answer changed); choose another --experiment"
        )
    if jax.process_index() == 0:
        report(f"resumed at {counted(progress.env_steps, 'environment step')}, from {path}")
    return dataclasses.replace(progress, labels_of=labels_of)


def _check_progress(progress: Progress) -> None:
    """Raises ValueError: a value is of another type than it has here, as one without a checksum may be."""
    for name, default in dataclasses.asdict(Progress()).items():
        value = getattr(progress, name)
        allowed: dict[type, tuple[type, ...]] = {float: (int, float), tuple: (list, tuple)}
        if type(value) not in allowed.get(type(default), (type(default),)):
            raise ValueError(f"its {name} is {value!r:.40}")


def build_world(
    plan: Plan,
    spec: EnvSpec,
    actor: Actor,
    state: TrainState,
    progress: Progress,
    peers: SingleProcess | Peers,
    replicas: Replicas,
    goal_model: GoalModelFn | None = None,
) -> World:
    """Builds this process's world, which acts on the plan's devices with the state's parameters.

    Args:
        plan: of this process, whose batch size is its part of the run's.
        spec: of the environments, with what policy and rewards read.
        actor: the policy that acts.
        state: with the parameters.
        progress: of the run.
        peers: the processes of the run.
        replicas: of what learns.
        goal_model: of a reward.

    Raises:
        UserError: actors are asked for, and the environment has none.
    """
    config, pool = plan.config, plan.config.actors.actor_pool
    key = jax.random.fold_in(jax.random.fold_in(local(state.key), 2), progress.updates)
    if make_device_env := plan.environment.device:
        if pool != "auto":
            raise UserError(f"--actor_pool {pool}: {config.env.root_env} runs on the accelerator; leave it out")
        acting = Acting(actor.policy, state.params, progress.updates, key, plan.devices.acting)
        env = with_history(make_device_env(config.env), spec)
        return DeviceWorld(config, spec, env, acting, replicas, plan.world_seed(progress.env_steps), goal_model)
    key = jax.random.fold_in(key, peers.index) if peers.index else key
    acting = Acting(actor.policy, state.params, progress.updates, key, plan.devices.acting)
    # A resumed run starts new episodes, unless the running ones could be saved.
    seed = plan.world_seed(progress.env_steps, peers.index)
    make_env = functools.partial(make_vector_env, config.env, seed=seed, observations=tuple(spec.observations))
    lockstep = pool == "serial" and peers.num == 1
    return (LockstepWorld if lockstep else ActorWorld)(config, spec, make_env, acting)


def resume_acting(world: World, saved: Saved | None, progress: Progress) -> Mapping[str, np.ndarray]:
    """Restores the running episodes of a checkpoint. Returns its other arrays of them; {}: new ones begin."""
    acting = saved.acting if saved else {}
    if saved and saved.progress["labels_of"] != progress.labels_of:  # another LLM suggests goals now
        acting = {name: x for name, x in acting.items() if name not in GOAL_ARRAYS}
    resumed = acting if acting and world.restore(acting) else {}
    if resumed:
        report("environments resumed from the checkpoint")
    return resumed


def build_step(
    plan: Plan,
    num_processes: int,
    policy: ActorCritic,
    rewards: RewardSum,
    world: World,
    policy_state: Callable[[PyTree], PyTree],
    optimizer: optax.GradientTransformation,
    replicas: Replicas,
) -> Step:
    """Builds the compiled functions of an update; `policy_state`: see `Actor`."""
    config, learner = plan.config, plan.config.learner
    part = dataclasses.replace(learner, batch_size=learner.batch_size // num_processes)
    coeffs = RewardCoeffs(config.reward.extrinsic_reward_coeff, rewards.coeffs)
    apply = shard_policy(policy.apply, replicas)
    loss_fn, epochs = make_loss_fn(apply, part, coeffs), build_epochs(apply, learner, coeffs, replicas)

    def unpack(payload: PyTree, version: Array) -> Trajectory:
        trajectory = world.unpack(payload, version)
        return trajectory._replace(initial_core_state=policy_state(trajectory.initial_core_state))

    update = make_update_fn(loss_fn, shard_score(rewards, replicas), optimizer, unpack, epochs)
    pack = functools.partial(pack_shards, payload_sharding=world.payload_sharding, rewards=rewards, replicas=replicas)
    return Step(pack, jit_update(update, replicas.sharding(), functools.partial(check_update_memory, plan)))


def build_epochs(apply: Callable, learner: LearnerConfig, coeffs: RewardCoeffs, replicas: Replicas) -> Epochs | None:
    """Builds the passes over a batch; None: one step on all of it."""
    number, num_minibatches = learner.ppo_epochs, learner.num_minibatches
    if number == num_minibatches == 1:
        return None
    num_trajectories = learner.batch_size // learner.rollout // len(replicas)
    targets_fn = make_targets_fn(apply, learner, coeffs)
    return Epochs(number, num_minibatches, num_trajectories, targets_fn, shard_take(replicas))
