"""The schedule of gradient steps; that they learn; that a run's settings reach them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.rewards.trainer import Passes, RewardTrainer, Schedule
from oni_jax.settings.fields import with_values
from oni_jax.settings.rewards import RewardConfig
from oni_jax.types import ArraySpec


def test_labels_bring_a_burst_while_few_are_held_and_then_one_step_an_update():
    schedule = Schedule(burst=32, few_labels=100)
    schedule.on_update(0)
    assert schedule.num_due == 0
    schedule.on_labels(10, 10)
    assert schedule.num_due == 32
    schedule.num_due = 30
    schedule.on_update(10)
    assert schedule.num_due == 30
    schedule.on_labels(89, 99)  # before the steps for the ones before are made
    assert schedule.num_due == 30 + 32
    schedule.num_due = 0
    schedule.on_labels(1, 100)
    assert schedule.num_due == 0
    for _ in range(3):
        schedule.on_update(100)
        assert schedule.num_due == 1
    schedule.num_due = 5  # earlier labels are due
    schedule.on_update(100)
    assert schedule.num_due == 5


def trainer_of(**settings) -> RewardTrainer:
    """Learns the mean of the numbers it gets."""

    def loss_fn(params, rows, noise):
        error = params["mean"] - rows["x"] + noise
        return jnp.mean(error**2), {"loss": jnp.mean(error**2), "largest": jnp.max(rows["x"])}

    values = dict(reward_model_batch_size=256, reward_model_lr=0.05, reward_dataset_size=100)
    config = with_values(RewardConfig(), {**values, **settings})
    return RewardTrainer({"x": ArraySpec((), "float32")}, loss_fn, config, 0, lambda key, n: jnp.zeros(n), 10.0)


def numbers(count, around=3.0):
    return {"x": (around + np.random.default_rng(0).normal(size=count)).astype(np.float32)}


def test_trainer_learns_from_the_rows_held_and_only_from_them():
    trainer = trainer_of(reward_model_gradient_steps_per_update=150)
    state = trainer.init({"mean": jnp.float32(0)})
    assert trainer.num_due == 0
    assert trainer.train_step(state) is state  # nothing is due
    trainer.append(numbers(40))
    while trainer.num_due:
        state = trainer.train_step(state)
    assert trainer.metrics()["gradient_steps"] == 150
    assert state.params["mean"] == pytest.approx(numbers(40)["x"].mean(), abs=0.2)  # not of zeros that fill the ring
    assert trainer.train_step(state) is state


@pytest.mark.parametrize("settings", [{"reward_model_lr": 0.01}, {"reward_model_batch_size": 512}])
def test_its_settings_matter(settings):
    states = []
    for trainer in (trainer_of(), trainer_of(**settings)):
        trainer.append(numbers(40))
        states.append(trainer.train_step(trainer.train_step(trainer.init({"mean": jnp.float32(0)}))))
    assert states[0].params["mean"] != states[1].params["mean"]


def test_the_size_of_the_data_set_bounds_what_is_learnt_from():
    trainer = trainer_of(reward_dataset_size=10)
    trainer.append(numbers(10, around=100.0))
    trainer.append(numbers(10, around=0.0))
    trainer.train_step(trainer.init({"mean": jnp.float32(0)}))
    assert trainer.metrics()["largest"] < 50


def test_no_more_than_one_program_is_compiled_while_the_data_set_grows():
    trainer = trainer_of()
    state = trainer.init({"mean": jnp.float32(0)})
    trainer.append(numbers(3))
    state = trainer.train_step(state)
    events = []

    def listen(event: str, duration_secs: float, **details: Any) -> None:
        events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for count in (1, 7, 30, 2):
            trainer.append(numbers(count))
            state = trainer.train_step(state)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not [name for name in events if "backend_compile" in name]


def test_a_resumed_run_knows_how_many_labels_came():
    settings = dict(reward_dataset_size=10, reward_model_few_labels=15)
    trainer, other = trainer_of(**settings), trainer_of(**settings)
    for _ in range(4):
        trainer.append(numbers(5))
    other.restore(trainer.save())
    assert other.metrics()["dataset_rows"] == 20
    other._schedule.num_due = 0
    other.append(numbers(1))
    assert other.num_due == 0  # no burst: enough are held


def test_a_bad_step_changes_nothing_and_is_counted():
    trainer = trainer_of(reward_dataset_size=40)
    trainer.append({"x": np.full(40, np.inf, np.float32)})
    state = trainer.init({"mean": jnp.float32(1)})
    for _ in range(2):
        after = trainer.train_step(state)
        jax.tree.map(np.testing.assert_array_equal, after, state)
    assert (trainer.metrics()["bad_steps"], trainer.metrics()["bad_steps_in_row"]) == (2, 2)
    trainer.append(numbers(40))  # the new rows take their slots
    assert trainer.train_step(state).params["mean"] != 1
    assert (trainer.metrics()["bad_steps"], trainer.metrics()["bad_steps_in_row"]) == (2, 0)


def test_new_labels_bring_steps_by_their_number_and_fraction():
    schedule = Passes(num_passes=50, batch_size=100, num_steps=200)
    schedule.on_labels(400, 400)
    assert schedule.num_due == 200 + 200
    schedule.on_labels(100, 500)
    assert schedule.num_due == 400 + 50 + 40
    schedule.on_update(500)
    assert schedule.num_due == 490
