"""Episodes of an agent of several goals: how a goal is drawn, shown, counted under and kept."""

import dataclasses

import numpy as np
import pytest

from oni_jax.envs.base import TEXT_DTYPE, make_step_output
from oni_jax.envs.captions import CaptionTracker
from oni_jax.envs.episode_goals import fixed_goal
from oni_jax.envs.registry import check_env, env_spec, make_vector_env
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig, EpisodeGoalConfig
from oni_jax.types import EPISODE_GOAL, GOAL_FEATURES
from tests.support import memory_env, signals_plugin
from tests.worlds.device.device_worlds import CONFIG, collect, make_world

N, LIMIT, NUM_STEPS = 4, 6, 60
SHOWN = ("signal", EPISODE_GOAL, GOAL_FEATURES)
DEVICE, HOST = signals_plugin.NAME, *memory_env.ENVIRONMENT.names
EACH = pytest.mark.parametrize("name", [HOST, DEVICE])


def config_of(name: str, **settings) -> EnvConfig:
    goals = EpisodeGoalConfig(names="gold,combat,stairs", **settings)
    return EnvConfig(root_env=name, max_episode_steps=LIMIT, episode_goal=goals)


def play(config: EnvConfig, seed: int = 5, first_index: int = 0, num_envs: int = N) -> np.ndarray:
    """The records [T + 1, N] of steps, the first observations' included."""
    env = make_vector_env(config, num_envs, seed, first_index, SHOWN)
    out = make_step_output(env.spec, num_envs)
    env.reset(out)
    found = [out.records.copy()]
    actions = np.random.default_rng(0).integers(0, 2, (NUM_STEPS, 2 * N)).astype(np.int32)
    for row in actions[:, first_index : first_index + num_envs]:
        env.step(row, out)
        found.append(out.records.copy())
    return np.stack(found)


@EACH
def test_goal_stays_for_its_episode_and_is_one_hot(name):
    records = play(config_of(name))
    goals, is_first = records[EPISODE_GOAL], records["is_first"]
    changed = goals[1:] != goals[:-1]
    assert not (changed & ~is_first[1:]).any() and changed.any()
    assert {*goals.ravel().tolist()} == {0, 1, 2}
    np.testing.assert_array_equal(records[GOAL_FEATURES], np.eye(3)[goals])


@EACH
def test_goal_is_drawn_again_after_its_steps(name):
    records = play(config_of(name, steps=2))
    goals, is_first = records[EPISODE_GOAL], records["is_first"]
    length, within = np.zeros(N, int), []
    for before, after, first in zip(goals, goals[1:], is_first[1:]):
        length = np.where(first, 0, length + 1)
        within += [(int(steps), bool(x)) for steps, x in zip(length, before != after) if steps]
    assert not any(changed for steps, changed in within if steps % 2)
    assert any(changed for steps, changed in within if steps % 2 == 0)


@EACH
def test_goal_depends_on_seed_index_and_episode_alone(name):
    both, second = play(config_of(name)), play(config_of(name), first_index=2, num_envs=2)
    np.testing.assert_array_equal(both[EPISODE_GOAL][:, 2:], second[EPISODE_GOAL])
    assert (play(config_of(name), seed=6)[EPISODE_GOAL] != both[EPISODE_GOAL]).any()


@EACH
def test_weights_say_how_often(name):
    assert (play(config_of(name, weights="0,0.5,0"))[EPISODE_GOAL] == 1).all()
    goals = play(config_of(name, weights="1,0,3", steps=1), num_envs=2 * N)[EPISODE_GOAL]
    assert not (goals == 1).any() and (goals == 2).sum() > 1.5 * (goals == 0).sum()


@EACH
def test_goals_are_saved(name):
    config = config_of(name, steps=2)
    env, other = (make_vector_env(config, N, seed, 0, SHOWN) for seed in (5, 9))  # a resumed run has another seed
    out, again = (make_step_output(env.spec, N) for _ in range(2))
    actions = np.random.default_rng(0).integers(0, 2, (NUM_STEPS, N)).astype(np.int32)
    env.reset(out)
    for row in actions[:7]:
        env.step(row, out)
    other.restore({key: np.array(x) for key, x in env.save().items()})
    for row in actions[7:]:
        env.step(row, out)
        other.step(row, again)
        np.testing.assert_array_equal(out.records[EPISODE_GOAL], again.records[EPISODE_GOAL])


