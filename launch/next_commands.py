"""Commands that come next, printed at a program's end to be copied."""

import os
import shlex
import shutil
import sys
from typing import Any

from launch import named_configs
from oni_jax.config import settings

ON_DEVICES = ("train", "evaluate", "play", "report", "train_reward", "train_potential")
SOURCES = ("config", "resume")  # flags of launch.train that are no settings


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
        if field.metadata["positional"]:
            positional += str(value).split(field.metadata["repeated"] or ",") if field.name in values else []
        elif value != default:
            flags += [f"--{field.name}", str(value)]
    if program in ON_DEVICES and os.environ.get("JAX_PLATFORMS") == "cpu":  # by --device, or by the variable itself
        flags += ["--device", "cpu"]
    return shlex.join([_python(), "-m", f"launch.{program}", *positional, *flags])


def values_of(section: Any) -> dict[str, Any]:
    """Returns the values of a section by name, to be handed to `command`; without secrets."""
    return {field.name: value for field, value in settings(section) if not field.metadata["secret"]}


def _python() -> str:
    """Returns the shortest name of this Python in this folder."""
    if shutil.which("python") == sys.executable:
        return "python"
    path = os.path.relpath(sys.executable)
    return sys.executable if path.startswith(os.pardir) else path
