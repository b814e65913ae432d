"""Lower bound on a run's memory, by its settings; and the memory of its update, once compiled."""

import jax

from oni_jax.envs.base import record_dtype
from oni_jax.host.memory import GAME_BYTES, LEARNER_BYTES, PROCESS_BYTES, check_fits
from oni_jax.runs.plan import Plan
from oni_jax.settings.fields import counted
from oni_jax.worlds.actors.pool import num_workers

FLOAT_BYTES = 4
COPIES = 4  # copies of parameters: they, their gradients, and Adam's two moments
SMALLER_UPDATE = "--batch_size, --rollout or --hidden_size"


def check_memory(plan: Plan, num_parameters: int = 0, num_processes: int = 1) -> None:
    """Refuses a run that can't fit into the machine's memory, or into its accelerators'.

    It counts memory that is surely in use at a time, so that no run that fits is refused; of activations, one layer's.

    Args:
        plan: with its sizes and this process's machine.
        num_parameters: of the policy; 0: not known yet.
        num_processes: of the run, which share a batch.

    Raises:
        UserError: it does not fit.
    """
    config, machine = plan.config, plan.machine
    assert machine
    learner, actors = config.learner, config.actors
    row_bytes = record_dtype(plan.world_spec).itemsize
    batch = learner.batch_size / num_processes
    state = {counted(num_parameters, "parameter"): float(COPIES * FLOAT_BYTES * num_parameters)}
    learnt = {f"batches of {batch:,.0f} steps": batch * (row_bytes + FLOAT_BYTES * config.network.hidden_size)}
    played: dict[str, float] = {}
    if plan.environment.device is None:
        processes = num_workers(actors)
        games = processes * actors.num_envs_per_worker
        of_game = GAME_BYTES if config.env.root_env.startswith("NetHack") else 0
        if actors.actor_pool != "serial":
            played[f"{processes:,} actor processes"] = processes * PROCESS_BYTES
        played[f"{games:,} environments"] = games * (of_game + row_bytes * (learner.rollout + 1))
        waiting = learner.num_batches_to_accumulate * batch
        played[f"{counted(learner.num_batches_to_accumulate, 'batch', 'batches')} that may wait"] = waiting * row_bytes
    lower = f"lower --num_workers, --num_envs_per_worker, {SMALLER_UPDATE}"
    on_host = {"the learner": LEARNER_BYTES, **played}
    check_fits(on_host if machine.num_accelerators else on_host | learnt | state, lower, machine.memory_bytes)
    if of_each := machine.accelerator_bytes:
        shared = {words: size / machine.num_accelerators for words, size in learnt.items()}
        check_fits(shared | state, lower, of_each, " on each accelerator")


def check_update_memory(plan: Plan, num_bytes: int) -> None:
    """Refuses an update whose program needs more memory than there is.

    Args:
        plan: with this process's machine and devices.
        num_bytes: of the compiled program on each device, with its inputs and all activations.

    Raises:
        UserError: it does not fit.
    """
    machine, needed = plan.machine, f"an update of {plan.config.learner.batch_size:,} steps"
    assert machine and plan.devices
    lower = f"lower {SMALLER_UPDATE}"
    if machine.accelerator_bytes:
        check_fits({needed: num_bytes}, lower, machine.accelerator_bytes, " on each accelerator")
    elif not machine.num_accelerators:
        num_here = sum(device.process_index == jax.process_index() for device in plan.devices.learning)
        check_fits({"the learner": LEARNER_BYTES, needed: num_bytes * num_here}, lower, machine.memory_bytes)
