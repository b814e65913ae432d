"""Goals of a device environment: open, reached and paid as a plain account of the steps says."""

import itertools
from contextlib import closing

import numpy as np
import pytest

from oni_jax.envs.base import make_step_output
from oni_jax.envs.device.goals import SUGGESTERS
from oni_jax.envs.goals import GOAL_STATS
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.networks.registry import policy_observations
from oni_jax.rewards.registry import check_rewards
from oni_jax.runs.plan import with_chosen_env
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.worlds import CrafterConfig, EnvConfig, GoalConfig
from tests.support import signals_plugin

NAMES = ("*", "goal_reward", "open_goals")
SAY_0, SAY_1, ANSWER_1 = range(3)
NUM_ENVS, NUM_STEPS = 3, 80
KINDS = ("timely", "mistimed", "bad", "invalid")
QUICK = (("oracle", "strict", False), ("all", "loose", True), ("random", "strict", False))  # each value once


def config_of(suggester: str, root_env: str = signals_plugin.NAME, **settings) -> EnvConfig:
    goals = with_values(GoalConfig(), dict(goal_suggester=suggester, **settings))
    return EnvConfig(root_env=root_env, max_episode_steps=9, goals=goals)


def crafter(**settings) -> EnvConfig:
    return EnvConfig(root_env="CrafterTextEnv-v1", crafter=with_values(CrafterConfig(), settings))


def play(config: EnvConfig) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """[(action, record, final record, statistics)] of each environment in turn after a reset, and each step."""
    actions = np.random.default_rng(3).integers(2, size=(NUM_STEPS, NUM_ENVS)).astype(np.int32)
    with closing(make_vector_env(config, NUM_ENVS, 5, 0, NAMES)) as env:
        out = make_step_output(env.spec, NUM_ENVS)
        env.reset(out)
        rows = [(actions[0], out.records.copy(), out.finals.copy(), out.episode_stats.copy())]
        for action in actions:
            env.step(action, out)
            rows.append((action, out.records.copy(), out.finals.copy(), out.episode_stats.copy()))
    return rows


@pytest.mark.parametrize(
    "suggester, success, repeats",
    [
        *QUICK,
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in itertools.product(("oracle", "all"), ("strict", "loose"), (False, True))
            if case not in QUICK
        ),
    ],
)
def test_goals_are_open_reached_and_paid(suggester, success, repeats):
    config = config_of(suggester, goal_success=success, goal_repeats=repeats, goal_count=2)
    names, rows = env_spec(config).episode_stats, play(config)
    num_paid = 0
    for i in range(NUM_ENVS):
        reached: set[int] = set()
        given: set[int] = set()
        kinds = np.zeros(4)  # timely, mistimed, bad, invalid
        count = 0
        for t, (action, records, finals, stats) in enumerate(rows):
            record, ended = records[i], t > 0 and bool(records["terminated"][i] | records["truncated"][i])
            if t:
                before = rows[t - 1][1][i]
                said = action[i]
                is_odd = before["signal"][0] % 2
                for goal in np.flatnonzero(before["open_goals"]).tolist():
                    is_timely = (goal != SAY_0) == is_odd
                    kinds[0 if is_timely else 1 if goal == SAY_0 else 2] += 1
                    given.add(goal)
                does = success == "loose" or said == before["signal"][0] % 2
                pays = bool(does and before["open_goals"][said])
                assert (finals[i] if ended else record)["goal_reward"] == pays
                count += pays
                if pays:
                    reached |= {SAY_1, ANSWER_1} if said else {SAY_0}
            if ended:
                found = dict(zip(names, stats[i]))
                assert found["goals_reached"] == count
                counted = [found[f"goals_{kind}_fraction"] for kind in KINDS]
                np.testing.assert_allclose(counted, kinds / max(1, kinds.sum()), rtol=1e-6)
                assert found["goals_achieved_fraction"] == pytest.approx(len(given & reached) / max(1, len(given)))
                num_paid += count
                reached, given, kinds, count = set(), set(), np.zeros(4), 0
                assert record["goal_reward"] == 0
            suggested = {
                "oracle": {SAY_1, ANSWER_1} if record["signal"][0] % 2 else {SAY_0},
                "all": {SAY_0, SAY_1, ANSWER_1},
            }
            found = {*np.flatnonzero(record["open_goals"]).tolist()}
            if suggester == "random":
                assert not found & reached and len(found) >= 2 - len(reached)
            else:
                assert found == suggested[suggester] - (set() if repeats else reached)
    assert num_paid > 10


