"""Memory that a run takes at least, by its settings."""

from oni_jax.envs.base import record_dtype
from oni_jax.host.memory import GAME_BYTES, LEARNER_BYTES, PROCESS_BYTES, check_fits
from oni_jax.runs.plan import Plan
from oni_jax.settings.fields import counted
from oni_jax.worlds.actors.pool import num_workers

FLOAT_BYTES = 4
COPIES = 4  # of parameters: they, their gradients, and Adam's two moments


def check_memory(plan: Plan, num_parameters: int = 0, num_processes: int = 1) -> None:
    """Refuses a run that can't fit into the machine's memory, or into its accelerators'.

    It counts what is sure to be there at a time, so that nothing is refused that fits; activations but a layer are not.

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
    lower = "lower --num_workers, --num_envs_per_worker, --batch_size, --rollout or --hidden_size"
    on_host = {"the learner": LEARNER_BYTES, **played}
    check_fits(on_host if machine.num_accelerators else on_host | learnt | state, lower, machine.memory_bytes)
    if of_each := machine.accelerator_bytes:
        shared = {words: size / machine.num_accelerators for words, size in learnt.items()}
        check_fits(shared | state, lower, of_each, " on each accelerator")
