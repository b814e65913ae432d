"""Sizes that suit a machine, for settings that are left to it."""

from collections.abc import Sequence

from oni_jax.host.runtime import memory_bytes, num_cores
from oni_jax.runs.plan import Chosen, Machine
from oni_jax.settings.config import Config
from oni_jax.settings.fields import counted, with_values
from oni_jax.settings.worlds import ActorConfig
from oni_jax.worlds.actors.pool import num_workers

GIB = 1 << 30
GAME_BYTES = 1_000_000  # host memory of a game; NetHack's take 0.6 to 0.7 MB, and their rows in the ring 0.04
FRAME_BYTES = 500_000  # accelerator memory for the activations of a frame of the largest network in an update
MEMORY_FRACTION = 0.5  # fraction of memory that games, or activations, may take
CPU_ENVS, ENVS = 20, 256  # a process's: on a CPU alone, where the published system has 20; with accelerators
CPU_BATCH, MIN_BATCH, MAX_BATCH = 1024, 8192, 65_536  # the first on a CPU, the others of each accelerator
CPU_DEVICE_ENVS, DEVICE_ENVS = 256, 2048  # environments that run on a device
ANSWERER_CORES = 8  # cores of a machine for each thread that answers games, so that most are left to play
LAG = 4  # updates that it takes to learn from an unroll of every environment


def this_machine() -> Machine:
    import jax

    devices = [] if jax.default_backend() == "cpu" else jax.local_devices()
    stats = devices[0].memory_stats() or {} if devices else {}
    return Machine(num_cores(), memory_bytes(), len(devices), stats.get("bytes_limit", 0))


def with_sizes(
    config: Config, machine: Machine, on_device: bool, num_processes: int = 1
) -> tuple[Config, Sequence[Chosen]]:
    """Returns the settings with every size that is left to the machine (0 or `auto`) replaced, and those sizes.

    Args:
        config: settings of the run.
        machine: machine of each process.
        on_device: the environments run on the device.
        num_processes: processes of the run, which share a batch.
    """
    chosen: list[Chosen] = []
    if config.network.precision == "auto":
        precision = "bfloat16" if machine.num_accelerators else "float32"
        chosen.append(Chosen("precision", precision, f"on {_devices(machine)}"))
    if not on_device:
        chosen += _threads(config, machine)
    sized = with_values(config, {choice.flag: choice.value for choice in chosen})
    if not on_device and not config.actors.num_envs_per_worker:
        chosen.append(_environments(sized.actors, machine))
    sized = with_values(config, {choice.flag: choice.value for choice in chosen})
    if not config.learner.batch_size:
        chosen.append(_batch(sized, machine, on_device, num_processes))
    return with_values(config, {choice.flag: choice.value for choice in chosen}), chosen


def free_cores(actors: ActorConfig, machine: Machine) -> int:
    """Returns the cores that actor processes leave to the threads that answer them and to the learner."""
    return min(max(1, actors.num_answerers) + 1, machine.num_cores // 4) if machine.num_accelerators else 0


def _threads(config: Config, machine: Machine) -> Sequence[Chosen]:
    """Chooses the threads that answer actor processes, and the processes, where accelerators act."""
    actors, chosen = config.actors, []
    if actors.actor_pool == "serial" or not machine.num_accelerators:
        return chosen
    acting = config.devices.inference_devices or machine.num_accelerators
    number = min(acting, max(1, machine.num_cores // ANSWERER_CORES))
    if not actors.num_answerers and number > 1:
        reason = f"threads for {acting} accelerators that act, each for a part of the processes"
        chosen.append(Chosen("num_answerers", number, reason))
        actors = with_values(actors, {"num_answerers": number})
    if not actors.num_workers and (free := free_cores(actors, machine)):
        reason = f"{free} of {machine.num_cores} cores are left to what answers the games and to the learner"
        chosen.append(Chosen("num_workers", machine.num_cores - free, reason))
    return chosen


def _environments(actors: ActorConfig, machine: Machine) -> Chosen:
    number, num_groups = ENVS if machine.num_accelerators else CPU_ENVS, actors.worker_num_splits
    processes = num_workers(actors)
    fitting = int(MEMORY_FRACTION * machine.memory_bytes / GAME_BYTES / processes)
    reason = "one group plays while another waits for actions"
    if machine.num_accelerators:
        reason += ", and a call of the policy costs an accelerator nearly the same for many as for few"
    if fitting < number:
        reason = f"as many as half of {machine.memory_bytes / GIB:.1f} GiB hold"
    number = max(num_groups, min(number, fitting) // num_groups * num_groups)
    groups = f"{processes} processes with {num_groups} groups of {number // num_groups}"
    return Chosen("num_envs_per_worker", number, f"{groups}; {reason}")


def _batch(config: Config, machine: Machine, on_device: bool, num_processes: int) -> Chosen:
    """Chooses the batch size of the whole run, evenly sharded over its devices."""
    learner = config.learner
    num_devices = config.devices.learner_devices or max(machine.num_accelerators, config.devices.cpu_devices)
    if on_device:
        num_envs = DEVICE_ENVS if machine.num_accelerators else CPU_DEVICE_ENVS // num_devices
        of_each, reason = num_envs * learner.rollout, f"{num_envs:,} environments on each device"
    elif not machine.num_accelerators:
        of_each, reason = CPU_BATCH // num_devices, "of the published system"
    else:
        num_envs = config.actors.num_envs_per_worker * num_workers(config.actors)
        of_each = min(MAX_BATCH, max(MIN_BATCH, num_envs * learner.rollout // LAG // num_devices))
        reason = f"{num_envs:,} environments unroll at a time: about {LAG} updates of policy lag"
    if machine.accelerator_bytes:
        fitting = int(MEMORY_FRACTION * machine.accelerator_bytes / FRAME_BYTES)
        if fitting < of_each:
            of_each, reason = (
                fitting,
                f"as much as half of {machine.accelerator_bytes / GIB:.0f} GiB of its memory holds",
            )
    multiple = learner.rollout * learner.num_minibatches
    batch = max(1, of_each // multiple) * multiple * num_devices * num_processes
    return Chosen("batch_size", batch, f"{reason}; on {_devices(machine)}")


def _devices(machine: Machine) -> str:
    number = machine.num_accelerators
    return counted(number, "accelerator") if number else f"{machine.num_cores} cores, no accelerator"
