"""An agent of several goals under each of them: in evaluations, in films, in play and by Python."""

import dataclasses
import json
import re

import numpy as np
import pytest

import oni_jax
from launch import evaluate
from oni_jax.annotation.judge_answers import JUDGE_MODEL
from oni_jax.annotation.label_store import LabelStore
from oni_jax.envs.base import make_step_output
from oni_jax.envs.registry import make_vector_env
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.evaluation.players import evaluated_task, load_player, with_scoring
from oni_jax.evaluation.program import play
from oni_jax.evaluation.recording import replay
from oni_jax.host.runtime import StopRequest
from oni_jax.runs.run import Run
from oni_jax.show import play as playing
from oni_jax.show.config import PlayConfig
from oni_jax.types import EPISODE_GOAL, GOAL_FEATURES
from tests.evaluation.runs import CATCH, NETHACK, write_run
from tests.evaluation.test_step_rewards import write_run as write_rewarded_run
from tests.show.test_play import Hands
from tests.support.labelled import labelled

GOALS = {
    "llm_reward_type": "online_cls",
    "llm_reward_coeff": 0.1,
    "goal_key": "combat,gold,stairs",
    "episode_goals": "combat,gold,stairs",
    "goal_conditioned": True,
    "goal_input": "index",
    "answers": "judge",
}
GREETINGS = (b"Hello Agent, welcome to NetHack!  You are a neutral male human Monk.", b"$ - 2 gold pieces.")
TEXTS = {"goal_input": "text", "goal_texts": "Fight|Get gold|Go down"}
SHORT = {**NETHACK, **GOALS, "max_episode_steps": 12}


def write_labels(folder) -> None:
    """Under each goal a label of the messages that every game begins with."""
    run = Run(str(folder))
    store = LabelStore(str(folder / "labels.sqlite"))
    for settings, kind in run.plan.questions:
        store.put_many(
            JUDGE_MODEL, run.plan.prompt(settings, kind).digest, [(labelled((x,), 1), "") for x in GREETINGS]
        )
    store.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_rewarded_run(folder / "run", SHORT)
    write_labels(folder / "run")
    write_run(folder / "texts", {**SHORT, **TEXTS})
    write_run(folder / "one", {**CATCH, "llm_reward_type": "none"})
    return folder


def evaluated(folder, capfd, *words: str) -> str:
    assert evaluate.main([f"--train_dir={folder}", "--num_workers=1", "--episodes=3", *words]) == 0
    return capfd.readouterr().out


def test_table_has_a_column_per_goal_on_the_same_episodes(folder, capfd):
    out = evaluated(folder, capfd, "--experiment=run", "--by_goal", f"--json={folder / 'e.json'}")
    table = out.partition("under each goal, on the same 3 episodes")[2].splitlines()
    assert table[1].split()[:3] == ["combat", "gold", "stairs"]
    rows = {line.split("  ")[0] for line in table[2:]}
    assert {"return", "kills", "gold", "depth", "experience level"} <= rows
    found = json.loads((folder / "e.json").read_text())["evaluations"]
    assert [x["goals"] for x in found] == [{"goal": goal} for goal in ("combat", "gold", "stairs")]
    labels = {f"intrinsic_return/online_cls_{goal}" for goal in ("combat", "gold", "stairs")}
    assert labels <= rows and all(labels <= x["measures"].keys() for x in found)


def test_labels_of_all_goals_are_summed_whatever_the_episode_s_goal(folder):
    """An evaluation by goal sums them; another one sums those of its goal alone, as in training."""
    config = EvaluationConfig(str(folder), "run", goal="stairs", episodes=2, num_workers=1)
    player = with_scoring(load_player(config, "run", None, evaluated_task(config)))
    both = [play(dataclasses.replace(config, by_goal=by_goal), player).episodes[0] for by_goal in (False, True)]
    alone, each = (episode.intrinsic_returns for episode in both)
    assert {name for name, x in alone.items() if x} == {"online_cls_stairs"} and all(each.values())


def test_each_goal_s_evaluation_in_python_is_that_of_the_program(folder, capfd):
    evaluated(folder, capfd, "--experiment=run", "--by_goal", f"--json={folder / 'program.json'}")
    program = json.loads((folder / "program.json").read_text())["evaluations"]
    found = oni_jax.load_run(str(folder / "run")).evaluate_by_goal(3, num_workers=1)
    assert [*found] == [x["goals"]["goal"] for x in program]
    for evaluation, same in zip(found.values(), program):
        means = {name: float(values.mean()) for name, values in evaluation.measures().items()}
        assert means == pytest.approx({name: x["mean"] for name, x in same["measures"].items()})
    with pytest.raises(oni_jax.UserError, match="one was trained for one goal"):
        oni_jax.load_run(str(folder / "one")).evaluate_by_goal(1)


