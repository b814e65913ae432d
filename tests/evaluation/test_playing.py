"""Episodes are the same whoever asks for them, and however."""

import functools

import numpy as np
import pytest

from oni_jax.envs.base import make_step_output, record_dtype
from oni_jax.envs.nethack.vector_env import episode_seeds
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.evaluation.agents import RandomAgent
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.evaluation.episodes import (
    ENGINE_FAILURE,
    GROUP_SIZE,
    NUM_SLOTS,
    end_of,
    evaluation_seed,
    nethack_seeds,
)
from oni_jax.evaluation.players import evaluated_task, load_player
from oni_jax.evaluation.playing import play_episodes
from oni_jax.host.runtime import StopRequest
from oni_jax.settings.worlds import EnvConfig
from tests.evaluation.runs import CATCH, NETHACK, write_run

CATCH_ENV = EnvConfig(root_env="Catch-v0")


@pytest.fixture(scope="module")
def train_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "catch", CATCH)
    write_run(folder / "nethack", NETHACK)
    return folder


def evaluated(train_dir, experiment, num_episodes, num_workers=0, policy="sample", seed=1):
    config = EvaluationConfig(str(train_dir), experiment, policy=policy, seed=seed)
    player = load_player(config, experiment, None, evaluated_task(config))
    make_env = functools.partial(make_vector_env, player.env, seed=evaluation_seed(seed))
    limit = player.env.max_episode_steps
    return play_episodes(make_env, player.spec, player.agent, num_episodes, limit, num_workers)


def random_catch(num_episodes, num_workers=0, seed=1, stop=None):
    spec = env_spec(CATCH_ENV)
    make_env = functools.partial(make_vector_env, CATCH_ENV, seed=evaluation_seed(seed))
    return play_episodes(make_env, spec, RandomAgent(3, seed), num_episodes, 5000, num_workers, stop)


@pytest.mark.parametrize(
    "experiment, few, many", [("catch", 40, 140), pytest.param("nethack", 20, 40, marks=pytest.mark.slow)]
)
def test_processes_and_numbers_of_episodes_make_no_difference(train_dir, experiment, few, many):
    episodes = evaluated(train_dir, experiment, many, num_workers=2)
    assert [episode.index for episode in episodes] == list(range(many))
    assert evaluated(train_dir, experiment, few, num_workers=1) == episodes[:few]
    assert len({episode.actions for episode in episodes}) > many / 2  # they are not all the same


def test_another_seed_gives_other_episodes(train_dir):
    episodes, others = (evaluated(train_dir, "catch", 30, seed=seed) for seed in (1, 2))
    assert [episode.actions for episode in episodes] != [episode.actions for episode in others]


def test_a_greedy_policy_does_the_same_in_the_same_place(train_dir):
    """The opening of Catch is one of five, and the rest follows from it."""
    episodes = evaluated(train_dir, "catch", 64, policy="greedy")
    assert len({episode.actions for episode in episodes}) <= 5
    assert len({episode.actions for episode in evaluated(train_dir, "catch", 64)}) > 5


