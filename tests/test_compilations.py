"""Once a run is warm, nothing is compiled any more, in any thread."""

import dataclasses
from contextlib import ExitStack

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.host.runtime import StopRequest
from oni_jax.learner.compilations import CompilationCounter
from oni_jax.rewards.base import Reward
from oni_jax.rewards.terms import RewardSum, Term
from oni_jax.rewards.trainer import RewardTrainer
from oni_jax.settings.rewards import RewardConfig, RewardModelConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.training import build
from oni_jax.training.loop import Training
from oni_jax.training.parts import USUAL, Makers
from oni_jax.training.plan import resolve
from oni_jax.types import ArraySpec, RewardOutput
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


class LearningLater(Reward):
    """Has something to learn from at its sixth batch."""

    def __init__(self):
        def loss_fn(params, rows, noise):
            return jnp.mean((params["mean"] - rows["x"]) ** 2), {}

        config = RewardConfig(model=RewardModelConfig(batch_size=8, dataset_size=16))
        self._trainer = RewardTrainer({"x": ArraySpec((), "float32")}, loss_fn, config, 1)
        self._num_batches = 0

    def init(self, key):
        return self._trainer.init({"mean": jnp.float32(0)})

    def score(self, state, trajectory, features, key):
        return RewardOutput(0.0 * trajectory.rewards + state.params["mean"], state)

    def observe(self, captions):
        self._num_batches += 1
        if self._num_batches == 6:
            self._trainer.append({"x": np.ones(4, np.float32)})

    def steps_due(self):
        return self._trainer.num_due

    def train_step(self, state):
        return self._trainer.train_step(state)

    def metrics(self):
        return self._trainer.metrics()


@pytest.mark.parametrize("reward", [pytest.param(None, marks=pytest.mark.slow), LearningLater])
def test_a_warm_run_compiles_nothing(reward, tmp_path, monkeypatch):
    """Games that are cut off, checkpoints, rows of metrics and a reward that begins to learn included."""
    config = small_config(tmp_path, "Catch-v0", NUM_UPDATES * 512)
    config = dataclasses.replace(
        config,
        env=EnvConfig(root_env="Catch-v0", max_episode_steps=7),
        run=dataclasses.replace(config.run, save_every_steps=10 * 512, log_every_sec=0.01),
    )
    counts = []
    count = Training._count_update

    def counted(training, metrics):
        counts.append(training.compilations.count)
        count(training, metrics)

    monkeypatch.setattr(Training, "_count_update", counted)
    makers = Makers(rewards=lambda *_: RewardSum([Term("later", reward(), 1.0)])) if reward else USUAL
    with ExitStack() as stack:
        training = build.build_training(resolve(config), str(tmp_path), stack, makers=makers)
        training.train(StopRequest())
    assert len(counts) == NUM_UPDATES and counts[0] > 0
    late = {number for number in range(NUM_WARM_UP, NUM_UPDATES) if counts[number] > counts[number - 1]}
    assert len(late) == (1 if reward else 0), counts  # the reward's step, and nothing because of it
    assert training.compilations.count == counts[-1]  # saving at the end compiles nothing either