def test_policy_acts_by_its_goal(folder):
    run = oni_jax.load_run(str(folder / "run"))
    actions = {goal: run.evaluate(2, goal=goal, num_workers=1).episodes[0].actions for goal in ("combat", "gold")}
    assert actions["combat"] != actions["gold"]


@pytest.mark.parametrize(
    "words, problem",
    [
        (["--experiment=one", "--by_goal"], "--by_goal: one was trained for one goal"),
        (["--experiment=one", "--goal=gold"], "--goal gold: this run was trained for one goal"),
        (["--experiment=run", "--goal=silver"], "--goal silver: must be one of combat, gold, stairs"),
        (["--experiment=run", "--goal=gold", "--by_goal"], "--by_goal: .*leave --goal gold out"),
        (["--experiment=run", "--policy=random", "--by_goal"], "--by_goal: .*leave --policy random out"),
    ],
)
def test_goal_that_there_is_not_is_refused(folder, words, problem, capfd):
    assert evaluate.main([f"--train_dir={folder}", "--episodes=1", *words]) == 2
    assert re.search(problem, capfd.readouterr().err)


def test_film_shows_the_goal_of_each_step(folder):
    run = oni_jax.load_run(str(folder / "run"))
    played = run.evaluate(1, goal="stairs", num_workers=1)
    config = EvaluationConfig(str(folder), "run", goal="stairs")
    player = with_scoring(load_player(config, "run", None, evaluated_task(config)))
    film = replay(player.env, played, played.episodes[0], "", {0}, player.scoring.scorer)
    assert {*film.goals} == {"stairs"} and not film.mismatch


def test_key_switches_the_goal_of_a_game_that_is_played(folder):
    config = PlayConfig("sample", str(folder), "run", goal="gold", steps_per_sec=128.0)
    shell = Hands(".", ".", "\x07", ".", ".", "q")
    session = playing.play(config, lambda: shell, StopRequest())  # type: ignore[arg-type]
    first, *_ = drawn = [re.sub(r"\x1b\[[0-9;]*m", "", frame) for frame in shell.drawn]
    text = "\n".join(drawn)
    assert session.goal == "stairs" and "goal      gold" in first and "goal      stairs" in drawn[-1]
    assert "goal      gold, then stairs" in text
    assert session.record[GOAL_FEATURES].tolist() == [0, 0, 1] and "^G next goal" in text


def test_python_says_the_goal_for_all_or_for_each(folder):
    run = oni_jax.load_run(str(folder / "run"))
    env = make_vector_env(run.config.env, 3, 7, 0, tuple(run.spec.observations))
    out = make_step_output(env.spec, 3)
    env.reset(out)
    shown = {name: out.records[name] for name in run.spec.observations if name != GOAL_FEATURES}
    first = np.ones(3, bool)
    together = [run.act(shown, first, greedy=True, goal=goal) for goal in ("combat", "gold", "stairs")]
    each = run.act(shown, first, greedy=True, goal=("combat", "gold", "stairs"))
    np.testing.assert_array_equal(each, [actions[i] for i, actions in enumerate(together)])
    assert len({tuple(actions) for actions in together}) > 1
    with pytest.raises(oni_jax.UserError, match="goal_features is missing.*goal="):
        run.act(shown)
    with pytest.raises(oni_jax.UserError, match="goal: 2 for 3 environments"):
        run.act(shown, goal=("gold", "stairs"))
    with pytest.raises(oni_jax.UserError, match="silver: must be one of"):
        run.act(shown, goal="silver")


def test_goal_in_other_words_is_read(folder):
    run = oni_jax.load_run(str(folder / "texts"))
    env = make_vector_env(run.config.env, 2, 7, 0, (*run.spec.observations, EPISODE_GOAL))
    out = make_step_output(env.spec, 2)
    env.reset(out)
    shown = {name: out.records[name] for name in run.spec.observations if name != GOAL_FEATURES}
    known, same, free = (run.act(shown, np.ones(2, bool), goal=goal) for goal in ("gold", "Get gold", "Eat an apple"))
    np.testing.assert_array_equal(known.shape, free.shape)
    features = [run._goal_features(goal, 1) for goal in ("gold", "Get gold", "Eat an apple")]
    np.testing.assert_array_equal(features[0], features[1])
    assert not np.allclose(features[0], features[2]) and same.shape == (2,)