def test_kept_actions_lead_to_the_same_end():
    episodes = random_catch(100)
    assert {len(episode.actions) for episode in episodes} == {9}
    spec = env_spec(CATCH_ENV)
    env = make_vector_env(CATCH_ENV, NUM_SLOTS, evaluation_seed(1), 0)
    out = make_step_output(spec, NUM_SLOTS)
    env.reset(out)
    for t in range(18):  # twice nine: the episodes from NUM_SLOTS on are the second ones
        later = [episodes[slot + NUM_SLOTS * (t // 9)] if slot < 36 else episodes[slot] for slot in range(NUM_SLOTS)]
        env.step(np.array([episode.actions[t % 9] for episode in later], np.int32), out)
        if t % 9 == 8:
            assert out.episode_stats[:36, 0].tolist() == [episode.stats["return"] for episode in later[:36]]


def test_agents_are_told_the_episode_and_the_step():
    told = []

    class Listener(RandomAgent):
        def act(self, group, records, episodes, steps):
            assert records["is_first"].tolist() == (steps == 0).tolist()
            told.extend(zip(episodes.tolist(), steps.tolist()))
            return super().act(group, records, episodes, steps)

    spec = env_spec(CATCH_ENV)
    make_env = functools.partial(make_vector_env, CATCH_ENV, seed=evaluation_seed(1))
    play_episodes(make_env, spec, Listener(3, 1), 3 * NUM_SLOTS, 5000, 0)
    assert sorted(told) == [(episode, step) for episode in range(3 * NUM_SLOTS) for step in range(9)]


def test_a_policy_sees_only_one_game(train_dir):
    """Neither the other groups nor the other rows of a group change what is done in a row."""
    config = EvaluationConfig(str(train_dir), "catch")
    rng = np.random.default_rng(1)
    episodes, spec = np.arange(GROUP_SIZE, dtype=np.int32), env_spec(CATCH_ENV)
    records = np.zeros((30, 2, GROUP_SIZE), record_dtype(spec))
    records["board"] = 5 * rng.normal(size=records["board"].shape)
    records["is_first"][0] = True

    def play_groups(*groups, changed=slice(0, 0)):
        agent = load_player(config, "catch", None, CATCH_ENV).agent
        seen = records.copy()
        seen["board"][:, :, changed] = 1.0
        return np.array(
            [
                [agent.act(i, seen[t, i], episodes + i, np.full(GROUP_SIZE, t, np.int32)) for i in groups][-1]
                for t in range(len(seen))
            ]
        )

    alone = play_groups(1)
    assert (play_groups(0, 1) == alone).all()
    others = play_groups(1, changed=slice(4, None))
    assert (others[:, :4] == alone[:, :4]).all() and (others[:, 4:] != alone[:, 4:]).any()


def test_chance_is_fair():
    episodes = random_catch(200)
    assert len({episode.actions for episode in episodes}) > 190  # there are 3^9
    counts = np.bincount(np.frombuffer(b"".join(episode.actions for episode in episodes), np.uint8))
    assert abs(counts - 600).max() < 4 * np.sqrt(600 * 2 / 3)  # standard deviations
    assert [episode.actions for episode in random_catch(200, seed=2)] != [episode.actions for episode in episodes]


def test_nethack_seeds_are_the_environments():
    seeds = [nethack_seeds(7, index) for index in range(130)]
    assert len(set(seeds)) == 130
    assert seeds[70] == episode_seeds(evaluation_seed(7))(6, 1)
    trained_on = {episode_seeds(seed)(slot, 0) for seed in range(8) for slot in range(NUM_SLOTS)}
    assert not trained_on & set(seeds)


def test_a_request_to_stop_leaves_what_is_finished():
    stop = StopRequest()

    class Impatient(RandomAgent):
        num_calls = 0

        def act(self, group, records, episodes, steps):
            self.num_calls += 1
            if self.num_calls == 30:  # four groups: the eighth step of some
                stop.reason = "SIGINT"
            return super().act(group, records, episodes, steps)

    spec = env_spec(CATCH_ENV)
    make_env = functools.partial(make_vector_env, CATCH_ENV, seed=evaluation_seed(1))
    assert play_episodes(make_env, spec, Impatient(3, 1), 64, 5000, 0, stop) == []
    stop.reason = ""
    agent = Impatient(3, 1)
    agent.num_calls = -20
    some = play_episodes(make_env, spec, agent, 128, 5000, 0, stop)
    assert 0 < len(some) < 128
    assert all(episode in random_catch(128) for episode in some)


@pytest.mark.parametrize(
    "stats, truncated, last_reward, end",
    [
        ({"length": 9.0}, False, 1.0, "finished"),
        ({"length": 9.0}, True, 1.0, "step limit"),
        ({"length": 4.0, "success": 1.0}, True, 1.0, "goal"),
        ({"length": 9.0, "success": 1.0}, True, 0.0, "step limit"),  # reached before, in an episode that went on
        ({"length": 9.0, "success": 0.0}, True, 1.0, "step limit"),
        ({"length": 9.0, "end_status": -1.0}, True, 0.0, "step limit"),
        ({"length": 8.0, "end_status": -1.0}, True, 0.0, ENGINE_FAILURE),
        ({"length": 8.0, "end_status": 1.0}, False, 0.0, "death"),
        ({"length": 8.0, "end_status": 2.0}, False, 0.0, "goal"),
    ],
)
def test_why_an_episode_ended(stats, truncated, last_reward, end):
    assert end_of(stats, truncated, 9, last_reward) == end


def test_groups_fill_an_inference_batch():
    assert NUM_SLOTS % GROUP_SIZE == 0
