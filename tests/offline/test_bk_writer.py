"""A conversation in which an LLM writes a potential: scripted answers, and the rule-based judge over HTTP."""

import asyncio
import json

import numpy as np
import pytest

from launch import check_potential, write_potential
from oni_jax.annotation.prompts import load_prompt
from oni_jax.annotation.queries.code import code_in
from oni_jax.envs.babyai import ENVIRONMENT
from oni_jax.offline.bk_config import WriteConfig
from oni_jax.offline.bk_conversation import Conversation
from oni_jax.offline.bk_writer import CodeConversation, sample_text
from oni_jax.offline.segment_episodes import Segment, SegmentSampler
from oni_jax.rewards.bk.sandbox import Value
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from tests.golden import data_file
from tests.support.trials import trial

NAME = "BabyAI-Text-GoToLocal-RedBall-S20"
GOOD = "def compute_reward(obs, past_obs, past_actions):\n    return {}, {{'x': obs['x'][0]}}\n"
CODE = "Some words.\n```python\n{}```\nMore words."


def segments() -> SegmentSampler:
    captions = [b"You see %d." % i for i in range(9)]
    episode = Segment({"x": np.arange(9)[:, None]}, captions, np.arange(8) % 3, np.zeros(8, np.float32))
    return SegmentSampler([episode], 3, 0)


def hold(tmp_path, answers: list[str], **settings) -> tuple[list[list], list[str]]:
    """Returns the conversations that were answered, and the answers left."""
    config = WriteConfig(reward_dir=str(tmp_path), segment_length=3, **settings)
    prompt = load_prompt(AnnotationConfig(), ENVIRONMENT.language, "code")
    return held(CodeConversation(config, prompt, segments(), ("left", "right", "ahead")), answers)


def held(conversation: Conversation, answers: list[str]) -> tuple[list[list], list[str]]:
    asked, left = [], list(answers)

    async def ask(turns, item=()):
        asked.append(list(turns))
        return left.pop(0)

    asyncio.run(conversation.hold(ask))
    return asked, left


def test_each_round_shows_what_the_code_gives(tmp_path):
    codes = [GOOD.format(value) for value in ("1.5", "2")]
    asked, left = hold(tmp_path, [CODE.format(code) for code in codes], num_rounds=2, num_samples=2)
    assert left == [] and [len(turns) for turns in asked] == [2, 4]
    assert [role for role, _ in asked[1]] == ["system", "user", "assistant", "user"]
    shown = asked[1][-1][1]
    assert shown.count("The computed reward is 1.5000. Reward details: x: ") == 2
    assert "Sample#1\nAgent history:\nStep 1: You see " in shown and "You choose the action: ahead." in shown
    assert [(tmp_path / name).read_text() for name in ("code-step0.py", "code-step1.py")] == codes
    assert (tmp_path / "potential.py").read_text() == codes[1]


def test_failures_go_back_to_the_llm(tmp_path):
    bad = GOOD.format("obs['y']")
    answers = ["no code", CODE.format(bad), CODE.format("import numpy\n"), CODE.format(GOOD.format(1))]
    asked, _ = hold(tmp_path, answers, num_rounds=1)
    texts = [turns[-1][1] for turns in asked]
    assert "no block of Python" in texts[1] and "KeyError" in texts[2] and "No module named 'numpy'" in texts[3]
    assert (tmp_path / "potential.py").read_text() == GOOD.format(1)


def test_a_round_without_a_code_that_works_leaves_the_last_one(tmp_path, capsys):
    answers = [CODE.format(GOOD.format(1)), "nothing", "nothing"]
    hold(tmp_path, answers, num_rounds=2, num_tries=2)
    assert (tmp_path / "potential.py").read_text() == GOOD.format(1)
    assert "round 2: no code that works in 2 answers" in capsys.readouterr().out
    with pytest.raises(UserError, match="wrote no code that works"):
        hold(tmp_path, ["nothing"], num_rounds=1, num_tries=1)


def test_a_long_conversation_loses_its_oldest_rounds_and_never_the_task(tmp_path):
    answers = [CODE.format(GOOD.format(i)) for i in range(6)]
    asked, _ = hold(tmp_path, answers, num_rounds=6, max_tokens=2500)
    assert len(asked[-1]) < 12 and asked[-1][:2] == asked[0]
    assert asked[-1][2][0] == "assistant" and "return 4" in asked[-1][-2][1]
    whole, _ = hold(tmp_path, answers, num_rounds=6, max_tokens=0)
    assert len(whole[-1]) == 12


