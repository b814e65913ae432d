"""Runs that go wrong: what they end with, and what stays saved."""

import dataclasses
import functools
import json
import pathlib
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.host.reporting import reported_to
from oni_jax.host.runtime import StopRequest
from oni_jax.learner.loop import Learner
from oni_jax.learner.update import TrainState
from oni_jax.networks.policy import init_params
from oni_jax.rewards.base import Reward
from oni_jax.rewards.terms import RewardSum, Term
from oni_jax.runs.checkpointing import Checkpoints, Saved
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.training import build, loop
from oni_jax.training.loop import Progress
from oni_jax.training.parts import Makers, find_progress
from oni_jax.types import RewardOutput
from oni_jax.worlds.actors.lockstep import LockstepWorld
from tests.support.processes import rows
from tests.test_learning import small_config

BATCH = 512


class TurnsBad(Reward):
    """Not a number at the third batch, and again from the fifth on. Its state counts batches."""

    def init(self, key):
        return jnp.int32(0)

    def score(self, state, trajectory, features, key):
        bad = (features["batch"] == 3) | (features["batch"] >= 5)
        return RewardOutput(jnp.where(bad, jnp.nan, 0.0 * trajectory.rewards), state + 1)

    num_batches = 0

    def prepare(self, captions):  # type: ignore
        self.num_batches += 1
        return {"batch": np.int32(self.num_batches)}


def config_of(tmp_path, **learner) -> Config:
    config = small_config(tmp_path, "Catch-v0", 20 * BATCH)
    run = dataclasses.replace(config.run, save_every_steps=2 * BATCH, keep_checkpoints=100)
    return dataclasses.replace(config, run=run, learner=dataclasses.replace(config.learner, **learner))


def summary(tmp_path) -> dict:
    return json.loads((tmp_path / "run" / "summary.json").read_text())


def steps_saved(tmp_path: pathlib.Path) -> list[int]:
    names = [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()]
    return sorted(int(name) for name in names if name.isdigit())


def saved(tmp_path: pathlib.Path, like: TrainState) -> Saved:
    """The newest checkpoint."""
    checkpoints = Checkpoints(str(tmp_path / "run" / "checkpoints"))
    found = checkpoints.restore(like)
    checkpoints.close()
    assert found
    return found


def keeping(learners: list[Learner], **others) -> Makers:
    """Makers of a run whose learner is added to these."""

    def build_learner(*args):
        learners.append(Learner(*args))
        return learners[-1]

    return Makers(learner=build_learner, **others)


def test_bad_updates_are_skipped_and_in_a_row_end_the_run(tmp_path, capsys):
    learners: list[Learner] = []
    makers = keeping(learners, rewards=lambda *_: RewardSum([Term("bad", TurnsBad(), 1.0)]))
    with pytest.raises(UserError, match="--max_bad_updates 4: .* the intrinsic rewards"):
        build.run(config_of(tmp_path, max_bad_updates=4), StopRequest(), makers)
    assert capsys.readouterr().out.count("warning: an update was skipped: the intrinsic rewards are not finite") == 1
    done = summary(tmp_path)
    assert (done["env_steps"], done["updates"], done["bad_updates"]) == (8 * BATCH, 3, 5)
    last = rows(tmp_path / "run")[-1]
    assert {name: last[name] for name in ("env_steps", "bad_updates", "episodes")} == {
        name: done[name] for name in ("env_steps", "bad_updates", "episodes")
    }
    state = learners[0].state
    found = saved(tmp_path, state)
    assert found.progress["env_steps"] == 8 * BATCH and found.progress["bad_updates"] == 5
    jax.tree.map(np.testing.assert_array_equal, found.state, state)
    assert state.reward_state == 3 and state.opt_state[1][0].count == 3


def test_episodes_of_another_task_are_not_in_the_means(tmp_path, monkeypatch):
    config, learners = config_of(tmp_path), list[Learner]()

    def last_episodes(num_updates: int) -> list:
        run = dataclasses.replace(config.run, train_for_env_steps=num_updates * BATCH)
        build.run(dataclasses.replace(config, run=run), StopRequest(), keeping(learners))
        return saved(tmp_path, learners[-1].state).progress["last_episodes"]

    assert len(last_episodes(4)) == config.run.stats_avg == 100
    assert len(last_episodes(5)) == 100
    monkeypatch.setattr(loop, "_task", lambda config: ["another", ""])
    assert len(last_episodes(6)) < 90  # one update's at most


def test_parameters_that_are_not_finite_are_never_saved(tmp_path, capsys):
    def poisoned(*args):
        params = init_params(*args)
        return jax.tree.map(lambda x: x.at[..., 0].set(jnp.inf), params)

    with pytest.raises(UserError, match="not finite first: the parameters"):
        build.run(config_of(tmp_path, max_bad_updates=3), StopRequest(), Makers(params=poisoned))
    assert "nothing is saved: NaN or inf in parameters" in capsys.readouterr().out
    assert steps_saved(tmp_path) == []


