"""A task in Crafter pays instead of the world, ends the episode, and is what a policy that sees goals sees."""

import dataclasses
from contextlib import closing

import jax
import numpy as np
import pytest

from oni_jax.envs.base import make_step_output
from oni_jax.envs.crafter import things
from oni_jax.envs.registry import base_spec, env_spec, find_environment, make_vector_env
from oni_jax.runs.plan import with_chosen_env
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.worlds import CrafterConfig, EnvConfig, GoalConfig

LEFT, DOWN, NUM_ENVS = 1, 4, 4


def config_of(root_env: str = "CrafterTextEnv-v1", suggester: str = "task", **crafter) -> EnvConfig:
    settings = with_values(CrafterConfig(), dict(crafter_map_stock=1, crafter_maps="stock", **crafter))
    return EnvConfig(root_env=root_env, crafter=settings, goals=GoalConfig(suggester=suggester))


def test_a_solved_task_pays_and_ends_the_episode():
    config = config_of(crafter_task="move left")
    names = env_spec(config).episode_stats
    is_goal = np.arange(139) == LEFT
    with closing(make_vector_env(config, NUM_ENVS, 5, 0, ("*", "open_goals"))) as env:
        out = make_step_output(env.spec, NUM_ENVS)
        env.reset(out)
        num_solved = 0
        for action in [DOWN, DOWN, LEFT, DOWN, *[LEFT] * 4]:
            assert (out.records["open_goals"][:, :-1] == is_goal).all()
            env.step(np.full(NUM_ENVS, action, np.int32), out)
            solved = out.records["terminated"]
            assert (out.records["reward"] == solved).all() and (action == LEFT or not solved.any())
            for stats in out.episode_stats[solved]:
                assert dict(zip(names, stats))["success"] == dict(zip(names, stats))["return"] == 1
            num_solved += int(solved.sum())
        assert num_solved > 2 * NUM_ENVS


@pytest.mark.slow
def test_a_goal_that_a_task_asks_for_again_is_shown_again():
    config = config_of(crafter_task="move left", crafter_task_repeats=True)
    with closing(make_vector_env(config, 1, 5, 0, ("*", "open_goals"))) as env:
        out = make_step_output(env.spec, 1)
        env.reset(out)
        num_paid = 0
        for _ in range(6):
            env.step(np.full(1, LEFT, np.int32), out)
            num_paid += int(out.records["reward"][0])
            assert out.records["open_goals"][0, LEFT] == 1 and not out.records["terminated"].any()
        assert num_paid > 1


@pytest.mark.slow
@pytest.mark.parametrize("success", ["strict", "tried"])
def test_a_goal_that_is_tried_alone(success):
    """A diamond that is not there is mined where naming is enough; what names a thing is in tests/golden."""
    config = config_of(suggester="all")
    config = dataclasses.replace(config, goals=dataclasses.replace(config.goals, success=success))
    mine = env_spec(config).goals.index("mine diamond")
    with closing(make_vector_env(config, 1, 5, 0, ("*", "open_goals", "goal_reward"))) as env:
        out = make_step_output(env.spec, 1)
        env.reset(out)
        env.step(np.full(1, mine, np.int32), out)
        is_paid = success == "tried"
        assert out.records["goal_reward"][0] == is_paid
        assert out.records["open_goals"][0, mine] == (not is_paid)


def test_choice_of_the_suggester():
    def chosen(suggester: str, **crafter) -> str:
        policy = NetworkConfig(encoder_custom="generic_encoder", goal_conditioned=True)
        return with_chosen_env(Config(config_of(suggester=suggester, **crafter), network=policy)).env.goals.suggester

    assert chosen("auto", crafter_task="sleep") == chosen("task", crafter_task="sleep") == "task"
    assert chosen("auto") == chosen("oracle", crafter_task="sleep") == "oracle"


@pytest.mark.parametrize(
    "config, error",
    [
        (config_of(), "--goal_suggester task: needs --crafter_task"),
        (config_of(crafter_task="fly"), "--crafter_task fly: is no goal of this world"),
        (
            config_of(crafter_task="eat cow", crafter_actions="easier"),
            "--crafter_task eat cow: is no goal of this",
        ),
    ],
)
def test_settings_that_do_not_fit(config, error):
    with pytest.raises(UserError, match=error):
        env_spec(config)


def test_settings_of_other_worlds():
    with pytest.raises(UserError, match="--crafter_task sleep: has no meaning in Catch-v0; leave it out"):
        with_chosen_env(Config(EnvConfig(root_env="Catch-v0", crafter=CrafterConfig(task="sleep"))))


@pytest.mark.slow
def test_a_task_can_be_watched():
    config = config_of(crafter_task="move left")
    display = find_environment(config).display
    assert display
    with closing(display.watch(config, base_spec(config, ("*", "open_goals")), 5, 0, 0, "")) as env:
        out = make_step_output(env.spec, 1)
        env.reset(out)
        assert out.records["open_goals"][0, LEFT] == 1
        while not out.records["terminated"].any():
            env.step(np.full(1, LEFT, np.int32), out)
        assert out.episode_stats[0][env_spec(config).episode_stats.index("success")] == 1


def test_bk_s_tasks_say_whether_they_succeeded():
    maps = CrafterConfig(map_stock=1, maps="stock")
    config = EnvConfig(root_env="Crafter-Text-CollectDrink", crafter=maps)
    spec = env_spec(config)
    assert (
        spec.episode_stats[-1] == "success"
        and "success" not in env_spec(EnvConfig(root_env="CrafterTextEnv-v1")).episode_stats
    )
    env = find_environment(config).device
    assert env
    made = env(config)
    state = made.reset(jax.random.key(0))
    drink = things.ACHIEVEMENTS.index("collect_drink")
    solved = state._replace(achievements=state.achievements.at[drink].set(1))
    assert (made.stats(state)[-1], made.stats(solved)[-1]) == (0, 1)
    assert made.stats(state).shape == (len(spec.episode_stats) - 2,)  # return and length are counted elsewhere
    with pytest.raises(UserError, match="--crafter_task move left: Crafter-Text-CollectDrink has a fixed task"):
        env_spec(dataclasses.replace(config, crafter=dataclasses.replace(config.crafter, task="move left")))