def test_first_block_of_an_answer_is_its_code():
    recorded = json.loads(data_file("bk_parsing.json").read_text())["code"]
    for case in recorded:
        several = case["answer"].count("```python") > 1  # BK: takes what is said between them as code
        found = code_in(case["answer"])
        if several:
            assert found == "a = 1\n"
        elif case["answer"].startswith("```python\r\n"):  # BK: no code
            assert found == "x = 1\n"
        else:
            assert found == case.get("code")


def test_a_sample_in_words():
    segment = Segment({}, [b"A.", b"B"], np.array([1]), np.zeros(1))
    assert sample_text(3, segment, Value(0.25, {"a": 1, "b": -0.5}), ["left", "right"]) == (
        "Sample#3\nAgent history:\nStep 1: A. You choose the action: right.\nCurrent observation: B. \n\n"
        "The computed reward is 0.2500. Reward details: a: 1.0000, b: -0.5000.\n"
    )


def test_the_judge_writes_one_and_the_conversation_goes_on(tmp_path, capsys):
    words = ["--root_env", NAME, "--reward_dir", str(tmp_path / "p"), "--babyai_size", "8", "--num_samples", "2"]
    assert write_potential.main([*words, "--num_rounds", "1"]) == 0
    assert len((tmp_path / "p" / "answers.jsonl").read_text().splitlines()) == 1
    assert write_potential.main([*words, "--num_rounds", "2"]) == 0
    assert "1 answers are there already" in capsys.readouterr().out
    assert len((tmp_path / "p" / "answers.jsonl").read_text().splitlines()) == 2
    assert "not by an LLM" in (tmp_path / "p" / "potential.py").read_text()
    assert write_potential.main([*words, "--seed", "3"]) == 2
    assert "its conversation had another seed" in capsys.readouterr().err
    check = ["--root_env", NAME, "--babyai_size", "8"]
    assert check_potential.main([str(tmp_path / "p"), *check]) == 0
    out = capsys.readouterr().out
    assert "reads obs, past_obs;" in out and "potential: 0 to 1" in out and "ms a call" in out
    (tmp_path / "bad.py").write_text(GOOD.format("open('x')"))
    assert check_potential.main([str(tmp_path / "bad.py"), *check]) == 2
    error = capsys.readouterr().err
    assert "it fails on every window: PermissionError" in error and error.count("\n") == 1
    (tmp_path / "state.py").write_text("n = [0]\n" + GOOD.replace("obs['x'][0]", "1").format("n.append(1) or len(n)"))
    assert check_potential.main([str(tmp_path / "state.py"), *check]) == 2
    assert "keeps state between calls" in capsys.readouterr().err


@trial("conversation damaged")
def test_damaged_answer_of_a_conversation_is_refused(tmp_path, capsys):
    words = ["--root_env", NAME, "--reward_dir", str(tmp_path / "p"), "--babyai_size", "8", "--num_samples", "2"]
    assert write_potential.main([*words, "--num_rounds", "1"]) == 0
    path = tmp_path / "p" / "answers.jsonl"
    text = path.read_text()
    for damaged in (text.replace("compute", "conpute"), text.replace("answer", "answes"), text[:-9], "[" * 100_000):
        path.write_text(damaged)
        capsys.readouterr()
        assert write_potential.main([*words, "--num_rounds", "2"]) == 2
        error = capsys.readouterr().err
        assert "line 1 of answers.jsonl" in error and error.count("\n") == 1 and path.read_text() == damaged
    path.write_text(text)
    assert write_potential.main([*words, "--num_rounds", "3"]) == 0
    first, second, third = path.read_text().splitlines(keepends=True)
    other = ["--root_env", NAME, "--reward_dir", str(tmp_path / "q"), "--babyai_size", "9", "--num_samples", "2"]
    assert write_potential.main([*other, "--num_rounds", "1"]) == 0
    theirs = (tmp_path / "q" / "answers.jsonl").read_text()
    for lines, number in (([first, third], 2), ([second, first], 1), ([first, first], 2), ([third], 1), ([theirs], 1)):
        path.write_text("".join(lines))
        capsys.readouterr()
        assert write_potential.main([*words, "--num_rounds", "3"]) == 2
        assert f"line {number} of answers.jsonl: does not follow" in capsys.readouterr().err
    path.write_text(json.dumps(json.loads(text)["answer"]) + "\n")  # as an earlier version wrote it
    assert write_potential.main([*words, "--num_rounds", "2"]) == 0
    assert "1 answers are there already" in capsys.readouterr().out
