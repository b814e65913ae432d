"""Steering: what the policies of a study of goals do, compared by seeds."""

import json
import math
import pathlib
import statistics

import pytest

from benchmarks.steering import behaviours, contrast, contrasts, tables
from benchmarks.studies import steer, steer_babyai
from oni_jax.settings.fields import UserError

KILLS = {"combat": 5.0, "gold": 1.0}  # more under combat, by the agent of all goals


def made(folder, study, *cases: str) -> None:
    """Folders of runs: those of these cases have ended, the others have a checkpoint."""
    for run in study.STUDY.runs(str(folder)):
        checkpoints, steps = pathlib.Path(run.folder, "checkpoints"), run.config.run.train_for_env_steps
        (checkpoints / "1").mkdir(parents=True)
        if run.cell["case"] in cases:
            (checkpoints / str(steps)).mkdir()
            pathlib.Path(run.folder, "summary.json").write_text(json.dumps({"env_steps": steps}))


def play(folder: str, is_of_goals: bool) -> dict[str, dict[str, float]]:
    """Returns the means of a run of a seed by goal."""
    seed = int(folder.rpartition("seed=")[2].split("_")[0])
    goals = steer.GOALS if is_of_goals else ("",)
    return {goal: {"kills": KILLS.get(goal, 2.0) + seed, "gold": (goal == "gold") * 10.0 * seed} for goal in goals}


def test_contrast_is_the_mean_over_seeds_with_the_interval_of_student():
    more, less = [[{"kills": x} for x in values] for values in ((3.0, 5.0, 10.0), (1.0, 2.0, 3.0))]
    differences = [2.0, 3.0, 7.0]
    half = 4.302653 * statistics.stdev(differences) / math.sqrt(3)
    assert contrast(more, less, "kills") == f"4 [{4 - half:.2f}, {4 + half:.1f}]"
    assert contrast(more[:1], less[:1], "kills") == "2 (one seed)"
    with pytest.raises(ValueError, match="zip"):
        contrast(more, less[:2], "kills")


def test_behaviours_are_of_each_goal_of_the_one_agent_and_of_each_other(tmp_path):
    made(tmp_path, steer, steer.TOGETHER, "combat_alone", "gold_alone", "no_reward")
    found = behaviours("steer", str(tmp_path), play)
    under = [f"under {goal}" for goal in steer.GOALS]
    assert [*found] == [*under, "combat_alone", "gold_alone", "no_reward"]
    assert sorted(x["kills"] for x in found["under combat"]) == [6, 7, 8]
    said = contrasts(found, steer.PAIRS)
    assert said[0] == "kills, combat minus gold, one agent: 4 [4, 4]"
    assert said[1] == "kills, combat minus gold, an agent each: 0 [0, 0]"
    assert said[2].startswith("gold, gold minus combat, one agent: 20 [")
    lines = tables(found)
    row = next(line for line in lines[lines.index("kills:") :] if "under combat" in line)
    assert row.split()[2] == "7"


def test_contrast_of_an_agent_that_was_not_trained_is_left_out(tmp_path):
    made(tmp_path, steer, steer.TOGETHER)
    said = contrasts(behaviours("steer", str(tmp_path), play), steer.PAIRS)
    assert len(said) == 2 and "in 1,000 steps" not in str(said) and all("one agent" in line for line in said)


@pytest.mark.parametrize("study", [steer, steer_babyai])
def test_study_without_a_run_of_all_goals_is_refused(study, tmp_path):
    made(tmp_path, study, "no_reward")
    with pytest.raises(UserError, match=f"no run of {study.TOGETHER} that has ended: python -m benchmarks.studies run"):
        behaviours(study.STUDY.name, str(tmp_path), play)