@functools.partial(jax.jit, donate_argnums=0)
def greedy(rest):
    """Takes a state, and more memory than there is."""
    numbers = jax.lax.broadcasted_iota(jnp.uint32, (1 << 24, 1 << 24), 1) ^ rest.key[0]
    return jax.tree.map(lambda x: x + 1, rest), {"loss": jnp.sort(numbers)[0, 0]}


def test_too_little_memory_is_told_in_a_line_and_the_last_checkpoint_stays(tmp_path, capsys, monkeypatch):
    def fail_later(self):
        if self.version == 5:

            def fail(state, batch, version):
                return greedy(state._replace(params=()))

            self._compiled = self._compiled._replace(update=fail)
        return step(self)

    step = Learner.step
    monkeypatch.setattr(Learner, "step", fail_later)
    with pytest.raises(UserError, match="^RESOURCE_EXHAUSTED.*: lower --batch_size"):
        build.run(config_of(tmp_path), StopRequest())
    assert "nothing is saved: the failed update" in capsys.readouterr().out
    assert summary(tmp_path)["env_steps"] == 5 * BATCH
    assert steps_saved(tmp_path) == [2 * BATCH, 4 * BATCH]


@pytest.mark.parametrize("has_gauges", [True, False])
def test_an_error_is_told_after_the_last_row_is_written(tmp_path, monkeypatch, has_gauges):
    def fail_later(self):
        if self.version == 3:
            monkeypatch.setattr(LockstepWorld, "gauges", gauges if has_gauges else fail)
            raise ValueError("the third")
        return step(self)

    def fail(self):
        raise OSError("of a part that died")

    step, gauges = Learner.step, LockstepWorld.gauges
    monkeypatch.setattr(Learner, "step", fail_later)
    with pytest.raises(ValueError, match="the third"):
        build.run(config_of(tmp_path), StopRequest())
    row = rows(tmp_path / "run")[-1]
    assert row["env_steps"] == summary(tmp_path)["env_steps"] == 3 * BATCH and row["episodes"] > 0
    assert ("env_steps_per_sec" in row) == has_gauges and "loss/loss" in row


def test_an_error_before_the_first_update_leaves_no_row(tmp_path, monkeypatch):
    def fail(self):
        raise ValueError("the first")

    monkeypatch.setattr(Learner, "step", fail)
    with pytest.raises(ValueError, match="the first"):
        build.run(config_of(tmp_path), StopRequest())
    assert rows(tmp_path / "run") == []


def test_second_interrupt_does_not_wait_for_a_save(tmp_path, monkeypatch):
    def interrupt_later(self):
        if self.version == 3:
            raise KeyboardInterrupt
        return step(self)

    step = Learner.step
    monkeypatch.setattr(Learner, "step", interrupt_later)
    with pytest.raises(KeyboardInterrupt):
        build.run(config_of(tmp_path), StopRequest())
    assert steps_saved(tmp_path) == [2 * BATCH]
    assert summary(tmp_path)["env_steps"] == 3 * BATCH


@pytest.mark.parametrize(("updates", "awaited"), [(0, "the compilation is done"), (2, "the update is computed")])
def test_interrupt_is_answered_by_what_the_run_waits_for(tmp_path, monkeypatch, updates, awaited):
    def take_long(self):
        if self.version == updates:
            signal.raise_signal(signal.SIGINT)
            deadline = time.monotonic() + 20
            while not any("ends when" in line for line in lines) and time.monotonic() < deadline:
                time.sleep(0.01)
        return step(self)

    step, lines = Learner.step, list[str]()
    monkeypatch.setattr(Learner, "step", take_long)
    with reported_to(lambda text, _: lines.append(text)), StopRequest().installed() as stop:
        build.run(config_of(tmp_path), stop)
    answer = f"SIGINT: ends when {awaited}; Ctrl-C again ends at once"
    assert [line for line in lines if "SIGINT" in line] == [answer, "SIGINT: saving and leaving"]
    assert summary(tmp_path)["env_steps"] == (updates + 1) * BATCH == steps_saved(tmp_path)[-1]


def test_a_reward_model_does_not_go_on_with_another_llm_s_or_prompt_s_labels():
    progress = dataclasses.asdict(Progress(env_steps=7, labels_of="llama 1f"))
    learnt, learns_nothing = Saved(None, {"rows": np.zeros(1)}, progress), Saved(None, {}, progress)
    assert find_progress(learnt, "llama 1f", "path").env_steps == 7
    assert find_progress(learns_nothing, "gemma 1f", "path").labels_of == "gemma 1f"
    imported = learnt._replace(progress=dataclasses.asdict(Progress()))
    assert find_progress(imported, "gemma 1f", "path").labels_of == "gemma 1f"
    with pytest.raises(UserError, match="--llm_model, .*--goal_key"):
        find_progress(learnt, "llama 2e", "path")
    with pytest.raises(UserError, match="^path/checkpoints/7 is of another version of this program .*'later'"):
        find_progress(learnt._replace(progress={**progress, "later": 1}), "llama 1f", "path")
