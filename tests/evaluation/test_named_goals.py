"""Policies that see goals, evaluated under goals that are named, and filmed."""

import json
import os

import pytest

from launch import evaluate
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.evaluation.players import chosen_players, evaluated_task
from oni_jax.settings.fields import UserError
from tests.evaluation.runs import write_run

CRAFTER = {
    "root_env": "CrafterTextEnv-v1",
    "encoder_custom": "generic_encoder",
    "hidden_size": 8,
    "goal_conditioned": True,
    "goal_suggester": "llm",
    "llm_reward_type": "ellm",
    "llm_reward_coeff": 1.0,
    "crafter_map_stock": 1,
    "crafter_maps": "stock",
    "crafter_length": 100,
}


@pytest.fixture(scope="module")
def train_dir(tmp_path_factory):
    """Folder of two runs: `seeing` an LLM's goals, and `blind` ones, without any."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "seeing", CRAFTER)
    blind = {"goal_conditioned": False, "goal_suggester": "none", "llm_reward_type": "none", "llm_reward_coeff": 0.0}
    write_run(folder / "blind", {**CRAFTER, **blind})
    return str(folder)


def settings(train_dir: str, experiment: str = "seeing", **values) -> EvaluationConfig:
    return EvaluationConfig(train_dir=train_dir, experiment=experiment, **values)


@pytest.mark.parametrize(
    "experiment, given, suggester",
    [
        ("seeing", {"crafter_task": "sleep"}, "task"),
        ("seeing", {"crafter_task": "sleep", "goal_suggester": "oracle"}, "oracle"),
        ("seeing", {"goal_suggester": "oracle"}, "oracle"),
        ("seeing", {}, "llm"),
        ("blind", {"crafter_task": "sleep"}, "none"),
        ("blind", {}, "none"),
    ],
)
def test_goals_are_those_of_the_task_or_the_named_suggester_s(train_dir, experiment, given, suggester):
    task = evaluated_task(settings(train_dir, experiment, **given))
    assert task.goals.suggester == suggester
    assert task.crafter.task == given.get("crafter_task", "")


def test_goals_of_an_llm_that_was_not_asked_are_refused_in_one_line(train_dir):
    config = settings(train_dir, "blind", goal_suggester="llm")
    with pytest.raises(UserError, match="blind: .* nothing to inspect") as error:
        chosen_players(config, evaluated_task(config), "blind", "latest")
    assert "\n" not in str(error.value)
    assert chosen_players(config, evaluated_task(settings(train_dir, goal_suggester="oracle")), "blind", "latest")


@pytest.mark.slow
def test_a_named_goal_is_evaluated_and_filmed(train_dir, tmp_path, capfd):
    films, results = tmp_path / "films", tmp_path / "results.json"
    words = ["--train_dir", train_dir, "--experiment", "seeing", "--episodes", "12", "--num_workers", "1"]
    words += ["--crafter_task", "move left", "--record", "1", "--recordings_dir", str(films), "--json", str(results)]
    assert evaluate.main(words) == 0
    (evaluation,) = json.loads(results.read_text())["evaluations"]
    returns = [episode["return"] for episode in evaluation["episodes"]]
    assert evaluation["success"]["count"] == sum(returns) > 0 and {*returns} == {0, 1}
    assert len([name for name in os.listdir(films) if name.endswith(".gif")]) == 3