def test_texts_are_what_the_policy_sees():
    texts = "The player wants gold|The player wants to fight|The player wants to go down"
    config = config_of(HOST, texts=texts)
    records = play(config)
    features = [records[GOAL_FEATURES][records[EPISODE_GOAL] == goal] for goal in range(3)]
    assert all((x == x[0]).all() and np.isclose(np.linalg.norm(x[0]), 1) for x in features)
    assert not np.allclose(features[0][0], features[1][0])
    free = fixed_goal(config.episode_goal, "The player wants to fight")
    other = play(dataclasses.replace(config, episode_goal=free))
    np.testing.assert_array_equal(other[GOAL_FEATURES][0, 0], features[1][0])


def test_fixed_goal_is_every_episode_s():
    config = config_of(HOST, steps=2)
    fixed = dataclasses.replace(config, episode_goal=fixed_goal(config.episode_goal, "stairs"))
    assert (play(fixed)[EPISODE_GOAL] == 2).all()
    with pytest.raises(UserError, match="--goal silver: must be one of gold, combat, stairs"):
        fixed_goal(config.episode_goal, "silver")
    with pytest.raises(UserError, match="--goal gold: .*one goal"):
        fixed_goal(EpisodeGoalConfig(), "gold")


@pytest.mark.parametrize("weights", ["1,2", "1,2,x", "1,2,-1", "0,0,0", "1,2,nan"])
def test_weights_are_refused(weights):
    with pytest.raises(UserError, match=f"--goal_weights {weights}"):
        check_env(config_of(HOST, weights=weights))


def test_settings_without_several_goals_are_refused():
    config = EnvConfig(root_env=HOST, episode_goal=EpisodeGoalConfig(steps=3))
    with pytest.raises(UserError, match="--goal_steps 3: .*--goal_key"):
        check_env(config)


def test_captions_are_counted_under_each_goal():
    """One environment's caption never changes: the outcome counts under the goal of the action."""
    spec = env_spec(config_of(HOST), SHOWN)._replace(has_captions=True)
    tracker, out = CaptionTracker(spec, 1), make_step_output(spec, 1)
    out.texts.captions[:], ids = [b"It's a wall."], np.zeros(1, TEXT_DTYPE)
    counted = []
    for step, goal in enumerate([0, 0, 2, 2, 0]):
        out.records["is_first"], out.records[EPISODE_GOAL] = step == 0, goal
        tracker.update(out, ids)
        counted.append((int(out.records["caption_count"][0]), int(out.records["outcome_caption_count"][0])))
    assert counted == [(1, 1), (2, 2), (1, 3), (2, 2), (4, 3)]


def test_device_world_counts_as_the_host_does():
    config = dataclasses.replace(CONFIG, env=config_of(DEVICE, steps=2))
    world, *_ = make_world(config, observations=("signal", EPISODE_GOAL))
    world.start()
    seen: list[dict] = [{} for _ in range(8)]
    previous = np.full(8, -1)
    for batch in collect(world, 6):
        trajectory, captions = batch.payload, batch.captions.before
        goals, is_first = np.asarray(trajectory.observations[EPISODE_GOAL])[:-1], np.asarray(trajectory.is_first)[:-1]
        counts = np.asarray(trajectory.before_counts)
        for t, i in np.ndindex(*goals.shape):
            caption, goal = captions.captions[captions.index[t, i]], int(goals[t, i])
            seen[i] = {} if is_first[t, i] else seen[i]
            if not is_first[t, i] and previous[i] != goal:  # the last action's result
                under = (caption, int(previous[i]))
                seen[i][under] = seen[i].get(under, 0) + 1
            seen[i][caption, goal] = seen[i].get((caption, goal), 0) + 1
            assert counts[t, i] == seen[i][caption, goal]
            previous[i] = goal
    world.close()
