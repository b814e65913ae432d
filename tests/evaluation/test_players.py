"""Choice of the checkpoint that plays, and the error when none can."""

import numpy as np
import pytest

from oni_jax.evaluation.agents import PolicyAgent
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.evaluation.players import chosen_checkpoints, evaluated_task, load_player
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from tests.evaluation.runs import CATCH, write_returns, write_run

STEPS = (320, 640, 960)


@pytest.fixture
def train_dir(tmp_path):
    write_run(tmp_path / "catch", CATCH, STEPS)
    return tmp_path


def config(train_dir, **values):
    return EvaluationConfig(train_dir=str(train_dir), experiment="catch", **values)


def test_the_checkpoints_of_a_word(train_dir):
    def choose(which):
        return chosen_checkpoints(str(train_dir), "catch", which)

    assert choose("latest") == [None]
    assert choose("all") == list(STEPS)
    assert choose("640") == [640]
    write_returns(train_dir / "catch", [(300, 5.0), (600, 7.0), (620, 8.0), (650, 9.0), (960, 6.0)])
    assert choose("best") == [640]  # 650 was after it
    write_returns(train_dir / "catch", [(300, 5.0), (650, 9.0), (960, 5.0)])
    assert choose("best") == [960]  # the newest of equals


def test_a_resumed_run_tells_what_it_did_anew(train_dir):
    write_returns(train_dir / "catch", [(100, 1.0), (200, 9.0), (300, 9.0), (150, 2.0), (250, 3.0), (350, None)])
    found = Run(str(train_dir / "catch")).metrics(())
    returns = dict(zip(found.env_steps.tolist(), found.metrics["mean_return"].tolist()))
    assert np.isnan(returns.pop(350)) and returns == {100: 1.0, 150: 2.0, 250: 3.0}


def test_the_parameters_are_those_of_the_checkpoint(train_dir):
    kernels = {}
    for step in (None, *STEPS):
        player = load_player(config(train_dir), "catch", step, EnvConfig("Catch-v0"))
        assert player.env_steps == step or (step is None and player.env_steps == 960)
        assert isinstance(player.agent, PolicyAgent)
        kernels[step] = player.agent._params["params"]["logits"]["kernel"].tolist()
    assert kernels[None] == kernels[960] != kernels[640] != kernels[320]


def test_the_task_is_the_runs_unless_said_otherwise(tmp_path):
    write_run(tmp_path / "catch", {**CATCH, "max_episode_steps": 7}, ())
    assert evaluated_task(config(tmp_path)) == EnvConfig("Catch-v0", 7)
    assert evaluated_task(config(tmp_path, max_episode_steps=5)) == EnvConfig("Catch-v0", 5)
    assert evaluated_task(config(tmp_path, policy="random", root_env="NetHackOracle-v1")).root_env == "NetHackOracle-v1"
    none = EvaluationConfig(str(tmp_path), "no such run", policy="random", root_env="NetHackScore-v1")
    assert evaluated_task(none) == EnvConfig("NetHackScore-v1", 5000)


@pytest.mark.parametrize(
    "act, message",
    [
        (lambda d: chosen_checkpoints(str(d), "nobody", "latest"), "nobody/config.json can't be read"),
        (lambda d: chosen_checkpoints(str(d), "empty", "all"), "empty/checkpoints: holds no checkpoint"),
        (lambda d: chosen_checkpoints(str(d), "catch", "best"), "has no mean_return .* choose the latest"),
        (
            lambda d: load_player(config(d), "catch", 7, EnvConfig("Catch-v0")),
            "no checkpoint of 7 steps, but of 320, 640",
        ),
        (lambda d: load_player(config(d), "empty", None, EnvConfig("Catch-v0")), "holds no checkpoint"),
        (
            lambda d: load_player(config(d), "catch", None, EnvConfig("NetHackScore-v1")),
            "NetHackScore-v1 as chosen has other actions or observations than Catch-v0, on which catch was trained",
        ),
        (lambda d: evaluated_task(config(d, root_env="Chess-v0")), "unknown root_env 'Chess-v0'"),
        (lambda d: evaluated_task(EvaluationConfig(str(d), "nobody", policy="random")), "nobody/config.json"),
    ],
)
def test_missing_files_are_named_in_one_line(train_dir, act, message):
    write_run(train_dir / "empty", CATCH, ())
    with pytest.raises(UserError, match=message) as error:
        act(train_dir)
    assert "\n" not in str(error.value)