def test_random_goals_vary_and_are_so_many():
    rows = play(config_of("random", goal_repeats=True, goal_count=2))
    seen = {tuple(open_goals) for _, records, *_ in rows for open_goals in records["open_goals"].tolist()}
    assert seen == {(0, 1, 1, 0), (1, 0, 1, 0), (1, 1, 0, 0)}


def test_every_suggester_is_tested():
    assert {*SUGGESTERS} == {"llm", "model", "oracle", "task", "all", "random"}  # model: rewards.ellm.test_goal_model


def test_open_goals_are_shown_on_request_alone():
    config = config_of("oracle")
    assert "open_goals" not in env_spec(config).observations
    assert env_spec(config, ("open_goals",)).observations["open_goals"].shape == (4,)
    assert env_spec(config).episode_stats[-len(GOAL_STATS) :] == GOAL_STATS


@pytest.mark.parametrize(
    "env, error",
    [
        (config_of("oracle", goal_count=7), "--goal_count 7: has no meaning without --goal_suggester random"),
        (config_of("oracle", goal_table_size=7), "--goal_table_size 7: has no meaning without --goal_suggester llm"),
        (config_of("llm", goal_threshold=0.5), "--goal_threshold 0.5: has no meaning without --goal_similarity emb"),
        (config_of("none", goal_success="loose"), "--goal_success loose: has no meaning without goals"),
        (crafter(crafter_subgoals="paid"), "--crafter_subgoals paid: has no meaning without --crafter_task"),
        (crafter(crafter_textures="published"), "--crafter_textures published: has no meaning without --crafter_view"),
        (crafter(crafter_task="sleep"), "--crafter_task: pays nothing with --extrinsic_reward_coeff 0"),
    ],
)
def test_settings_that_do_nothing_are_refused(env, error):
    rewards = RewardConfig(llm_reward_type="none", extrinsic_reward_coeff=0.0)
    with pytest.raises(UserError, match=error):
        with_chosen_env(Config(env, reward=rewards))


def test_the_oracle_suggests_where_goals_are_rewarded():
    def chosen(name: str, **goals) -> str:
        config = Config(config_of("auto", **goals), reward=RewardConfig(llm_reward_type=name, llm_reward_coeff=1.0))
        return with_chosen_env(config).env.goals.suggester

    assert chosen("ellm") == chosen("rnd,ellm") == "oracle"
    assert chosen("none") == chosen("rnd") == "none"
    policy = NetworkConfig(encoder_custom="mlp_encoder", goal_conditioned=True)
    assert with_chosen_env(Config(config_of("auto"), network=policy)).env.goals.suggester == "oracle"
    with pytest.raises(UserError, match="--goal_suggester none: --goal_conditioned shows goals"):
        with_chosen_env(Config(config_of("none"), network=policy))


@pytest.mark.parametrize(
    "config, error",
    [
        (config_of("all", "Catch-v0"), "--goal_suggester all: Catch-v0 has no goals"),
        (config_of("all", "BabyAI-Text-PickUp-RedBall-S20"), "has no goals"),
        (config_of("random", goal_count=4), "--goal_count 4: Signals-v0 has 3 goals"),
    ],
)
def test_missing_parts_of_an_environment_are_named(config, error):
    with pytest.raises(UserError, match=error):
        env_spec(config)


def test_a_reward_for_goals_needs_them():
    config = Config(config_of("none"), reward=RewardConfig(llm_reward_type="ellm", llm_reward_coeff=1.0))
    with pytest.raises(UserError, match="--goal_suggester none: --llm_reward_type ellm pays for goals"):
        check_rewards(config)


def test_a_policy_that_sees_goals_has_an_encoder_for_them():
    def network(encoder: str) -> NetworkConfig:
        return NetworkConfig(encoder_custom=encoder, goal_conditioned=True)

    assert env_spec(config_of("all"), policy_observations(network("mlp_encoder"))).observations["open_goals"]
    with pytest.raises(UserError, match="--goal_conditioned: --encoder_custom bk_encoder can't read it"):
        policy_observations(network("bk_encoder"))
