"""Once a run is warm, nothing is compiled any more, in any thread."""

import dataclasses
from contextlib import ExitStack

import jax
import jax.numpy as jnp

from oni_jax import system
from oni_jax.config import EnvConfig
from oni_jax.learner.compilations import CompilationCounter
from oni_jax.runtime import StopRequest
from oni_jax.training import Training
from tests.test_learning import small_config

NUM_UPDATES, NUM_WARM_UP = 30, 3


def test_every_compilation_is_counted():
    counter = CompilationCounter()
    double = jax.jit(lambda x: 2 * x)
    before = counter.count
    for size in (3, 4, 4, 5):
        double(jnp.zeros(size, jnp.int8)).block_until_ready()
    assert counter.count >= before + 3
    counter.close()
    before = counter.count
    double(jnp.zeros(6, jnp.int8)).block_until_ready()
    assert counter.count == before


def test_a_warm_run_compiles_nothing(tmp_path, monkeypatch):
    """Games that are cut off, checkpoints and rows of metrics included."""
    config = small_config(tmp_path, "Catch-v0", NUM_UPDATES * 512)
    config = dataclasses.replace(
        config,
        env=EnvConfig(root_env="Catch-v0", max_episode_steps=7),
        run=dataclasses.replace(config.run, save_every_steps=10 * 512, log_every_sec=0.01),
    )
    counts = []
    count = Training._count

    def counted(training, metrics):
        counts.append(training.compilations.count)
        count(training, metrics)

    monkeypatch.setattr(Training, "_count", counted)
    with ExitStack() as stack:
        training = system.build_training(config, str(tmp_path), stack)
        training.train(StopRequest())
    assert len(counts) == NUM_UPDATES and counts[0] > 0
    assert counts[NUM_WARM_UP:] == [counts[NUM_WARM_UP - 1]] * (NUM_UPDATES - NUM_WARM_UP), counts
    assert training.compilations.count == counts[-1]  # saving at the end compiles nothing either
