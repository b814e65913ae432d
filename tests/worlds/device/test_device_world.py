"""Trajectories that an accelerator collects are those of the environment and of the policy, step by step."""

import dataclasses
import time
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.device.episodes import advance, begin_episode, environment_key, episode_stats
from oni_jax.envs.device.shown import first_scene
from oni_jax.ops.captions import NO_CAPTIONS
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import LearnerConfig
from oni_jax.settings.worlds import ActorConfig
from oni_jax.types import Trajectory
from oni_jax.worlds.device.device_world import DeviceWorld
from tests.envs.device.signals_env import SignalsEnv
from tests.support.processes import equal_on_devices
from tests.worlds.device.device_worlds import CONFIG, LIMIT, N, T, collect, make_world

ENV = SignalsEnv()


@pytest.fixture(scope="module")
def played():
    """Four batches; and the statistics of the episodes that ended."""
    world, task, state = make_world()
    world.start()
    batches = collect(world, 4)
    return batches, world.report().episodes, task, state


@pytest.fixture(scope="module")
def whole(played) -> Trajectory:
    """The batches as one long trajectory; observations [4T, N, ...]."""
    parts = [
        batch.payload._replace(
            observations={name: x[:-1] for name, x in batch.payload.observations.items()},
            is_first=batch.payload.is_first[:-1],
            initial_core_state=(),
        )
        for batch in played[0]
    ]
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def test_world_plays_the_environment(played, whole):
    batches, episodes, _, _ = played
    step, ended_stats = jax.jit(lambda episode, action: advance(ENV, episode, action, LIMIT)), []
    for i in range(N):
        key = environment_key(int(np.random.SeedSequence([CONFIG.run.seed, 0]).generate_state(1)[0]), i)
        episode, is_first = begin_episode(ENV, key, 0), True
        for t in range(4 * T):
            assert whole.is_first[t, i] == is_first
            for name, x in ENV.observe(episode.state).items():
                np.testing.assert_array_equal(whole.observations[name][t, i], x)
            episode, outcome = step(episode, jnp.int32(whole.actions[t, i]))
            found = whole.rewards[t, i], whole.terminations[t, i], whole.truncations[t, i]
            assert found == (outcome.reward, outcome.terminated, outcome.truncated)
            is_first = bool(outcome.terminated | outcome.truncated)
            if is_first:
                assert whole.final_observations["signal"][t, i] == episode.state.signal
                ended_stats.append((t, i, episode_stats(ENV, episode).tolist()))
                episode = begin_episode(ENV, key, episode.number + 1)
    assert whole.terminations.any() and whole.truncations.any() and whole.policy_lags.max() == 0
    assert [stats.tolist() for stats in episodes] == [stats for *_, stats in sorted(ended_stats)]


def test_captions_and_counts_are_those_of_the_states(played, whole):
    before, caused = (
        np.concatenate([[[batch.captions[j] for j in row] for row in batch.index] for batch in part])
        for part in zip(*((each.captions.before, each.captions.caused) for each in played[0]))
    )
    signals = whole.observations["signal"][..., 0].astype(int)
    finals = whole.final_observations["signal"][..., 0].astype(int)
    for i in range(N):
        seen: Counter[bytes] = Counter()
        for t in range(4 * T):
            if whole.is_first[t, i]:
                seen = Counter([b"The signal is %d." % signals[t, i]])
            assert before[t, i] == b"The signal is %d." % signals[t, i]
            assert whole.before_counts[t, i] == seen[before[t, i]]
            ended = whole.terminations[t, i] or whole.truncations[t, i]
            assert t + 1 == 4 * T or ended or caused[t, i] == before[t + 1, i]
            assert not ended or caused[t, i] == b"The signal is %d." % finals[t, i]
            seen[caused[t, i]] += 1
            assert whole.caused_counts[t, i] == seen[caused[t, i]]
    signals_before = np.concatenate([batch.captions.before.observations["signal"] for batch in played[0]])
    caused_signals = np.concatenate([batch.captions.caused.observations["signal"] for batch in played[0]])
    np.testing.assert_array_equal(signals_before[..., 0], signals)
    ended = whole.terminations | whole.truncations
    after = np.where(ended[:-1], finals[:-1], signals[1:])
    np.testing.assert_array_equal(caused_signals[:-1, :, 0], after)


