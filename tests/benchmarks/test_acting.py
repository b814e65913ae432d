"""Acting without a network brings batches, of empty games and of real ones; runs of programs are read right."""

import math
import mmap
import os

import numpy as np
import pytest

from benchmarks.acting import measure_acting
from benchmarks.harness import ROOT_ENV
from benchmarks.training import Run, memory_of
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values

VALUES = {"num_workers": 1, "num_envs_per_worker": 4, "batch_size": 128, "actor_pool": "serial"}


@pytest.mark.parametrize("root_env, empty_games", [("Catch-v0", False), (ROOT_ENV, True)])
def test_steps_arrive(root_env, empty_games):
    config = with_values(Config(), {**VALUES, "root_env": root_env})
    figures = measure_acting(config, empty_games, warm_up_secs=0.0, secs=0.2)
    assert figures["env_steps_per_sec"] > 128 / 5
    assert 0 < figures["inference_thread_cpu_secs_per_step"] < 0.1
    assert 0 <= figures["inference_waits_fraction"] <= 1 and 0 <= figures["games_paused_fraction"] <= 1


def test_the_speed_of_a_run_leaves_out_its_first_third():
    rows = [{"env_steps": 100 * i, "secs": max(0, i - 3)} for i in range(1, 10)]  # the first 300 in no time
    run = Run(rows, {}, math.nan, [], [], "")
    assert run.env_steps_per_sec() == 100


def test_memory_counts_what_was_touched():
    before = memory_of(os.getpid())
    touched = mmap.mmap(-1, 20_000_000)  # not what another test has given back
    np.frombuffer(touched, np.uint8)[:] = 1
    assert 15e6 < memory_of(os.getpid()) - before < 30e6
