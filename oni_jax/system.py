"""Builds the parts of a training run, runs them, and shuts them down."""

import dataclasses
import functools
import hashlib
import math
import os
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import numpy as np

from oni_jax.actors.group import MakeEnv
from oni_jax.actors.pool import ActorPool, num_workers
from oni_jax.actors.process_pool import ProcessPool
from oni_jax.actors.serial_pool import SerialPool
from oni_jax.annotation.judge import server_or_judge
from oni_jax.annotation.prompts import goal_text
from oni_jax.annotation.service import AnnotationService
from oni_jax.buffers.exchange import TrajectoryExchange
from oni_jax.buffers.ring import RingShape, TrajectoryRing
from oni_jax.checkpointing import Checkpoints, Saved
from oni_jax.config import ActorConfig, Config, UserError, check_shares
from oni_jax.distributed.meeting import joined
from oni_jax.distributed.peers import ALONE, Alone, Peers
from oni_jax.distributed.sharing import Shared
from oni_jax.envs.glyph_table import glyph_table
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.experiment import experiment_folder, open_experiment, write_settings
from oni_jax.inference.parameters import ParameterStore
from oni_jax.inference.server import InferenceServer
from oni_jax.learner.batches import BatchAssembler, make_unpack_fn
from oni_jax.learner.loop import Annotator, Learner, NoAnnotator, initial_key
from oni_jax.learner.loss import make_loss_fn
from oni_jax.learner.shares import split_policy, split_reward
from oni_jax.learner.update import TrainState, make_optimizer, make_update_fn
from oni_jax.lockstep import Lockstep
from oni_jax.networks.policy import init_params, make_policy, with_tables
from oni_jax.parallel import Replicas, local
from oni_jax.rewards.label_store import LabelStore
from oni_jax.rewards.registry import make_reward, reads_glyphs, reward_type
from oni_jax.runtime import StopRequest
from oni_jax.training import Progress, Training
from oni_jax.types import EnvSpec, PyTree


def run(config: Config, stop: StopRequest) -> int:
    """Trains until a limit of `config.run` or a request to stop; saves; returns the exit code 0.

    Raises:
        UserError: bad input, before anything was started or with everything stopped again; or too little memory on
            the accelerator.
        ChildError: an actor process or the annotation service died; what was learnt is saved.
    """
    keep_compiled_code()
    with joined(config.devices, stop) as peers:
        try:
            _train(config, stop, peers)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise UserError(f"{str(error).splitlines()[0]}: lower --batch_size or --num_envs_per_worker") from error
    return 0


def _train(config: Config, stop: StopRequest, peers: Alone | Peers) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(open_experiment(config)) if peers.leads else experiment_folder(config)
        peers.check_settings(config)  # and wait for the folder
        training = build_training(config, folder, stack, peers)
        if peers.leads:
            write_settings(config, folder)
        if not stop or peers.num > 1:
            training.train(stop)


