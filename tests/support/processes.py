"""Runs of the programs, as tests start them, and what they write; and of Python on several devices."""

import json
import os
import pathlib
import subprocess
import sys

from tests.support.launched import Launched, rows

__all__ = ["COMPILES_SOON", "RETRIEVAL", "ROOT", "SMALL", "Launched", "equal_on_devices", "rows", "summary"]

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILES_SOON = {
    # The Makefile's, or those of them that all versions know: an unknown one ends a program.
    "XLA_FLAGS": os.environ.get("XLA_FLAGS")
    or "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}

SMALL = (  # a run of NetHack that two cores finish in seconds, thanks to a network that computes little
    "--root_env=NetHackScoreExtendedActions-v1 --num_workers=2 --num_envs_per_worker=4 --batch_size=256 "
    "--hidden_size=32 --encoder_custom=mlp_encoder --log_every_sec=0.1"
).split()
RETRIEVAL = "--llm_reward_type=online_cls --llm_reward_coeff=0.4 --extrinsic_reward_coeff=0.1".split()


def summary(folder: pathlib.Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def equal_on_devices(
    number: int, *words: str, flags: str = COMPILES_SOON["XLA_FLAGS"], timeout_secs: float = 300.0
) -> str:
    """Runs Python with `words` on several devices of a CPU. Returns its output, whose end is "equal".

    Args:
        number: number of devices.
        words: words of Python's command line.
        flags: XLA's; "" compiles as training does.
        timeout_secs: until it is killed.
    """
    flags = f"{flags} --xla_force_host_platform_device_count={number}"
    environment = {**os.environ, **COMPILES_SOON, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    result = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_secs
    )
    assert result.returncode == 0 and result.stdout.endswith("equal\n"), result.stderr[-4000:]
    return result.stdout
