"""Suggested goals on the device: found by the caption's code, shown and paid as a plain account says, and saved."""

import dataclasses
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.envs.device.goals import GoalTable, look_up
from oni_jax.settings.fields import with_values
from oni_jax.settings.worlds import GoalConfig
from oni_jax.worlds.device.goal_table import SuggestedGoals, with_new_rows
from tests.support.processes import equal_on_devices
from tests.worlds.device.device_worlds import CONFIG, N, collect, make_world

SAY_0, SAY_1, ANSWER_1 = range(3)
ALL_CAPTIONS = [b"The signal is %d." % i for i in range(8)]
WORTHS = {  # worths of the goals, and the number of other things, by the signal: some have no known or suggested ones
    ALL_CAPTIONS[0]: [0, 0, 0, 0],
    ALL_CAPTIONS[1]: [0, 1, 0, 2],
    ALL_CAPTIONS[2]: [0.96, 0.3, 0, 0],
    ALL_CAPTIONS[3]: [1, 1, 1, 0],
    ALL_CAPTIONS[5]: [0, 0, 0.5, 1],
    ALL_CAPTIONS[7]: [1, 0, 0, 0],
}
NAMES = ("signal", "open_goals", "goal_reward")


def config_of(**goals):
    settings = with_values(
        GoalConfig(), dict(goal_suggester="llm", goal_similarity="embeddings", goal_table_size=5, **goals)
    )
    return dataclasses.replace(CONFIG, env=dataclasses.replace(CONFIG.env, goals=settings))


def rows(of=WORTHS):
    return {caption: np.array(worths, np.float32) for caption, worths in of.items()}


def hashed(number):
    """Returns a caption's code, as good as random."""
    return int.from_bytes(hashlib.blake2b(b"%d" % number, digest_size=8).digest())


codes = st.integers(0, 100).map(hashed)
find = jax.jit(look_up)


@given(st.lists(codes, max_size=40), st.lists(codes, max_size=5), st.sampled_from([1, 2, 5, 16, 33]), st.booleans())
def test_a_table_returns_what_was_put_into_it_last(known, others, size, is_exact):
    table, held = SuggestedGoals(1, size, is_exact), {}
    for number, code in enumerate(known):
        table.see([b"%d" % code], np.array([code], np.uint64))
        table.add({b"%d" % code: np.array([number + 1.0])})
        if code not in held:
            held[code] = number + 1.0
            if len(held) > size:
                del held[next(iter(held))]
    device = table.table()
    for code in {*known, *others}:
        pair = np.array([code >> 32, code & 0xFFFF_FFFF], np.uint32)
        found = float(find(GoalTable(*device), pair)[0])
        assert found == held.get(code, 0.0)


def test_the_device_follows_the_host():
    table, size, numbers, num_replaced = SuggestedGoals(1, 2000, is_exact=True), 2000, range(3000), 0
    device, follow = jax.tree.map(jnp.asarray, table.table()), jax.jit(with_new_rows)
    for first in range(0, len(numbers), 600):
        for number in numbers[first : first + 600]:
            table.see([b"%d" % number], np.array([hashed(number)], np.uint64))
            table.add({b"%d" % number: np.array([number % 200 + 1.0])})
        new = table.new_rows()
        device, num_replaced = (table.table(), num_replaced + 1) if new is None else (follow(device, new), num_replaced)
    assert 0 < num_replaced < 3  # old ones give way; more rows change than follow at a time
    jax.tree.map(np.testing.assert_array_equal, device, table.table())
    for number in numbers[::7]:
        code = np.array([hashed(number) >> 32, hashed(number) & 0xFFFF_FFFF], np.uint32)
        assert float(find(device, code)[0]) == (number % 200 + 1.0 if number >= len(numbers) - size else 0.0)


def test_captions_that_were_not_seen_are_left_out():
    table = SuggestedGoals(4, 8)
    table.add(rows())
    assert table.save() == {}
    table.see(ALL_CAPTIONS[:3], np.arange(3, dtype=np.uint64))
    table.add(rows())
    assert table.save()["goal_codes"].tolist() == [0, 1, 2]


def played(num_devices: int = 1, **goals):
    """Trajectories of rollouts before and after goals were suggested."""
    world, _, _ = make_world(config_of(**goals), num_devices, NAMES)
    world.start()
    batches = []
    for i in range(6):
        batches += collect(world, 1)
        if i == 1:
            world.suggest(rows())
        world.suggest({caption: worth for caption, worth in rows().items() if i > 1 and caption in seen(batches[-1])})
    return [jax.device_get(batch.payload) for batch in batches], world


