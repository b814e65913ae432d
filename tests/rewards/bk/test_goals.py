"""Goals that an LLM names for segments: scripted answers, the rule-based judge over HTTP, and their files."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from launch import write_goals
from oni_jax.annotation import pacing
from oni_jax.annotation.prompts import load_prompt
from oni_jax.annotation.queries.goals import goals_in
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.envs.babyai import ENVIRONMENT, judge_rules
from oni_jax.host.runtime import StopRequest
from oni_jax.offline import bk_goal_writer
from oni_jax.offline.bk_config import WriteGoals, WriteGoalsConfig
from oni_jax.offline.bk_goal_writer import GoalConversation
from oni_jax.offline.segment_episodes import Segment, write_episodes
from oni_jax.rewards.bk.goals import GOALS, PUBLISHED, GoalLibrary, read_library, write_library
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from tests.golden import data_file
from tests.offline.test_bk_writer import held, segments
from tests.support.llm_server import Request, scripted_server

NAME = "BabyAI-Text-GoToLocal-RedBall-S20"
LIBRARY = GoalLibrary(["a", "b"], ["x", "y"], [[0, 1], []])


def episode(sees: bytes = b"You see %d.") -> Segment:
    captions = [sees % i for i in range(9)]
    return Segment({"x": np.arange(9)[:, None]}, captions, np.arange(8) % 3, np.zeros(8, np.float32))


def hold(folder, answers: list[str], **settings) -> tuple[list[list], list[str]]:
    """Returns the conversations that were answered, and the answers left."""
    config = WriteGoalsConfig(reward_dir=str(folder), **settings)
    prompt = load_prompt(AnnotationConfig(), ENVIRONMENT.language, "goals")
    return held(GoalConversation(config, prompt, segments(), ("left", "right", "ahead")), answers)


def test_goals_are_the_recorded_lines():
    for case in json.loads(data_file("bk_parsing.json").read_text())["goals"]:
        # BK: spaces and carriage returns around a goal are kept, and so are empty ones; one cause for "" and for "- ".
        mended = [goal.strip() for goal in case.get("goals", []) if goal.strip()]
        assert goals_in(case["answer"]) == mended
        read = QUERIES["goals"].read(case["answer"], None, "")
        assert read == ("\n".join(mended).encode() or None)
    assert goals_in("- x\r\n-  y \n- \n") == ["x", "y"]


def test_each_round_shows_a_segment(tmp_path):
    asked, left = hold(tmp_path, ["- a\n- b", "Well:\n- b\n- c\n- b"], num_rounds=2)
    assert left == [] and [[role for role, _ in turns] for turns in asked] == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
    ]
    shown = asked[1][-1][1]
    assert shown.startswith("<segment>\nAgent history:\nStep 1: You see ") and shown.count("\n") > 5
    assert asked[1][:3] == [*asked[0], ("assistant", "- a\n- b")]
    library = read_library(str(tmp_path))
    assert library.goals == ["a", "b", "c"] and library.indices == [[0, 1], [1, 2]]
    assert library.keys[1] in shown and library.keys[1].endswith(". \n") and "the action: ahead." in library.keys[1]


def test_an_answer_without_a_goal_is_asked_for_again(tmp_path, capsys):
    asked, _ = hold(tmp_path, ["no", "", "- a", "no", "no", "no", "- b"], num_rounds=3, num_tries=3)
    assert [role for role, _ in asked[2]] == ["system", *["user", "assistant"] * 2, "user"]
    assert asked[2][2] == ("assistant", "no") and asked[2][4] == ("assistant", "(nothing)")
    assert "no goal in this answer" in asked[2][-1][1]
    # A round keeps only the answer with goals; one without any keeps nothing.
    assert [turn[1] for turn in asked[3] if turn[0] == "assistant"] == ["- a"]
    assert [turn[1] for turn in asked[-1] if turn[0] == "assistant"] == ["- a"]
    assert "round 2: no goal in 3 answers" in capsys.readouterr().out
    assert read_library(str(tmp_path)).indices == [[0], [1]]
    with pytest.raises(UserError, match="the LLM named no goal"):
        hold(tmp_path, ["no"] * 2, num_rounds=2, num_tries=1)


def test_a_long_conversation_loses_its_oldest_rounds(tmp_path):
    answers = [f"- goal {i}" for i in range(9)]
    asked, _ = hold(tmp_path, answers, num_rounds=9, max_tokens=900)
    assert len(asked[-1]) < 18 and asked[-1][0] == asked[0][0]
    kept = [turns for turns in asked[-1] if turns[0] == "assistant"]
    assert kept == [("assistant", answer) for answer in answers[8 - len(kept) : 8]]
    assert [role for role, _ in asked[-1]][1:] == ["user", *["assistant", "user"] * len(kept)]
    whole, _ = hold(tmp_path, answers, num_rounds=9, max_tokens=0)
    assert len(whole[-1]) == 18
    alone, _ = hold(tmp_path, answers, num_rounds=9, max_tokens=1)
    assert {len(turns) for turns in alone} == {2}


def test_a_long_round_keeps_its_question(tmp_path):
    answers = ["- goal", *["no " * 500] * 5, "- late"]
    asked, _ = hold(tmp_path, answers, num_rounds=2, num_tries=6, max_tokens=900)
    question = asked[1][-1]
    assert question[0] == "user" and asked[1][-2] == ("assistant", "- goal")
    assert all(turns[0] == asked[0][0] and question in turns for turns in asked[1:])
    assert len(asked[-1]) == 4 and asked[-1][1] == question  # and one answer that could not be read, with its reply
    assert read_library(str(tmp_path)).goals == ["goal", "late"]


def test_the_judge_names_some_and_the_conversation_goes_on(tmp_path, capsys):
    words = ["--root_env", NAME, "--reward_dir", str(tmp_path / "g"), "--babyai_size", "8", "--retry_times", "2"]
    words += ["--answers", "judge"]
    assert write_goals.main([*words, "--num_iterations", "3"]) == 0
    first = read_library(str(tmp_path / "g"))
    assert write_goals.main([*words, "--num_iterations", "5"]) == 0
    assert "3 answers are there already" in capsys.readouterr().out
    library = read_library(str(tmp_path / "g"))
    assert list(library.keys[:3]) == first.keys and len(library.keys) == 5
    assert all("Current observation: You " in goal for goal in library.goals)
    assert "not an LLM" in (tmp_path / "g" / "answers.jsonl").read_text()
    refused = {
        "sequence_length 4": "segment_length",
        "babyai_size 9": "babyai_size",
        "llm_server_addr x:1 --answers=": "llm_model",
    }
    for changed, told in refused.items():
        assert write_goals.main([*words, *f"--{changed}".split()]) == 2
        assert f"its conversation had another {told}" in capsys.readouterr().err
    for kept_elsewhere in ("--label_store=x", "--llm_max_labels=5"):
        assert write_goals.main([*words, kept_elsewhere]) == 2
        assert f"{kept_elsewhere.partition('=')[0]}" in capsys.readouterr().err
    (tmp_path / "old").mkdir()
    write_library(str(tmp_path / "old"), LIBRARY)
    assert write_goals.main(["--root_env", NAME, "--reward_dir", str(tmp_path / "old")]) == 2
    assert "holds goals.json without its conversation" in capsys.readouterr().err


def test_a_conversation_about_other_segments_does_not_go_on(tmp_path, capsys):
    folder, file = tmp_path / "g", str(tmp_path / "seen.npz")
    words = ["--root_env", NAME, "--reward_dir", str(folder), "--segments", file, "--answers=judge", "--num_iterations"]
    assert write_goals.main([*words, "1"]) == 2  # there are none yet, and none are kept as these settings
    write_episodes(file, [episode()])
    assert write_goals.main([*words, "1", "--seed", "3"]) == write_goals.main([*words, "2", "--seed", "3"]) == 0
    write_episodes(file, [episode(b"You carry %d.")])
    capsys.readouterr()
    assert write_goals.main([*words, "3", "--seed", "3"]) == 2
    assert "its conversation had another segments_content; choose another folder" in capsys.readouterr().err
    settings = json.loads((folder / "settings.json").read_text())
    del settings["segments_content"], settings["checksum"]  # as an earlier version's
    (folder / "settings.json").write_text(json.dumps(settings))
    assert write_goals.main([*words, "3", "--seed", "3"]) == 2
    assert "does not follow what was asked before" in capsys.readouterr().err
    answers = [json.loads(line)["answer"] for line in (folder / "answers.jsonl").read_text().splitlines()]
    (folder / "answers.jsonl").write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
    assert write_goals.main([*words, "3", "--seed", "3"]) == 0


@contextlib.contextmanager
def server(script: Callable[[int], tuple[int, dict]], port: int = 0) -> Iterator[tuple[str, list[int]]]:
    """Yields the address of a server, and the numbers of its requests; `script`: status and answer by number."""
    asked: list[int] = []

    def scripted(request: Request) -> tuple[int, dict]:
        asked.append(len(asked))
        return script(asked[-1])

    with scripted_server(scripted, port) as address:
        yield address, asked


ANSWER = (200, {"choices": [{"message": {"content": "- a goal"}}]})


@pytest.fixture
def words(tmp_path) -> list[str]:
    write_episodes(str(tmp_path / "seen.npz"), [episode()])
    return [
        *("--root_env", NAME, "--reward_dir", str(tmp_path / "g"), "--segments", str(tmp_path / "seen.npz")),
        *("--num_iterations", "1", "--llm_model", "mine", "--llm_server_addr"),
    ]


@pytest.mark.parametrize(
    ("status", "told", "name"),
    [(401, "no", "wrong_key"), (404, "there is no model mine", "wrong_model"), (404, "no", "http_404")],
)
def test_a_server_that_refuses_ends_it_with_a_line(words, capsys, status, told, name):
    with server(lambda number: (status, {"error": told})) as (address, asked):
        assert write_goals.main([*words, address]) == 2
    assert asked == [0]
    error = capsys.readouterr().err
    assert f"the LLM server gives no answer ({name}: " in error and error.count("\n") == 1
    with server(lambda number: ANSWER) as (address, _):  # no answer is bound to that model yet
        assert write_goals.main([*words, address, "--llm_model", "another"]) == 0


def test_each_new_cause_of_waiting_is_told(words, capsys):
    causes = [503, 503, 429, 503]
    with server(lambda number: (causes[number], {}) if number < 4 else ANSWER) as (address, _):
        assert write_goals.main([*words, address]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    assert [line.partition("(")[2].partition(":")[0] for line in told] == ["http_503", "http_429", "http_503"]


def test_server_that_is_overloaded_for_hours_is_waited_for(words, monkeypatch):
    """More often than any number of retries; then it costs none of them."""
    monkeypatch.setattr(pacing, "MAX_BACKOFF_SECS", 1e-4)
    causes = [503] * 300 + [400]
    with server(lambda number: (causes[number], {}) if number < len(causes) else ANSWER) as (address, asked):
        assert write_goals.main([*words, address, "--llm_max_retries", "1"]) == 0
    assert len(asked) == 302


def test_server_that_starts_later_is_waited_for(words, monkeypatch):
    monkeypatch.setattr(pacing, "MAX_BACKOFF_SECS", 0.01)
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    ended = threading.Event()

    def serve_later() -> None:
        time.sleep(0.5)
        with server(lambda number: ANSWER, port):
            ended.wait(30)

    serving = threading.Thread(target=serve_later)
    serving.start()
    assert write_goals.main([*words, f"127.0.0.1:{port}", "--llm_max_retries", "0"]) == 0
    ended.set()
    serving.join()


def test_question_that_fails_each_time_ends_it(words, capsys, monkeypatch):
    monkeypatch.setattr(pacing, "MAX_BACKOFF_SECS", 1e-4)
    with server(lambda number: (500, {"error": "a bug"})) as (address, asked):
        assert write_goals.main([*words, address, "--llm_max_retries", "3"]) == 2
    assert len(asked) == 4 and "the LLM server gives no answer (http_500: " in capsys.readouterr().err


def test_a_stop_request_is_heeded_while_an_answer_is_awaited(tmp_path, words):
    stop, ended = StopRequest(), threading.Event()

    def hang(number: int) -> tuple[int, dict]:
        stop.reason = "SIGTERM"
        ended.wait(60)
        return ANSWER

    section = WriteGoalsConfig(reward_dir=str(tmp_path / "g"), segments=str(tmp_path / "seen.npz"))
    started = time.monotonic()
    with server(hang) as (address, _):
        config = WriteGoals(section, EnvConfig(root_env=NAME), AnnotationConfig(llm_server_addr=address))
        assert bk_goal_writer.write_goals(config, stop) == 130
        ended.set()
    assert time.monotonic() - started < 30


def test_the_judge_s_goals_have_the_words_of_the_last_caption():
    steps = "Step 1: You see a pink cube 1 step left.\nCurrent observation: "
    goals = judge_rules.write_goals(f"{steps}You carry a blue key. You see a wall 2 steps left. ".encode())
    assert goals == [text.format(thing="a blue key") for text in judge_rules._GOALS]
    seen = "You see a wall 1 step forward. You see a pale thing 1 step left and 2 steps forward. You see an open door"
    goals = judge_rules.write_goals(f"{steps}{seen} 1 step right. You see a pale thing 3 steps left. \n".encode())
    assert [goal.rpartition("You ")[2] for goal in goals[::2]] == [
        "see a pale thing 1 step forward.",
        "see an open door 1 step forward.",
    ]
    assert judge_rules.write_goals(f"{steps}You see nothing in front. \n".encode()) == [judge_rules._NO_GOAL]


def test_files_ours_and_published(tmp_path):
    write_library(str(tmp_path), LIBRARY)
    assert read_library(str(tmp_path)) == LIBRARY
    (tmp_path / GOALS).unlink()
    for name, content in zip(PUBLISHED, (["x", "y"], [[0, 1], []], {"b": 1, "a": 0})):
        (tmp_path / name).write_text(json.dumps(content))
    assert read_library(str(tmp_path)) == LIBRARY


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "holds neither goals.json, which launch.write_goals writes, nor trajectory_text.json"),
        ("[", "can't be read"),
        ("[]", "holds no library"),
        ({}, "holds no library"),
        ({**LIBRARY._asdict(), "indices": [[2], []]}, "2 is no index of a goal"),
        ({**LIBRARY._asdict(), "indices": [[True], []]}, "True is no index of a goal"),
        ({**LIBRARY._asdict(), "indices": [[0]]}, "2 goals, 2 captions, 1 lists"),
        ({**LIBRARY._asdict(), "goals": [1]}, "must be texts"),
        ({**LIBRARY._asdict(), "goals": []}, "0 goals"),
        ({**LIBRARY._asdict(), "indices": 3}, "holds no library"),
    ],
)
def test_bad_files_are_one_line(tmp_path, content, problem):
    if content is not None:
        (tmp_path / GOALS).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError, match=problem) as refused:
        read_library(str(tmp_path))
    assert "\n" not in str(refused.value)
