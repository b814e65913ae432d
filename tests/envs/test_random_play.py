"""Returns of random play: measured by a program, kept with the environments, and said at a training's end."""

import json

import pytest

from benchmarks import random_play as program
from launch import train
from oni_jax.envs import registry
from oni_jax.envs.random_play import beside_random_play, random_play
from oni_jax.settings.fields import with_values
from oni_jax.settings.worlds import EnvConfig

CATCH = EnvConfig(root_env="Catch-v0")
LEVEL = EnvConfig(root_env="BabyAI-Text-GoToLocal-RedBall-S20")
CRAFTER = EnvConfig(root_env="Crafter-v1")


@pytest.mark.parametrize(
    "env, changes, is_known",
    [
        (CATCH, {}, True),
        (CATCH, {"caption": "event", "plugin": "mine"}, True),
        (CATCH, {"max_episode_steps": 5}, False),
        (LEVEL, {}, True),
        (LEVEL, {"babyai_size": 8}, False),
        (LEVEL, {"babyai_num_distractors": 0}, False),
        (CRAFTER, {"crafter_view": "rgb", "crafter_maps": "exact", "goal_suggester": "oracle"}, True),
        (CRAFTER, {"crafter_length": 100}, False),
        (CRAFTER, {"crafter_task": "eat cow"}, False),
        (CRAFTER, {"root_env": "Elsewhere-v0"}, False),
    ],
)
def test_random_play_is_known_where_it_was_measured(env, changes, is_known):
    found = random_play(with_values(env, changes))
    assert (found is not None) is is_known
    assert found is None or (found.num_episodes >= 64 and found.seed == 1)


def test_measured_tasks_are_registered():
    for environment in registry.ENVIRONMENTS:
        if environment.random_play:
            with open(environment.random_play, encoding="utf-8") as file:
                assert json.load(file).keys() <= {*environment.names}


def test_program_measures_again_what_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "random_play.json"
    path.write_text('{"Other-v0": {"mean_return": 1.0, "num_episodes": 2, "seed": 3}}')
    environments = [environment._replace(random_play=path) for environment in registry.ENVIRONMENTS]
    monkeypatch.setattr(program, "ENVIRONMENTS", environments)
    program.measure(["Catch-v0"], 256, 1)
    kept = random_play(CATCH)
    assert kept and json.loads(path.read_text()) == {
        "Catch-v0": kept._asdict(),
        "Other-v0": {"mean_return": 1.0, "num_episodes": 2, "seed": 3},
    }


def test_line_needs_both_returns():
    assert beside_random_play(CATCH, None, 0) == "" == beside_random_play(EnvConfig(root_env="Elsewhere-v0"), 1.0, 9)
    line = beside_random_play(CATCH, 0.5, 1000)
    assert line.startswith("return 0.5, mean of the last 1,000 episodes; random play's is -0.5703, mean of 256")


def test_training_ends_with_random_play_s_return_beside_its_return(tmp_path, capfd):
    words = "--llm_reward_type none --root_env Catch-v0 --hidden_size 8 --num_workers 1 --num_envs_per_worker 32 "
    words += "--worker_num_splits 1 --batch_size 512 --rollout 16 --recurrence 16 --actor_pool serial --stats_avg 20 "
    words += "--train_for_env_steps 8192"
    assert train.main([*words.split(), "--train_dir", str(tmp_path), "--experiment", "run"]) == 0
    mean = json.loads((tmp_path / "run" / "summary.json").read_text())["mean_return"]
    said = [line for line in capfd.readouterr().out.splitlines() if "random play" in line]
    assert said == [
        f"return {mean:.4g}, mean of the last 20 episodes; random play's is -0.5703, mean of 256 episodes of seed 1"
    ]