def seen(batch):
    return {*batch.captions.before.captions}


@pytest.mark.parametrize("repeats", [False, True])
def test_goals_are_shown_and_paid_as_suggested(repeats):
    batches, _ = played(goal_repeats=repeats)
    assert not any(batch.observations["open_goals"].any() for batch in batches[:2])
    num_paid = num_open = 0
    reached: list[set[int]] = [set() for _ in range(N)]
    worths = {int(caption[14:15]): worth for caption, worth in WORTHS.items()}
    for number, batch in enumerate(batches):
        for t, i in np.ndindex(batch.rewards.shape):
            signal = int(batch.observations["signal"][t, i, 0])
            shown = batch.observations["open_goals"][t, i]
            if batch.is_first[t, i]:
                reached[i] = set()
            suggested = [w * (repeats or g not in reached[i]) for g, w in enumerate(worths.get(signal, [0, 0, 0, 0]))]
            # The state that a rollout begins with was reached in the one before.
            if (number, t) >= (2, 1) and signal and shown.any():
                np.testing.assert_allclose(shown, suggested)
            num_open += shown.any() and number > 3
            action = int(batch.actions[t, i])
            pays = shown[action] if action == signal % 2 else 0.0
            ended = batch.terminations[t, i] or batch.truncations[t, i]
            after = (
                batch.final_observations["goal_reward"][t, i] if ended else batch.observations["goal_reward"][t + 1, i]
            )
            assert after == pytest.approx(pays)
            if pays:
                num_paid += 1
                reached[i] |= {SAY_1, ANSWER_1} if action else {SAY_0}
    assert num_paid > 10 and num_open > 20


def test_known_suggestions_are_shown():
    batches, _ = played(goal_repeats=True)
    worths = {int(caption[14:15]): worth for caption, worth in WORTHS.items()}
    for batch in batches[4:]:
        for t, i in np.ndindex(batch.rewards.shape):
            signal = int(batch.observations["signal"][t, i, 0])
            np.testing.assert_allclose(batch.observations["open_goals"][t, i], worths.get(signal, [0, 0, 0, 0]))


def on_two_devices() -> None:
    one, two = ((*played(count)[0],) for count in (1, 2))
    assert sum(batch.observations["goal_reward"].sum() for batch in one) > 10
    for a, b in zip(one, two, strict=True):
        for name in NAMES:
            np.testing.assert_allclose(b.observations[name], a.observations[name])
    print("equal")


@pytest.mark.slow
def test_two_devices_show_and_pay_what_one_does():
    equal_on_devices(2, "-c", "from tests.worlds.device.test_suggested_goals import *; on_two_devices()")


def test_open_goals_are_counted_by_kind():
    """In an episode, with those that name no goal apart."""
    batches, world = played()
    kinds, expected = np.zeros((N, 4)), []
    for batch in batches:
        for t, i in np.ndindex(batch.rewards.shape):
            signal, shown = int(batch.observations["signal"][t, i, 0]), batch.observations["open_goals"][t, i]
            if batch.is_first[t, i]:
                kinds[i] = 0
            say_0, *when_odd = (shown[:-1] > 0).tolist()
            is_odd = signal % 2
            kinds[i] += [sum(when_odd) if is_odd else say_0, say_0 * is_odd, sum(when_odd) * (1 - is_odd), shown[-1]]
            if batch.terminations[t, i] or batch.truncations[t, i]:
                expected.append(kinds[i] / max(1, kinds[i].sum()))
    names = [f"goals_{kind}_fraction" for kind in ("timely", "mistimed", "bad", "invalid")]
    columns = [world.spec.episode_stats.index(name) for name in names]
    found = np.array(world.report().episodes)[:, columns]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (found.max(0) > 0).all()


def test_a_restored_world_suggests_the_same():
    before, world = played()
    saved = world.save()
    after = [jax.device_get(batch.payload) for batch in collect(world, 3)]
    other, _, _ = make_world(config_of(), 1, NAMES)
    assert other.restore(saved)
    other.start()
    again = [jax.device_get(batch.payload) for batch in collect(other, 3)]
    for a, b in zip(after, again):
        jax.tree.map(np.testing.assert_array_equal, a, b)
    assert sum(batch.observations["goal_reward"].sum() for batch in after) > 0


def test_more_other_things_than_a_byte_counts_are_as_many_as_it_counts():
    table = SuggestedGoals(2, 1, is_exact=True)
    table.see([b"a"], np.array([7], np.uint64))
    table.add({b"a": np.array([1.0, 300.0], np.float32)})
    assert find(table.table(), np.array([0, 7], np.uint32)).tolist() == [1, 255]