def keep_compiled_code() -> None:
    """A second start finds what the first one compiled; $JAX_COMPILATION_CACHE_DIR says where else."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(cache, "oni_jax", f"compiled-{_processor_digest()}")
        jax.config.update("jax_compilation_cache_dir", folder)


def _processor_digest() -> str:
    """Tells processors apart that share a home folder: code compiled for one may not run on another."""
    try:
        with open("/proc/cpuinfo") as file:
            features = next(line for line in file if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        features = platform.platform()
    return hashlib.sha256(features.encode()).hexdigest()[:8]


def build_training(config: Config, folder: str, stack: ExitStack, peers: Alone | Peers = ALONE) -> Training:
    """Builds every part; what has to be closed is left to `stack`, the last built first."""
    kind = reward_type(config)
    with_glyphs = reads_glyphs(config)
    spec = env_spec(config.env, with_glyphs=with_glyphs)
    policy = make_policy(config.network, spec, glyph_table())
    learning, acting = choose_devices(config)
    replicas = Replicas(learning)
    reward = make_reward(config, spec, functools.partial(goal_text, config.annotation), replicas)
    asks = kind.prompt_kind and peers.leads
    annotator = stack.enter_context(_annotation(config, folder, kind.prompt_kind)) if asks else NoAnnotator()
    # Of the batch, each process plays its part.
    learner_config = dataclasses.replace(config.learner, batch_size=config.learner.batch_size // peers.num)
    exchange = build_exchange(dataclasses.replace(config, learner=learner_config), spec)
    ring = exchange.ring
    if isinstance(peers, Peers):
        annotator = Shared(peers, annotator, exchange, reward.other_observations)
    optimizer = make_optimizer(learner_config)
    key = initial_key(config.run.seed)
    params = init_params(policy, spec, key)
    state = TrainState(params, optimizer.init(params), reward.init(jax.random.fold_in(key, 1)), key)
    checkpoints, saved = None, None
    if peers.leads:
        checkpoints = Checkpoints(
            os.path.join(folder, "checkpoints"), config.run.keep_checkpoints, config.run.save_milestones_sec
        )
        stack.callback(checkpoints.close)
        saved = checkpoints.restore(jax.device_get(state))
    state, saved = peers.same(state, saved)
    # Where it will stay, said now: what is placed anew after the first gradient step of the reward compiles anew.
    state = replicas.place(state)
    progress = Progress(labels_of=annotator.labels_of)
    if saved:
        path = os.path.join(folder, "checkpoints", str(saved.progress["env_steps"]))
        progress = restore_progress(saved, annotator.labels_of, path)
        reward.restore(saved.reward)
        if peers.leads:
            print(f"resumed at {progress.env_steps:,} environment steps, from {path}", flush=True)

    # A resumed run plays new games, unless those that were under way could be saved.
    seeds = [config.run.seed, progress.env_steps, *([peers.index] if peers.index else [])]
    game_seed = int(np.random.SeedSequence(seeds).generate_state(1)[0])
    make_env = functools.partial(make_vector_env, config.env, seed=game_seed, with_glyphs=with_glyphs)
    pool = build_pool(config.actors, make_env, ring)
    stack.callback(pool.close)
    pool.start()
    to_act_with = jax.jit(functools.partial(with_tables, policy))
    parameters = ParameterStore(progress.updates, to_act_with(local(state.params)), acting)
    acting_key = jax.random.fold_in(jax.random.fold_in(local(state.key), 2), progress.updates)
    if peers.index:
        acting_key = jax.random.fold_in(acting_key, peers.index)
    server = InferenceServer(policy, exchange, pool, parameters, acting_key)
    loss_fn = make_loss_fn(split_policy(policy.apply, replicas), learner_config, config.reward)
    intrinsic_at = config.reward.intrinsic_reward_at
    unpack = make_unpack_fn(spec, ring.records.dtype, exchange.policy_records.dtype, intrinsic_at)
    assembler = BatchAssembler(exchange, learner_config.batch_size, learner_config.max_policy_lag, intrinsic_at)
    update = make_update_fn(loss_fn, split_reward(reward, replicas), optimizer, unpack)

    def publish(version: int, params: PyTree) -> None:
        parameters.publish(version, to_act_with(local(params)))

    lockstep = None
    if isinstance(pool, SerialPool) and peers.num == 1:
        lockstep = Lockstep(f"{config.env} {ring.shape} {len(acting)}", pool, exchange, server, assembler)
        if saved and lockstep.restore(saved.acting):
            print("the games go on where they were", flush=True)
    share = annotator.share if isinstance(annotator, Shared) else None
    prefetch = lockstep is None and share is None
    learner = Learner(update, reward, assembler, publish, annotator, state, progress.updates, prefetch, replicas, share)
    return Training(
        config, folder, learner, reward, annotator, exchange, server, checkpoints, progress, lockstep, peers
    )


def choose_devices(config: Config) -> tuple[Sequence[Any], Sequence[Any]]:
    """The devices that learn, of all processes, and those of this one that act.

    Raises:
        UserError: there are fewer, or they can't share a batch evenly.
    """
    num_local = jax.local_device_count()
    counts = Counter(device.process_index for device in jax.devices())
    if not config.devices.learner_devices and len({*counts.values()}) > 1:
        raise UserError(f"--learner_devices: the processes have {sorted(counts.values())} devices; give a number")
    for name in ("learner_devices", "inference_devices"):
        if (number := getattr(config.devices, name)) > num_local:
            raise UserError(f"--{name} {number}: there are {num_local}")
    num_learning = config.devices.learner_devices or num_local
    num_acting = config.devices.inference_devices or num_local
    check_shares(config.learner, num_learning * jax.process_count())
    by_process = [
        sorted((d for d in jax.devices() if d.process_index == i), key=lambda d: d.id)
        for i in range(jax.process_count())
    ]
    learning = [device for devices in by_process for device in devices[:num_learning]]
    return learning, by_process[jax.process_index()][num_local - num_acting :]


def restore_progress(saved: Saved, labels_of: str, path: str) -> Progress:
    """The progress of the checkpoint at `path`, from which a run goes on that asks `labels_of`; see `Annotator`.

    Raises:
        UserError: it is of another version, or its reward model has learnt from other labels than would now come.
    """
    try:
        progress = Progress(**saved.progress)
    except TypeError as error:
        raise UserError(
            f"{path} is of another version of this program ({error}); choose another --experiment"
        ) from None
    if saved.reward and progress.labels_of not in ("", labels_of):
        raise UserError(
            "this run's reward model has learnt from another LLM or prompt (--llm_server_addr, --llm_model, "
            "--goal_key, --goal, --prompt_version, --prompt_file or --llm_answer changed); choose another --experiment"
        )
    return dataclasses.replace(progress, labels_of=labels_of)


def build_exchange(config: Config, spec: EnvSpec) -> TrajectoryExchange:
    """An exchange in which every unit has a slot to fill while fewer than num_batches_to_accumulate batches wait."""
    actors, learner = config.actors, config.learner
    num_units = num_workers(actors) * actors.worker_num_splits
    num_envs = actors.num_envs_per_worker // actors.worker_num_splits
    max_waiting = learner.num_batches_to_accumulate * learner.batch_size // learner.rollout
    num_slots = num_units + math.ceil(max_waiting / num_envs) + 1  # one of which the learner is reading
    ring = TrajectoryRing(spec, RingShape(num_units, num_envs, num_slots, learner.rollout))
    return TrajectoryExchange(ring, max_waiting)


def build_pool(actors: ActorConfig, make_env: MakeEnv, ring: TrajectoryRing) -> ActorPool:
    if actors.actor_pool == "serial":
        return SerialPool(make_env, ring)
    return ProcessPool(make_env, ring, num_workers(actors), actors.max_actor_restarts)


@contextmanager
def _annotation(config: Config, folder: str, kind: str) -> Iterator[Annotator]:
    """The annotation service, and the judge in front of it when no server was named."""
    with server_or_judge(config.annotation) as annotation:
        path = annotation.label_store or os.path.join(folder, "labels.sqlite")
        service = AnnotationService(annotation, LabelStore(path), kind)
        try:
            yield service
        except KeyboardInterrupt:  # who interrupts twice does not wait
            service.close(grace_secs=0.0)
            raise
        finally:
            service.close()