def test_world_makes_only_what_rewards_read(played):
    """Captions of the states before actions are always made: every run counts them."""
    world, _, _ = make_world(read={"captions_read": (), "reads_counts": False})
    world.start()
    for batch, known in zip(collect(world, 2), played[0]):
        assert batch.captions.before.captions == known.captions.before.captions
        assert batch.captions.caused is NO_CAPTIONS
        assert np.isnan(batch.payload.before_counts).all() and np.isnan(batch.payload.caused_counts).all()


def test_values_and_logits_are_the_policys(played):
    batches, _, task, state = played
    core_state = task.policy.initial_state(N)
    for batch in batches:
        trajectory = batch.payload
        jax.tree.map(np.testing.assert_allclose, trajectory.initial_core_state, core_state)
        output, core_state = task.policy.apply(
            state.params, {k: x[:-1] for k, x in trajectory.observations.items()}, core_state, trajectory.is_first[:-1]
        )
        np.testing.assert_allclose(trajectory.behaviour_logits, output.logits, atol=1e-5)
        np.testing.assert_allclose(trajectory.values, output.values, atol=1e-5)
        ends = trajectory.truncations
        assert np.all((np.asarray(trajectory.truncation_values) != 0) == ends)
        for t, i in zip(*np.nonzero(ends)):
            np.testing.assert_allclose(
                trajectory.truncation_values[t, i], final_value(played, trajectory, t, i), atol=1e-5
            )
    assert sum(int(batch.payload.truncations.sum()) for batch in batches) > 3


def final_value(played, trajectory: Trajectory, t: int, i: int) -> jax.Array:
    """The value of what environment i's action t led to, by a separate unroll."""
    _, _, task, state = played
    signal = np.asarray(trajectory.final_observations["signal"][t, i])
    final = {"signal": signal, "parity": signal.astype(np.int32)[0] % 2}
    steps = {k: x[:, i : i + 1].at[t + 1].set(final[k]) for k, x in trajectory.observations.items()}
    before = jax.tree.map(lambda x: x[i : i + 1], trajectory.initial_core_state)
    is_first = trajectory.is_first[:, i : i + 1].at[t + 1].set(False)
    return task.policy.apply(state.params, steps, before, is_first)[0].values[t + 1, 0]


def test_actions_are_drawn_from_the_policy():
    """Over 16,000 draws each environment and step has another; nothing repeats from rollout to rollout."""
    config = dataclasses.replace(CONFIG, learner=LearnerConfig(batch_size=64 * 50, rollout=50, recurrence=50))
    world, _, _ = make_world(config)
    world.start()
    batches = [batch.payload for batch in collect(world, 5)]
    actions = np.stack([batch.actions for batch in batches])
    logits = np.stack([batch.behaviour_logits for batch in batches])
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    surprise = (actions == 1) - probabilities[..., 1]
    deviation = np.sqrt(np.sum(probabilities.prod(-1)))
    assert abs(surprise.sum()) < 4 * deviation
    normal = surprise / np.sqrt(probabilities.prod(-1))
    for pair in ((normal[1:], normal[:-1]), (normal[:, 1:], normal[:, :-1]), (normal[..., 1:], normal[..., :-1])):
        assert abs(np.mean(pair[0] * pair[1])) < 4 / np.sqrt(pair[0].size)


def test_a_restored_world_goes_on_bit_for_bit():
    first, _, _ = make_world()
    first.start()
    collect(first, 2)
    saved = first.save()
    expected = collect(first, 2)
    second, _, _ = make_world()
    assert second.restore(saved)
    second.start()
    for batch, again in zip(expected, collect(second, 2), strict=True):
        jax.tree.map(np.testing.assert_array_equal, again.payload, batch.payload)
        assert again.captions.before.captions == batch.captions.before.captions
    episodes, again = ([stats.tolist() for stats in world.report().episodes] for world in (first, second))
    assert again and episodes[-len(again) :] == again
    other, _, _ = make_world(dataclasses.replace(CONFIG, learner=LearnerConfig(batch_size=40, rollout=10)))
    assert not other.restore(saved)


def test_counts_that_were_not_kept_are_not_taken_for_none():
    """A reward may read them after a resume, or no longer: new episodes begin where they are missing."""
    kept, _, _ = make_world()
    dropped, _, _ = make_world(read={"reads_counts": False})
    for world in (kept, dropped):
        world.start()
    fresh, _, _ = make_world()
    assert not fresh.restore(dropped.save())
    fresh, _, _ = make_world(read={"reads_counts": False})
    assert fresh.restore(kept.save()) and not any("counts" in name for name in fresh.save())


