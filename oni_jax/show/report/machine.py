"""Versions and hardware of this process."""

import importlib.metadata
import platform
from collections.abc import Mapping

import jax

from oni_jax.host.runtime import memory_bytes, num_cores

PACKAGES = ("oni-jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "nle")


def describe_machine() -> Mapping[str, str]:
    """Returns hardware and versions by label."""
    devices = jax.devices()
    versions = {found.name: found.version for found in importlib.metadata.distributions()}  # oni-jax may be a checkout
    return {
        "processor": f"{_processor()}, {num_cores()} cores",
        "memory": f"{memory_bytes() / 2**30:.1f} GiB",
        "JAX computes on": f"{len(devices)} x {devices[0].device_kind}",
        "system": platform.platform(),
        "Python": platform.python_version(),
        **{name: versions[name] for name in PACKAGES if name in versions},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
