"""Crafter in words: its prompts, the judge's rules, and labels of events that pay."""

import itertools

import pytest

from oni_jax.annotation.judge_answers import Reader
from oni_jax.annotation.prompts import load_prompt
from oni_jax.envs.crafter import ENVIRONMENT
from oni_jax.envs.crafter.judge_rules import GOALS, caption_value, judge_caption, judge_pair
from oni_jax.envs.crafter.rules import EVENTS
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import TIE
from tests.support.processes import Launched, rows, summary

IDLE = {b"", b"do nothing", b"sleep", b"move left", b"move right", b"move up", b"move down"}
STATES = [  # ordered from bad to good
    b"you see grass. you are targeting grass.",
    b"you see cow, and grass. you are targeting cow. you feel hungry.",
]


def test_the_judge_calls_helpful_what_changes_something():
    events = [event.encode() for event in EVENTS]
    assert {event for event in events if not judge_caption("defaultgoal", event)[0]} == IDLE
    assert len({*map(caption_value, events)}) > 5
    for (i, first), (j, second) in itertools.product(enumerate(STATES), repeat=2):
        assert judge_pair("defaultgoal", first, second) == (TIE if i == j else int(j > i))
    assert judge_caption("", b"You see: tree at 1 steps to your up.You face tree at your front. Your status: ")[0]


@pytest.mark.parametrize("answer", ["reasoned", "label"])
@pytest.mark.parametrize("goal", ["defaultgoal", "zeroknowledge", *GOALS])
def test_the_judge_answers_the_prompts(answer, goal):
    reader, config = Reader(ENVIRONMENT.language), AnnotationConfig(llm_answer=answer, goal_key=goal)
    prompt = load_prompt(config, ENVIRONMENT.language)
    for caption in (b"chop tree", b"move left", *STATES):
        verdict = reader.judge_prompt(prompt.user((caption,)))
        assert verdict.item == (caption,) and verdict.goal == goal and verdict.one_word == (answer == "label")
        assert verdict.word == ("FOO" if judge_caption(goal, caption)[0] else "BAR")
    pair = (b"chop tree", b"make wood pickaxe")
    verdict = reader.judge_prompt(load_prompt(config, ENVIRONMENT.language, "ranking").user(pair))
    assert verdict.item == pair and verdict.label == judge_pair(goal, *pair)
    assert goal in GOALS or verdict.label == 1


def test_each_event_that_changes_something_helps_one_goal():
    for event in {event.encode() for event in EVENTS} - IDLE:
        assert sum(judge_caption(goal, event)[0] for goal in GOALS) == 1, event
    helpful = {goal for goal in GOALS if judge_caption(goal, STATES[1])[0]}
    assert helpful == {"feeding"}


@pytest.mark.slow
def test_labels_of_events_pay(tmp_path):
    words = f"--train_dir={tmp_path} --experiment=run --root_env=Crafter-v1 --crafter_map_stock=64 --hidden_size=16 "
    words += "--encoder_custom=generic_encoder --use_rnn=False --batch_size=2048 --train_for_env_steps=81920 "
    run = Launched("launch.train", *words.split(), "--llm_reward_type=online_cls", "--llm_reward_coeff=0.1")
    output = run.finish(300)
    assert run.process.returncode == 0 and run.leftovers() == [], output
    done = summary(tmp_path / "run")
    assert 5 < done["labels_held"] < len(EVENTS) and done["rewarded_steps"] > 100
    assert rows(tmp_path / "run")[-1]["episode/unlocked"] > 0