def signal_shown(world: DeviceWorld) -> int | None:
    """The signal of environment 0 that the world's terminal shows."""
    terminal = world.terminal()
    return None if terminal is None else int(chr(terminal.chars[0, 0]))


def check_terminal(world: DeviceWorld) -> None:
    """A new world shows environment 0 as it was when somebody asked."""
    assert signal_shown(world) is None
    world.start()
    jax.block_until_ready(world._scene)
    before = signal_shown(world)
    assert world.terminal() is world.terminal()  # nothing has happened
    (batch,) = collect(world, 1)
    signals = np.asarray(batch.payload.observations["signal"])[:, 0, 0]
    assert before == signals[0]
    jax.block_until_ready(world._scene)
    assert signal_shown(world) == signals[-1]
    second, third = (np.asarray(collected.payload.observations["signal"])[-1, 0, 0] for collected in collect(world, 2))
    assert second != third
    jax.block_until_ready(world._scene)
    assert signal_shown(world) == second  # the third wasn't asked for


def test_world_shows_one_environment_on_request():
    check_terminal(make_world()[0])


@pytest.mark.parametrize("part", ["scene", "draw"])
def test_an_environment_that_cannot_be_drawn_plays_on(part, monkeypatch):
    def fail(*_):
        raise KeyError("no such tile")

    monkeypatch.setattr(SignalsEnv, part, fail)
    first_scene.clear_cache()  # type: ignore  # of a scene that could be made
    world, _, _ = make_world()
    world.terminal()
    world.start()
    collect(world, 2)
    jax.block_until_ready(world._scene)
    terminal = world.terminal()
    assert terminal is not None
    assert b"The environment can't be drawn: KeyError: 'no such tile'" in terminal.chars[0].tobytes()
    collect(world, 1)


class Wordless(Exception):
    def __str__(self):
        raise ValueError("no words")


def test_scene_that_fails_on_its_device_costs_no_run(monkeypatch):
    def fail():
        raise KeyError("no such tile")

    def scene(*_):
        return jax.pure_callback(fail, jax.ShapeDtypeStruct((), np.float32))

    monkeypatch.setattr(SignalsEnv, "scene", scene)
    first_scene.clear_cache()  # type: ignore  # of a scene that could be made
    world, _, _ = make_world()
    world.terminal()
    world.start()
    collect(world, 2)
    shown = wait_until(world.terminal)
    assert b"The environment can't be drawn: " in shown.chars[0].tobytes()
    collect(world, 1)
    first_scene.clear_cache()  # type: ignore


def test_error_without_words_is_shown_by_its_name(monkeypatch):
    def fail(*_):
        raise Wordless

    monkeypatch.setattr(SignalsEnv, "draw", fail)
    world, _, _ = make_world()
    world.terminal()
    world.start()
    collect(world, 1)
    assert b"can't be drawn: Wordless" in wait_until(world.terminal).chars[0].tobytes()


def wait_until(make):
    """Returns the first result that is not None, within ten seconds."""
    for _ in range(1000):
        if (found := make()) is not None:
            return found
        time.sleep(0.01)
    raise AssertionError("nothing within ten seconds")


def test_looking_changes_nothing(played):
    world, _, _ = make_world()
    world.start()
    for batch in played[0]:
        world.terminal()
        jax.tree.map(np.testing.assert_array_equal, collect(world, 1)[0].payload, batch.payload)


def test_actors_are_refused():
    config = dataclasses.replace(CONFIG, actors=ActorConfig(actor_pool="process"))
    with pytest.raises(UserError, match="--actor_pool process: Signals-v0 runs on the accelerator"):
        make_world(config)


def compare() -> None:
    """One device and eight collect the same."""
    one, _, _ = make_world()
    eight, _, _ = make_world(num_devices=8)
    for world in (one, eight):
        world.start()
    for batch, other in zip(collect(one, 3), collect(eight, 3), strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), other.payload, batch.payload)
        assert {len(x.devices()) for x in jax.tree.leaves(other.payload)} == {8}
        assert list(other.captions.caused.captions) == list(batch.captions.caused.captions)
        np.testing.assert_array_equal(other.captions.caused.index, batch.captions.caused.index)
    check_terminal(make_world(num_devices=8)[0])
    print("equal")


@pytest.mark.slow
def test_devices_share_the_environments():
    equal_on_devices(8, "-m", "tests.worlds.device.test_device_world", flags="")


if __name__ == "__main__":
    compare()
