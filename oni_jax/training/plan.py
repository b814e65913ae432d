"""The plan of a training: its settings resolved for this machine, the last decision about a run."""

from collections import Counter

from oni_jax.networks.registry import AUTO
from oni_jax.runs.experiment import with_kept_encoder
from oni_jax.runs.plan import Devices, Machine, Plan, chosen_encoder, with_choices
from oni_jax.settings.config import Config, check_config
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import check_batch_size
from oni_jax.training.memory import check_memory
from oni_jax.training.sizes import this_machine, with_sizes


def resolve(config: Config, machine: Machine | None = None, num_processes: int = 1) -> Plan:
    """Resolves a run's settings: chooses those left open, and looks names up. Imports JAX.

    Args:
        config: as they were given.
        machine: of this process; None: found out.
        num_processes: of the run.

    Raises:
        UserError: something is not there, or does not fit.
    """
    given = with_kept_encoder(config)
    config, machine = with_choices(given), machine or this_machine()
    fitting = [chosen_encoder(config)] if given.network.encoder_custom == AUTO else []
    on_device = Plan(config).environment.device is not None
    config, chosen = with_sizes(config, machine, on_device, num_processes)
    check_config(config)
    check_memory(Plan(config, machine), num_processes=num_processes)
    return Plan(config, machine, (*fitting, *chosen), choose_devices(config))


def choose_devices(config: Config) -> Devices:
    """Chooses the learning devices of all processes, and the acting devices of this one.

    Raises:
        UserError: there are too few, or a batch can't be sharded evenly over them.
    """
    import jax

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
    return Devices(learning, by_process[jax.process_index()][num_local - num_acting :])
