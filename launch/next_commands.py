"""Commands that come next, printed at a program's end to be copied."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from launch import named_configs
from oni_jax.host.plugins import with_plugins
from oni_jax.settings.config import Config, listed
from oni_jax.settings.fields import settings
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import num_processes

ON_DEVICES = ("train", "evaluate", "play", "report", "train_reward", "train_potential")
SOURCES = ("config", "resume")  # flags of launch.train that are no settings
STARTED_BY = "ONI_STARTED_BY"  # the command that began a job and its server, and goes on with it; empty: nobody's


def show(*commands: str) -> None:
    """Prints commands, one a line; nothing when there are none."""
    if commands:
        print("\n".join(["next:", *(f"  {command}" for command in commands)]), flush=True)


def command(program: str, defaults: Any, **values: Any) -> str:
    """Returns the command line of a program with these values of its settings, without those that are its defaults.

    Args:
        program: its name.
        defaults: its settings: those that `--config` and `--resume` name replace them.
        **values: by name of the flag; names that the program does not have are left out.
    """
    if name := values.get("config"):
        defaults = named_configs.load(name)
    positional, flags = [], [word for name in SOURCES if name in values for word in (f"--{name}", values[name])]
    for field, default in settings(defaults):
        value = values.get(field.name, default)
        each = str(value).split(field.metadata["repeated"]) if field.metadata["repeated"] else [str(value)]
        if field.metadata["positional"] and (field.metadata["repeated"] or "," not in each[0]):  # a comma joins two
            positional += each if value else []
        elif value != default:
            flags += [word for text in each for word in (f"--{field.name}", text)]
    if program in ON_DEVICES and os.environ.get("JAX_PLATFORMS") == "cpu":  # set by --device, or by the variable itself
        flags += ["--device", "cpu"]
    return shlex.join([_python(), "-m", f"launch.{program}", *positional, *flags])


def values_of(section: Any) -> dict[str, Any]:
    """Returns the values of a section by name, to be handed to `command`; without secrets."""
    return {field.name: value for field, value in settings(section) if not field.metadata["secret"]}


def with_training(before: str, training: Sequence[str]) -> str:
    """Returns the command line of a program that takes the flags of launch.train behind `--`."""
    return shlex.join([*shlex.split(before), "--", *training])


def further_steps(limits: RunConfig, saved: int) -> dict[str, int]:
    """Returns what has to change for a run to go on that has saved at these steps: the limit that it has reached."""
    return {"train_for_env_steps": saved + limits.train_for_env_steps} if saved >= limits.train_for_env_steps else {}


def resuming(config: Config, folder: str, **further: Any) -> list[str]:
    """Returns the command lines that go on with a training, all of its processes; one for each that is started by hand.

    Args:
        config: of the run.
        folder: of the run.
        **further: settings to be changed.
    """
    if started_by := os.environ.get(STARTED_BY):
        return [shlex.join([*shlex.split(started_by), *(f"--{name}={value}" for name, value in further.items())])]
    if (number := num_processes(config.devices)) == 1:
        return [command("train", config, resume=folder, **further)]
    # Only the first one needs to see the folder, so the others can't take their settings from there.
    given = {field.name: value for field, value in listed(config) if not field.metadata["secret"]} | further
    defaults = with_plugins(Config(), config.env.plugin)
    if not config.devices.num_processes:
        return [f"srun --ntasks={number} {command('train', defaults, **given)}"]
    return [command("train", defaults, **{**given, "process_id": index}) for index in range(number)]


def _python() -> str:
    """Returns the shortest name of this Python in this folder."""
    if shutil.which("python") == sys.executable:
        return "python"
    path = os.path.relpath(sys.executable)
    return sys.executable if path.startswith(os.pardir) else path
