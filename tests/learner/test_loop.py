"""The reward's gradient steps: one an update, and more where an accelerator would idle."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import pytest

from oni_jax.learner.loop import Learner, NoAnnotator, Step, Taken
from oni_jax.learner.update import TrainState
from oni_jax.rewards.base import Reward
from oni_jax.rewards.terms import RewardSum, Term


class Counting(Reward):
    """Owes gradient steps, and counts those made."""

    def __init__(self, num_due: int):
        self.num_due = num_due

    def steps_due(self) -> int:
        return self.num_due

    def train_step(self, state: Any) -> Any:
        self.num_due -= 1
        return state + 1


class Scripted(Learner):
    """Gets batches as the script says: True where one is complete."""

    def __init__(self, reward: Reward, script: Sequence[bool], device_idles: bool):
        def update(state: TrainState, batch: Any, version: Any) -> tuple[TrainState, dict]:
            return state, {"bad_update": batch[0] < 0, "reward_mean": 0.5, "version": version}

        state = TrainState(jnp.zeros(1), (), jnp.int32(0), jnp.zeros(2))
        self.published: list[int] = []
        self.begun: list[int] = []  # version at which each update began
        world: Any = SimpleNamespace(
            runs_ahead=True,
            begin_update=lambda: self.begun.append(self.version),
            publish=lambda version, params: self.published.append(version),
        )
        rewards = RewardSum([Term("reward", reward, 1.0)])
        super().__init__(Step(cast(Any, None), update), rewards, world, NoAnnotator(), state)
        self._device_idles, self._script = device_idles, list(script)
        self.waits: list[float] = []

    def replace_update(self, update: Any) -> None:
        self._compiled = self._compiled._replace(update=update)

    def _take_batch(self, timeout_secs: float) -> Any:
        self.waits.append(timeout_secs)
        return Taken(cast(Any, jnp.zeros(1))) if self._script.pop(0) else None


@pytest.mark.parametrize(("device_idles", "num_made"), [(True, 4), (False, 1)])
def test_an_accelerator_makes_steps_while_it_waits_for_the_games(device_idles, num_made):
    script = [False, False, False, True, False] if device_idles else [True, False]
    learner = Scripted(Counting(10), script, device_idles)
    assert learner.step() == {"loss/bad_update": 0, "loss/reward_mean": 0.5, "loss/version": 0}
    assert learner.state.reward_state == num_made
    assert learner.version == 1


@pytest.mark.parametrize(("device_idles", "num_waited"), [(True, 3), (False, 0)])
def test_steps_that_fill_the_wait_for_the_games_count_as_waiting(device_idles, num_waited, monkeypatch):
    """The one beside the update counts as learning."""
    script = [False, False, False, True, False] if device_idles else [True, False]
    reward = Counting(10)
    learner, made = Scripted(reward, script, device_idles), []

    @contextmanager
    def waiting() -> Iterator[None]:
        before = reward.num_due
        yield
        made.append(before - reward.num_due)

    monkeypatch.setattr(learner.trajectory_wait, "waiting", waiting)
    learner.step()
    assert sum(made) == num_waited


def test_distributions_stay_on_the_device_and_are_no_metrics():
    learner = Scripted(Counting(0), [True, False], False)
    rewards = jnp.ones((2, 3))
    learner.replace_update(
        lambda state, batch, version: (state, {"bad_update": False, "reward_mean": 0.5, "rewards": rewards})
    )
    assert learner.step() == {"loss/bad_update": 0, "loss/reward_mean": 0.5}
    assert list(learner.distributions) == ["rewards"] and isinstance(learner.distributions["rewards"], jax.Array)


class Averaging(Counting):
    """Scoring counts in one half of the state, learning in the other, which tells what it started from."""

    def train_step(self, state: Any) -> Any:
        return {"scored": state["scored"], "learnt": state["learnt"] + 10 + state["scored"]}

    def merge(self, scored: Any, trained: Any) -> Any:
        return {"scored": scored["scored"], "learnt": trained["learnt"]}


def test_update_and_gradient_step_start_from_the_same_reward_and_are_joined():
    learner = Scripted(Averaging(10), [True, False], False)
    learner.state = learner.state._replace(reward_state={"scored": 1, "learnt": 5})

    def update(state: TrainState, batch: Any, version: Any) -> tuple[TrainState, dict]:
        reward = state.reward_state
        return state._replace(reward_state={**reward, "scored": reward["scored"] + 1}), {
            "bad_update": False,
            "reward_mean": 0.5,
        }

    learner.replace_update(update)
    learner.step()
    assert learner.state.reward_state == {"scored": 2, "learnt": 16}


def test_learner_waits_when_no_more_steps_are_due():
    learner = Scripted(Counting(2), [False, False, False], True)
    assert learner.step() is None
    assert learner.state.reward_state == 2
    assert learner.waits[:2] == [0.0, 0.0] and learner.waits[2] > 0


def test_a_bad_update_is_no_version_and_is_not_published():
    learner = Scripted(Reward(), [True] * 5, False)
    batches = iter([1.0, -1.0, -1.0, 1.0, 1.0])
    learner._take_batch = lambda timeout_secs: Taken(jnp.full(1, next(batches)))  # type: ignore
    told = [learner.step() for _ in range(4)]
    assert [metrics and metrics["loss/bad_update"] for metrics in told] == [0, 1, 1, 0]
    assert learner.published == [1, 2] and learner.version == 2


def test_a_batch_taken_beforehand_waits_until_its_update_and_is_as_old_as_it_is_then():
    learner = Scripted(Reward(), [True] * 4, False)
    metrics = [learner.step() for _ in range(3)]
    assert [row and row["loss/version"] for row in metrics] == [0, 1, 2]
    assert learner.begun == [0, 1, 2] and len(learner.waits) == 4
