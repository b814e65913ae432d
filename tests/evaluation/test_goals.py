"""Goals that a run's LLM suggests are there when its policy plays: by its answers, and by its model of them."""

import pathlib
import shutil

import numpy as np
import pytest

import oni_jax
from launch import evaluate
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.prompts import load_prompt
from oni_jax.envs.registry import find_environment
from oni_jax.evaluation import program
from oni_jax.evaluation.agents import PolicyAgent
from oni_jax.evaluation.goals import load_goals
from oni_jax.evaluation.recording import replay
from oni_jax.evaluation.step_rewards import read_scoring
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation
from tests.evaluation.test_step_rewards import MEASURE, PAID, SIGNALS, write_run

GOALS = {
    **SIGNALS,
    **PAID,
    "encoder_custom": "generic_encoder",
    "goal_conditioned": True,
    "llm_reward_type": "ellm",
    "llm_model": "m",
    "llm_server_addr": "127.0.0.1:9",  # nobody is asked
    "max_episode_steps": 12,
}


def goal_run(folder: pathlib.Path, suggester: str, **values) -> oni_jax.Run:
    """A run whose LLM suggested to say 1 where the signal is odd."""
    run = write_run(folder, {**GOALS, "goal_suggester": suggester, **values})
    store = LabelStore(str(folder / "labels.sqlite"))
    digest = load_prompt(run.config.annotation, find_environment(run.config.env).language, "suggestions").digest
    answered = [Annotation((f"The signal is {i}.".encode(),), b"- say 1") for i in (1, 3, 5, 7)]
    store.put_many("m", digest, [(answer, "") for answer in answered])
    store.close()
    return run


def test_answers_suggest_goals_to_policies_in_evaluations_and_in_films(tmp_path, monkeypatch):
    run, seen = goal_run(tmp_path / "run", "llm"), []
    act = PolicyAgent.act

    def noted(agent, group, records, *given):
        seen.extend(zip(records["signal"][:, 0].tolist(), records["open_goals"].tolist()))
        return act(agent, group, records, *given)

    monkeypatch.setattr(PolicyAgent, "act", noted)
    monkeypatch.setattr(program, "num_workers", lambda actors: 0)
    played = run.evaluate(20)
    assert {goals[1] for signal, goals in seen if signal % 2 == 0} == {0.0}
    assert {goals[1] for signal, goals in seen if signal % 2} == {0.0, 1.0}  # 0 once it is reached
    assert all(goals[1] == 1.0 for signal, goals in seen[:16] if signal % 2)
    measures = played.measures()
    assert measures["goals_reached"].sum() > 0 and played.not_reported == {}
    np.testing.assert_array_equal(measures[f"{MEASURE}ellm"], measures["goals_reached"])
    env, scorer = run.config.env, read_scoring(Run(run.folder), run.config.env, None).scorer
    for episode in played.episodes[:3]:
        film = replay(env, played, episode, "", (), scorer, load_goals(Run(run.folder), env, None))
        assert film.mismatch == "" and film.intrinsic.sum() == episode.stats["goals_reached"]


def test_actor_processes_know_the_goals_too(tmp_path):
    run = goal_run(tmp_path / "run", "model")
    alone = goal_run(tmp_path / "alone", "model", goal_answers="model")
    assert run.evaluate(4, num_workers=1).measures()["goals_reached"].sum() > 0
    assert alone.evaluate(4, num_workers=1).measures()["goals_reached"].sum() == 0  # its model has learnt nothing
    assert run.evaluate(4, num_workers=1, goal_suggester="oracle").not_reported.keys() == {"ellm"}


def test_random_actions_are_compared_under_the_same_goals(tmp_path, capfd):
    goal_run(tmp_path / "run", "llm")
    words = ["--train_dir", str(tmp_path), "--experiment", "run", "--episodes", "4", "--num_workers", "1"]
    assert evaluate.main([*words, "--compare", "random"]) == 0
    found = [line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("goals_reached ")]
    assert len(found) >= 2 and all(float(line[1]) > 0 for line in found[:2])


def test_a_model_that_was_not_learnt_is_refused(tmp_path):
    run = goal_run(tmp_path / "run", "llm")
    with pytest.raises(UserError, match="run has learnt no model of an LLM's goals; name another, such as oracle"):
        run.evaluate(1, goal_suggester="model")


def test_rewards_and_goals_of_a_run_are_read_once(tmp_path):
    run = Run(goal_run(tmp_path / "run", "llm").folder)
    scorer = read_scoring(run, run.config.env, None).scorer
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # as of a run that goes on
    (tmp_path / "run" / "labels.sqlite").unlink()
    goals = load_goals(run, run.config.env, None)
    assert scorer and goals and goals.table
