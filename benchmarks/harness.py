"""What every measurement shares: where it ran, how it spread, and the JSON that keeps it."""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

PACKAGES = ("jax", "jaxlib", "flax", "optax", "nle", "numpy", "aiohttp", "orbax-checkpoint")


def environment() -> dict[str, Any]:
    """Command, commit, hardware, versions."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return {
        "command": " ".join([os.path.basename(sys.executable), *sys.orig_argv[1:]]),
        "commit": commit.stdout.strip() or "unknown",
        "cpu": _cpu_name(),
        "num_cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
    }


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Minimum, median and maximum over repeats, and the repeats."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values), "repeats": list(values)}


def write_report(path: str, figures: Mapping[str, Any]) -> None:
    """Writes the figures and where they came from; `path` empty: prints them alone."""
    report = json.dumps({"figures": figures, "environment": environment()}, indent=2)
    print(json.dumps(figures, indent=2))
    if path:
        with open(path, "w") as file:
            file.write(report + "\n")


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
