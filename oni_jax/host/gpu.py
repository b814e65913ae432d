"""Reasons for which a run computes on the CPU of a machine that has an NVIDIA GPU."""

import os
import re
import shutil
import subprocess
from importlib import metadata
from typing import NamedTuple

NEEDS = {13: (580, 7.5), 12: (525, 5.2)}  # CUDA's version -> the driver's, and the GPU's compute capability
SMI_SECS = 10.0  # until `nvidia-smi` counts as failed


class Gpu(NamedTuple):
    """Report of a machine's NVIDIA driver."""

    driver: str  # version, such as 550.54.15
    capability: float | None = None  # compute capability of the newest GPU, such as 7.0 of a V100; None: unknown


def find_gpu() -> Gpu | None:
    """Returns what `nvidia-smi` reports; None: there is no GPU, or no such program, or it fails."""
    program = shutil.which("nvidia-smi")
    for fields in ("driver_version,compute_cap", "driver_version") if program else ():  # the older ones lack the second
        command = [str(program), f"--query-gpu={fields}", "--format=csv,noheader"]
        try:
            reported = subprocess.run(command, capture_output=True, text=True, timeout=SMI_SECS, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        if driver := re.search(r"\b\d{3,}\.[\d.]*\d", reported):
            capabilities = map(float, re.findall(r", *(\d+\.\d)\s*$", reported, re.MULTILINE))
            return Gpu(driver[0], max(capabilities, default=None))
    return None


def cuda_plugin() -> int | None:
    """Returns the CUDA version for which a plugin of JAX is installed; None: there is none."""
    installed = {package.metadata["Name"] for package in metadata.distributions()}
    return next((version for version in NEEDS if f"jax-cuda{version}-plugin" in installed), None)


def unused_gpu(gpu: Gpu | None, plugin: int | None, backend: str, visible: str | None = None) -> str:
    """Returns a line that says why a GPU is not used, and what to do; empty: one is used, or there is none.

    Args:
      gpu: of the machine.
      plugin: the CUDA version for which a plugin of JAX is installed.
      backend: on which JAX computes.
      visible: $CUDA_VISIBLE_DEVICES.
    """
    if gpu is None or backend != "cpu":
        return ""
    lacks = {version: _lacking(gpu, version) for version in NEEDS}
    suiting = next((version for version in NEEDS if not lacks[version]), None)
    if visible is not None and visible.strip() in ("", "-1"):
        reason, advice = f"CUDA_VISIBLE_DEVICES={visible.strip()} hides it", "unset it"
    elif suiting is None:
        reason, advice = lacks[min(NEEDS)], "update the driver, or use another GPU"
    elif plugin is None:
        reason, advice = f"driver {gpu.driver}, no CUDA is installed", f"install .[cuda{suiting}]"
    elif lacks[plugin]:
        reason, advice = lacks[plugin], f"install .[cuda{suiting}]"
    else:
        reason, advice = f"driver {gpu.driver} suits CUDA {plugin}", "JAX's warning above says why"
    return f"no GPU is used: {reason}; {advice}"


def why_no_gpu(backend: str) -> str:
    """Returns this machine's line of `unused_gpu`; empty, too, where $JAX_PLATFORMS chose the CPU."""
    if backend != "cpu" or os.environ.get("JAX_PLATFORMS"):
        return ""
    return unused_gpu(find_gpu(), cuda_plugin(), backend, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _lacking(gpu: Gpu, version: int) -> str:
    """Returns what a GPU and its driver lack for this version of CUDA; empty: nothing."""
    driver, capability = NEEDS[version]
    if int(gpu.driver.split(".")[0]) < driver:
        return f"driver {gpu.driver}, CUDA {version} needs {driver}"
    if gpu.capability is not None and gpu.capability < capability:
        return f"compute capability {gpu.capability}, CUDA {version} needs {capability}"
    return ""
