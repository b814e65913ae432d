"""Builds the parts of a training run, runs them, and shuts them down."""

import dataclasses
import functools
import hashlib
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.service import AnnotationService
from oni_jax.annotation.stored import check_stored
from oni_jax.answers.answerer import open_questions, with_chosen_answers
from oni_jax.envs.base import Environment
from oni_jax.envs.device.history import with_history
from oni_jax.envs.registry import env_spec, find_environment, make_vector_env, with_chosen_env
from oni_jax.host.caches import cache_folder
from oni_jax.host.gpu import why_no_gpu
from oni_jax.host.run_files import CHECKPOINTS
from oni_jax.host.runtime import LOWEST_PRIORITY, StopRequest
from oni_jax.learner.descent import Epochs
from oni_jax.learner.guidance import Guidance
from oni_jax.learner.loop import Annotator, Learner, NoAnnotator, Step, initial_key
from oni_jax.learner.loss import RewardCoeffs, make_loss_fn, make_targets_fn
from oni_jax.learner.peers.meeting import joined
from oni_jax.learner.peers.peers import SINGLE_PROCESS, Peers, SingleProcess
from oni_jax.learner.shards import pack_shards, shard_policy, shard_score, shard_take
from oni_jax.learner.update import TrainState, jit_update, make_optimizer, make_update_fn
from oni_jax.networks.policy import ActorCritic, init_params, make_policy
from oni_jax.networks.registry import policy_observations
from oni_jax.parallel import Replicas, local
from oni_jax.rewards.registry import make_rewards, observations_read, questions
from oni_jax.rewards.terms import RewardSum
from oni_jax.runs.checkpointing import Checkpoints, Saved
from oni_jax.runs.experiment import experiment_folder, open_experiment, write_settings
from oni_jax.runs.labels import store_path
from oni_jax.runs.pretrained import Actor, guide_observations, initial_params, make_actor
from oni_jax.settings.config import Config, check_config
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import LearnerConfig, check_batch_size
from oni_jax.training.loop import Progress, Training
from oni_jax.training.sizes import this_machine, with_sizes
from oni_jax.types import Array, EnvSpec, GoalModelFn, PyTree, Trajectory
from oni_jax.worlds.actors.actor_world import Acting, ActorWorld
from oni_jax.worlds.actors.lockstep import LockstepWorld
from oni_jax.worlds.base import World
from oni_jax.worlds.device.device_world import DeviceWorld
from oni_jax.worlds.device.goal_table import GOAL_ARRAYS


def run(config: Config, stop: StopRequest) -> None:
    """Trains until a limit of `config.run` or a stop request, and saves.

    Raises:
        UserError: bad input, or too little memory on the accelerator; all that was started is stopped.
        ChildError: an actor process or the annotation service died; a checkpoint is saved.
    """
    keep_compiled_code()
    known: Any = jax.config
    if config.devices.cpu_devices != max(1, known.jax_num_cpu_devices):  # JAX refuses it beside XLA's own flag
        try:
            jax.config.update("jax_num_cpu_devices", config.devices.cpu_devices)
        except RuntimeError:  # JAX has computed
            asked, number = config.devices.cpu_devices, jax.local_device_count("cpu")
            raise UserError(
                f"--cpu_devices {asked}: this process computes with {number} already; start another one"
            ) from None
    config = with_chosen_env(config)
    config = with_chosen_answers(config, questions(config))
    with joined(config.devices, stop) as peers:
        try:
            _train(config, stop, peers)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise UserError(f"{str(error).splitlines()[0]}: lower --batch_size or --num_envs_per_worker") from error


def _train(config: Config, stop: StopRequest, peers: SingleProcess | Peers) -> None:
    config, chosen = with_sizes(config, this_machine(), bool(find_environment(config.env).device), peers.num)
    check_config(config)
    for own in chosen if peers.is_primary else ():
        print(f"--{own.flag} {own.value} suits this machine: {own.reason}", flush=True)
    if peers.is_primary and (reason := why_no_gpu(jax.default_backend())):
        print(reason, flush=True)
    is_rewarded = config.reward.extrinsic_reward_coeff or any(own.reward.llm_reward_coeff for own in config.terms())
    if peers.is_primary and not is_rewarded:
        print("warning: --extrinsic_reward_coeff 0 and no intrinsic reward: nothing is learnt", flush=True)
    with ExitStack() as stack:
        folder = stack.enter_context(open_experiment(config, stop)) if peers.is_primary else experiment_folder(config)
        peers.check_settings(config)  # also waits for the folder
        training = build_training(config, folder, stack, peers)
        if peers.is_primary:
            write_settings(config, folder)
        if not stop or peers.num > 1:
            training.train(stop)
        else:
            training.leave(stop)


