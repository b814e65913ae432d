"""A run on the CPU beside a GPU says in a line why, and what to install."""

import os
import pathlib
import subprocess

import pytest

from launch import train
from oni_jax.host import gpu
from oni_jax.host.gpu import Gpu, find_gpu, unused_gpu
from tests.support.processes import ROOT

OLD, NEW = Gpu("550.54.15", 9.0), Gpu("580.65.06", 9.0)
HIDDEN = "no GPU is used: CUDA_VISIBLE_DEVICES= hides it; unset it"


@pytest.mark.parametrize(
    ("found", "plugin", "backend", "visible", "line"),
    [
        (None, 13, "cpu", None, ""),
        (None, None, "cpu", "", ""),
        (OLD, 12, "gpu", None, ""),
        (NEW, None, "tpu", None, ""),
        (OLD, 13, "cpu", None, "no GPU is used: driver 550.54.15, CUDA 13 needs 580; install .[cuda12]"),
        (OLD, None, "cpu", None, "no GPU is used: driver 550.54.15, no CUDA is installed; install .[cuda12]"),
        (NEW, None, "cpu", "0", "no GPU is used: driver 580.65.06, no CUDA is installed; install .[cuda13]"),
        (NEW, 13, "cpu", None, "no GPU is used: driver 580.65.06 suits CUDA 13; JAX's warning above says why"),
        (
            Gpu("580.65.06"),
            12,
            "cpu",
            None,
            "no GPU is used: driver 580.65.06 suits CUDA 12; JAX's warning above says why",
        ),
        (
            Gpu("580.65.06", 7.0),
            13,
            "cpu",
            None,
            "no GPU is used: compute capability 7.0, CUDA 13 needs 7.5; install .[cuda12]",
        ),
        (
            Gpu("470.256.02", 8.0),
            12,
            "cpu",
            None,
            "no GPU is used: driver 470.256.02, CUDA 12 needs 525; update the driver, or use another GPU",
        ),
        (
            Gpu("580.1", 3.5),
            None,
            "cpu",
            None,
            "no GPU is used: compute capability 3.5, CUDA 12 needs 5.2; update the driver, or use another GPU",
        ),
        (OLD, 13, "cpu", "", HIDDEN),
        (NEW, 13, "cpu", "-1", HIDDEN.replace("=", "=-1")),
    ],
)
def test_line_follows_from_driver_plugin_and_backend(found, plugin, backend, visible, line):
    assert unused_gpu(found, plugin, backend, visible) == line


def install(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Puts a `nvidia-smi` first on PATH."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo '550.54.15, 9.0'", OLD),
        ("echo 580.65.06, 7.0; echo 580.65.06, 12.0", Gpu("580.65.06", 12.0)),  # two GPUs
        ("case $1 in *compute_cap*) echo no such field; exit 2;; esac; echo 470.57.02", Gpu("470.57.02")),
        ("echo '550.54.15, [N/A]'", Gpu("550.54.15")),
        ("echo NVIDIA-SMI has failed; exit 9", None),
        ("echo No devices were found", None),
        ("exec sleep 60", None),
    ],
)
def test_gpu_is_what_the_driver_reports(tmp_path, monkeypatch, script, found):
    monkeypatch.setattr(gpu, "SMI_SECS", 0.5)
    install(tmp_path, monkeypatch, script)
    assert find_gpu() == found


def test_machine_without_a_driver_has_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpu() is None


@pytest.mark.parametrize("is_chosen", [False, True])
def test_run_on_the_cpu_says_which_driver_a_gpu_needs(tmp_path, monkeypatch, capfd, is_chosen):
    install(tmp_path, monkeypatch, "echo 550.54.15, 8.0")
    monkeypatch.setattr(gpu, "cuda_plugin", lambda: 13)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "")  # restored afterwards: the flag sets it
    words = (
        f"--root_env=Catch-v0 --train_dir={tmp_path} --experiment=run --llm_reward_type=none "
        "--encoder_custom=mlp_encoder --hidden_size=8 --use_rnn=False --actor_pool=serial "
        "--num_workers=1 --num_envs_per_worker=4 --rollout=8 "
        "--recurrence=8 --batch_size=32 --train_for_env_steps=32"
    ).split()
    assert train.main([*words, *["--device=cpu"] * is_chosen]) == 0
    line = "no GPU is used: driver 550.54.15, CUDA 13 needs 580; install .[cuda12]"
    assert capfd.readouterr().out.splitlines().count(line) == (not is_chosen)


@pytest.mark.parametrize(
    ("reported", "words", "extra"),
    [
        ("550.54.15, 9.0", "", "[cuda12]"),
        ("580.65.06, 9.0", "", "[cuda]"),
        ("580.65.06, 7.0", "CUDA=1", "[cuda12]"),
        ("No devices were found", "CUDA=1", "[cuda]"),
        ("580.65.06, 9.0", "CUDA=12", "[cuda12]"),
        ("580.65.06, 9.0", "CUDA=0", ""),
    ],
)
def test_make_installs_the_cuda_that_the_driver_runs(tmp_path, monkeypatch, reported, words, extra):
    install(tmp_path, monkeypatch, f"echo '{reported}'")
    command = ["make", "-n", "-B", "setup", *words.split()]
    assert f"-e '.{extra}'" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
