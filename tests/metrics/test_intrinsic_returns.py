"""Intrinsic returns of a run: of a reward that pays what the environment pays, they are the environment's returns."""

import dataclasses
import json
from collections import Counter
from contextlib import ExitStack

import pytest

from oni_jax.host.runtime import StopRequest
from oni_jax.rewards.base import Reward
from oni_jax.rewards.terms import RewardSum, Term
from oni_jax.settings.config import Config
from oni_jax.settings.rewards import RewardConfig
from oni_jax.training import build
from oni_jax.training.parts import Makers
from oni_jax.training.plan import resolve
from oni_jax.types import RewardOutput
from tests.test_resume import DEVICE, config_of

NUM_UPDATES = 12
NAME = "episode/intrinsic_return/"


class Extrinsic(Reward):
    """Pays the environment's reward, times a factor."""

    def __init__(self, factor: float):
        self._factor = factor

    def score(self, state, trajectory, features, key):
        return RewardOutput(self._factor * trajectory.rewards, state)


def config(folder, name: str, pool: str) -> Config:
    base = config_of(folder, name, NUM_UPDATES)
    run = dataclasses.replace(base.run, train_dir=str(folder), save_every_steps=0, stats_avg=10_000)
    reward = RewardConfig(llm_reward_type="none")
    return dataclasses.replace(base, run=run, reward=reward, actors=dataclasses.replace(base.actors, actor_pool=pool))


@pytest.mark.parametrize(("name", "pool"), [(DEVICE, "auto"), ("none", "serial"), ("none", "auto")])
def test_returns_are_sums_over_episodes_that_were_learnt_from(tmp_path, name, pool):
    terms = [Term("once", Extrinsic(1.0), 1.0), Term("twice", Extrinsic(2.0), 1.0)]
    makers = Makers(rewards=lambda *_: RewardSum(terms))
    with ExitStack() as stack:
        training = build.build_training(resolve(config(tmp_path, name, pool)), str(tmp_path), stack, makers=makers)
        training.train(StopRequest())
        done = training.summary()
    (saved,) = (tmp_path / "checkpoints").glob("*/progress/metadata")
    progress = json.loads(saved.read_text())
    played = Counter(row[0] for row in progress["last_episodes"])
    learnt = Counter(once for once, _ in progress["last_intrinsic_returns"])
    assert learnt.total() > 20 and all(twice == 2 * once for once, twice in progress["last_intrinsic_returns"])
    assert learnt <= played  # those of trajectories that nothing was learnt from are not in it
    assert done[f"{NAME}twice"] == pytest.approx(2 * done[f"{NAME}once"])
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert f"{NAME}once" in last
    if name == DEVICE:
        assert learnt == played and done[f"{NAME}once"] == pytest.approx(done["mean_return"])