def keep_compiled_code() -> None:
    """Turns on JAX's persistent compilation cache; $JAX_COMPILATION_CACHE_DIR names another folder for it."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        with suppress(UserError):  # without
            folder = os.path.join(cache_folder(), f"compiled-{_processor_digest()}")
            jax.config.update("jax_compilation_cache_dir", folder)


def _processor_digest() -> str:
    """Returns a hash of the processor's features: in a common home folder, code is compiled for each kind apart."""
    try:
        with open("/proc/cpuinfo") as file:
            features = next(line for line in file if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        features = platform.platform()
    return hashlib.sha256(features.encode()).hexdigest()[:8]


class Task(NamedTuple):
    """Environment and policy of a run."""

    environment: Environment
    spec: EnvSpec  # with the observations that the policy and the reward read
    policy: ActorCritic


def build_training(
    config: Config, folder: str, stack: ExitStack, peers: SingleProcess | Peers = SINGLE_PROCESS
) -> Training:
    """Builds all parts of a run; `stack` closes them in reverse order."""
    task = build_task(config)
    learning, acting = choose_devices(config)
    replicas = Replicas(learning)
    rewards = make_rewards(config, task.spec, replicas)
    task = task._replace(spec=rewards.read_from(task.spec))
    asks = peers.is_primary and questions(config)
    if peers.is_primary and config.annotation.llm_server_addr and not asks:
        print("warning: --llm_server_addr: nothing in this run asks an LLM", flush=True)
    annotator = stack.enter_context(_annotation(config, folder, task.environment)) if asks else NoAnnotator()
    optimizer = make_optimizer(config.learner)
    checkpoints = stack.enter_context(closing(open_checkpoints(config, folder))) if peers.is_primary else None
    state = fresh_state(config.run.seed, task, rewards, optimizer)
    saved = checkpoints.restore(jax.device_get(state)) if checkpoints else None
    if config.pretrained.init_from and peers.is_primary and not saved:
        state = state._replace(params=initial_params(config))
    state, saved = peers.broadcast_state(state, saved)
    # With its final sharding: another one after the reward's first gradient step would compile the update again.
    state = replicas.put(state)
    progress = find_progress(saved, peers.broadcast_text(annotator.labels_of), folder)
    if saved:
        rewards.restore(saved.reward)
    rewards.save()  # fails now, rather than hours later, on state that no checkpoint can hold
    # Each process collects its part of a batch.
    learner_config = dataclasses.replace(config.learner, batch_size=config.learner.batch_size // peers.num)
    own = dataclasses.replace(config, learner=learner_config)
    actor = make_actor(config, task.policy, replicas)
    before = progress.env_steps, progress.reward_sum, progress.steps_before_reward
    guidance = Guidance(config.pretrained, config.learner.batch_size, actor.params_of, *before)
    acted = state._replace(params=guidance.acting_params(state.params))
    world = build_world(own, task, actor, acted, progress, acting, peers, replicas, rewards.goal_model)
    stack.enter_context(closing(world))
    world.suggest_by(rewards.acting(state.reward_state))
    acting_state = saved.acting if saved else {}
    if saved and saved.progress["labels_of"] != progress.labels_of:  # another LLM suggests goals now
        acting_state = {name: x for name, x in acting_state.items() if name not in GOAL_ARRAYS}
    resumed = acting_state if acting_state and world.restore(acting_state) else {}
    if resumed:
        print("environments resumed from the checkpoint", flush=True)
    coeffs = RewardCoeffs(config.reward.extrinsic_reward_coeff, rewards.coeffs)
    apply = shard_policy(task.policy.apply, replicas)
    loss_fn, epochs = make_loss_fn(apply, learner_config, coeffs), build_epochs(apply, config.learner, coeffs, replicas)

    def unpack(payload: PyTree, version: Array) -> Trajectory:
        trajectory = world.unpack(payload, version)
        return trajectory._replace(initial_core_state=actor.own_state(trajectory.initial_core_state))

    update = make_update_fn(loss_fn, shard_score(rewards, replicas), optimizer, unpack, epochs)
    pack = functools.partial(pack_shards, payload_sharding=world.payload_sharding, rewards=rewards, replicas=replicas)
    step = Step(pack, jit_update(update, replicas.sharding()))
    learner = Learner(step, rewards, world, annotator, state, progress.updates, peers, guidance)
    learner.running_returns.restore(resumed)
    return Training(config, folder, learner, world, annotator, checkpoints, progress)


def build_epochs(apply: Callable, learner: LearnerConfig, coeffs: RewardCoeffs, replicas: Replicas) -> Epochs | None:
    """Builds the passes over a batch; None: one step on all of it."""
    number, num_minibatches = learner.ppo_epochs, learner.num_minibatches
    if number == num_minibatches == 1:
        return None
    num_trajectories = learner.batch_size // learner.rollout // len(replicas)
    targets_fn = make_targets_fn(apply, learner, coeffs)
    return Epochs(number, num_minibatches, num_trajectories, targets_fn, shard_take(replicas))


def build_task(config: Config) -> Task:
    """Builds the task. Raises UserError: the environment lacks an observation that the encoder or the reward reads."""
    environment = find_environment(config.env)
    policy = make_policy(config.network, env_spec(config.env, policy_observations(config.network)))
    read = {*observations_read(config), *guide_observations(config)}
    return Task(environment, env_spec(config.env, read), policy)


@contextmanager
def _annotation(config: Config, folder: str, environment: Environment) -> Iterator[Annotator]:
    """Runs the annotation service, and the embedded judge where no server was named."""
    asked, language = questions(config), environment.language
    # On a CPU, environments there have no time to spare: who answers takes what is left.
    shares_cpu = environment.device is not None and jax.default_backend() == "cpu"
    with ExitStack() as stack:
        prompts = open_questions(asked, language, stack, shares_cpu)
        soft = {own.annotation for own in config.terms() if own.reward.llm_reward_value == "probability"}
        prompts = [x._replace(needs_probability=own in soft) for x, (own, _) in zip(prompts, asked)]
        store = LabelStore(store_path(config, folder))
        store.check_writable()
        for own in prompts:
            check_stored(store, own.prompt.kind, own.recorded, own.models, own.prompt.digest)
        service = AnnotationService(prompts, store, LOWEST_PRIORITY * shares_cpu)
        try:
            yield service
        except KeyboardInterrupt:  # interrupted twice: don't wait
            service.close(grace_secs=0.0)
            raise
        finally:
            service.close()


def open_checkpoints(config: Config, folder: str) -> Checkpoints:
    run = config.run
    return Checkpoints(os.path.join(folder, CHECKPOINTS), run.keep_checkpoints, run.save_milestones_sec)


def fresh_state(seed: int, task: Task, rewards: RewardSum, optimizer: optax.GradientTransformation) -> TrainState:
    """Returns the training state before the first update."""
    key = initial_key(seed)
    params = init_params(task.policy, task.spec, key)
    return TrainState(params, optimizer.init(params), rewards.init(jax.random.fold_in(key, 1)), key)


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
    except TypeError as error:
        raise UserError(
            f"{path} is of another version of this program ({error}); choose another --experiment"
        ) from None
    if saved.reward and progress.labels_of not in ("", labels_of):
        raise UserError(
            "this run's reward model has learnt from another LLM or prompt (--llm_server_addr, --llm_model, --answers, "
            "--goal_key, --goal, --prompt_version, --prompt_file or --llm_answer changed); choose another --experiment"
        )
    if jax.process_index() == 0:
        print(f"resumed at {progress.env_steps:,} environment steps, from {path}", flush=True)
    return dataclasses.replace(progress, labels_of=labels_of)


def build_world(
    config: Config,
    task: Task,
    actor: Actor,
    state: TrainState,
    progress: Progress,
    devices: Sequence[Any],
    peers: SingleProcess | Peers,
    replicas: Replicas,
    goal_model: GoalModelFn | None = None,
) -> World:
    """Builds this process's world, which acts on `devices` with the state's parameters; the batch size is its own.

    Raises:
        UserError: actors are asked for, and the environment has none.
    """
    key = jax.random.fold_in(jax.random.fold_in(local(state.key), 2), progress.updates)
    if make_device_env := task.environment.device:
        pool = config.actors.actor_pool
        if pool != "auto":
            raise UserError(f"--actor_pool {pool}: {config.env.root_env} runs on the accelerator; leave it out")
        seed = int(np.random.SeedSequence([config.run.seed, progress.env_steps]).generate_state(1)[0])
        acting = Acting(actor.policy, state.params, progress.updates, key, devices)
        env = with_history(make_device_env(config.env), task.spec)
        return DeviceWorld(config, task.spec, env, acting, replicas, seed, goal_model)
    key = jax.random.fold_in(key, peers.index) if peers.index else key
    acting = Acting(actor.policy, state.params, progress.updates, key, devices)
    # A resumed run starts new episodes, unless the running ones could be saved.
    seeds = [config.run.seed, progress.env_steps, *([peers.index] if peers.index else [])]
    seed = int(np.random.SeedSequence(seeds).generate_state(1)[0])
    make_env = functools.partial(make_vector_env, config.env, seed=seed, observations=tuple(task.spec.observations))
    lockstep = config.actors.actor_pool == "serial" and peers.num == 1
    return (LockstepWorld if lockstep else ActorWorld)(config, task.spec, make_env, acting)


def choose_devices(config: Config) -> tuple[Sequence[Any], Sequence[Any]]:
    """Returns the learning devices of all processes, and the acting devices of this one.

    Raises:
        UserError: there are too few, or a batch can't be sharded evenly over them.
    """
    num_local = jax.local_device_count()
    counts = Counter(device.process_index for device in jax.devices())
    if not config.devices.learner_devices and len({*counts.values()}) > 1:
        raise UserError(f"--learner_devices: the processes have {sorted(counts.values())} devices; give one number")
    for name in ("learner_devices", "inference_devices"):
        if (number := getattr(config.devices, name)) > num_local:
            raise UserError(f"--{name} {number}: this process has {num_local}; give no more than that")
    num_learning = config.devices.learner_devices or num_local
    num_acting = config.devices.inference_devices or num_local
    check_batch_size(config.learner, num_learning * jax.process_count())
    by_process = [sorted(jax.local_devices(i), key=lambda d: d.id) for i in range(jax.process_count())]
    learning = [device for devices in by_process for device in devices[:num_learning]]
    return learning, by_process[jax.process_index()][num_local - num_acting :]
