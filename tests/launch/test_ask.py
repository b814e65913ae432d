"""Trying a prompt before a training, against the judge over HTTP."""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from launch import ask
from oni_jax.annotation import label_store
from oni_jax.annotation.judge import JudgeOptions
from oni_jax.evaluation.asking.summary import cohens_kappa
from oni_jax.runs.message_counts import MessageCounts
from oni_jax.settings.config import Config, config_to_json
from oni_jax.types import CaptionBatch
from tests.annotation.rating import PROMPT
from tests.support.asking import start_judge
from tests.support.judge_faults import Faults

KILL, DARK, GOLD = "You kill the newt!", "It is dark.", "$ - 7 gold pieces."
CLASSIFY = ("--llm_reward_type", "online_cls")
UNREADABLE = "It could go either way, and I would rather not say."


def messages(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--message", text)]


@pytest.fixture(scope="module")
def judge() -> Iterator[str]:
    """The address of a judge that was started by hand."""
    started = start_judge()
    yield started.address
    started.close()


@pytest.fixture
def said(judge, capsys):
    """Returns the program's output; it asks that judge."""

    def run(*words: str, code: int = 0) -> str:
        assert ask.main(["--llm_server_addr", judge, *words]) == code
        return capsys.readouterr().out

    return run


def refused(capsys, *words: str, code: int = 2) -> str:
    assert ask.main(list(words)) == code
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and error.startswith("error: ")
    return error


def test_answers_of_the_embedded_judge(capsys):
    words = ("--config", "score_retrieval", "--answers", "judge", "--goal_key", "combat")
    assert ask.main([*words, *messages(KILL, DARK)]) == 0
    out = capsys.readouterr().out
    assert out.count("The player wants to fight.") == 1  # the prompt, once
    assert out.count(KILL) == 2 and "    <message>\n    You kill the newt!\n    </message>" in out
    assert re.search(r"1\. You kill the newt!\n   helpful; \d\.\d\d s; about \d+ \+ \d+ tokens\n   \| <knowledge>", out)
    assert "   | <label>BAR</label>\n" in out
    assert "2 of 2 queries answered\nread as: helpful 1 (50%), not helpful 1 (50%)\nunreadable: 0.0% at first" in out
    assert "estimated: 4 characters a token" in out and "1 M steps: not known" in out


def test_probability_and_the_server_s_tokens(said):
    out = said(*CLASSIFY, "--llm_answer", "label", *messages(KILL, DARK))
    assert re.search(r"   helpful, probability 0.95; \d\.\d\d s; \d+ \+ 1 tokens\n   \| FOO", out)
    assert "not helpful, probability 0.95" in out and "1 written (the server's count)" in out


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_every_prompt_is_shown_on_request(said, api):
    out = said(*CLASSIFY, "--llm_api", api, "--show_prompts", *messages(KILL, DARK))
    assert out.count("Decide whether what it reports is helpful.") == 2
    assert ("<|eot_id|>" in out) == (api == "completions")


@pytest.mark.parametrize(
    "words, shown",
    [
        (
            ["--llm_reward_type", "online_motif", *messages(KILL, DARK, GOLD)],
            [
                "1. first: You kill the newt!\n   second: It is dark.\n   first;",
                "2. first: It is dark.",
                "2 of 2 queries",
            ],
        ),
        (
            ["--config", "ellm_llm", "--message", "You see grass and tree."],
            ["   chop tree, chop grass; ", "read as: chop tree 1 (100%), chop grass 1 (100%)"],
        ),
        (["--root_env", "BabyAI-Text-GoToLocal-RedBall-S20", "--query", "code"], ["1. (the prompt alone)\n", "lines;"]),
        (
            ["--root_env", "BabyAI-Text-GoToLocal-RedBall-S20", "--query", "segments", *messages("a\nb", "c")],
            ["1. first: a\n   b\n   second: c\n   tie; ", "read as: tie 1 (100%)"],
        ),
    ],
    ids=["ranking", "suggestions", "code", "segments"],
)
def test_kinds_of_query(capsys, words, shown):
    assert ask.main([*words, "--answers", "judge"]) == 0
    out = capsys.readouterr().out
    assert [text for text in shown if text not in out] == []


def test_a_kind_of_query_and_a_prompt_of_a_plugin(tmp_path, monkeypatch, capsys):
    (tmp_path / "prompt.json").write_text(json.dumps(PROMPT))
    text = (pathlib.Path(__file__).parents[1] / "annotation" / "rating.py").read_text()
    register = "from oni_jax.annotation.queries.registry import register_query\nregister_query(Rating())\n"
    (tmp_path / "rated.py").write_text(text + register)
    command = [sys.executable, "-m", "launch.ask", "--plugin", "rated", "--query", "rating", "--message", KILL]
    command += ["--prompt_file", str(tmp_path / "prompt.json")]
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"}
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "1. > You kill the newt!\n   9 of 10; " in result.stdout and "read as: 9 of 10 1 (100%)" in result.stdout


def test_captions_of_a_file_are_unescaped_and_each_asked_once(said, tmp_path):
    path, odd = tmp_path / "messages.csv", "a\\x3cb\xe9"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["said", "count"], [odd, 3], ["", 2], [odd, 1], [KILL, 1], [DARK]])
    words = (*CLASSIFY, "--messages_csv", str(path), "--messages_column", "said", "--num_messages", "2")
    out = said(*words, *messages(KILL))
    assert re.findall(r"^\d\. (.*)", out, re.MULTILINE) == [KILL, odd]


def write_run(folder: pathlib.Path, *asked: tuple[int, int]) -> None:
    """A run with these rows of steps and queries."""
    folder.mkdir()
    (folder / "config.json").write_text(config_to_json(Config()))
    rows = [{"env_steps": steps, "secs": steps / 1000, "labels_asked": num} for steps, num in asked]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    counts = MessageCounts()
    counts.add(CaptionBatch([DARK.encode(), KILL.encode(), b""], np.array([[0, 1, 1, 1, 2, 2, 2, 2]]), {}))
    counts.save(str(folder))


def contents(folder: pathlib.Path) -> dict[str, tuple]:
    """Returns the files' contents, and all of their status but the time of the last access."""
    stats = {path: path.stat() for path in folder.iterdir()}
    untouched = {path: (*stat[:7], stat.st_mtime_ns, stat.st_ctime_ns) for path, stat in stats.items()}
    return {path.name: (path.read_bytes(), *stat) for path, stat in untouched.items()}


def test_captions_of_a_run_and_an_estimate_of_its_tokens(said, tmp_path):
    """A second start of the run, at 200,000 steps, counts its queries from 0."""
    write_run(tmp_path / "run", (100_000, 30), (200_000, 40), (300_000, 15), (500_000, 60))
    store = tmp_path / "run" / "labels.sqlite"
    label_store.LabelStore(str(store)).close()
    before = contents(tmp_path / "run")
    out = said(*CLASSIFY, "--messages_of", str(tmp_path / "run"), "--llm_answer", "label")
    assert re.findall(r"^\d\. (.*)", out, re.MULTILINE) == [KILL, DARK]  # the most frequent first
    assert "1 written (the server's count)" in out
    assert "200 written, if 200 queries are asked; that run asked 100 in all in its first 500,000 steps; new" in out
    assert contents(tmp_path / "run") == before


def test_the_estimate_of_a_long_run_is_of_its_first_million_steps(said, tmp_path):
    write_run(tmp_path / "run", (500_000, 600), (1_500_000, 800))
    out = said(*CLASSIFY, "--messages_of", str(tmp_path / "run"), "--llm_answer", "label")
    assert "700 written, if 700 queries are asked; that run asked 700 in all in its first 1,000,000 steps\n" in out


def test_a_comparison_of_models(said):
    out = said(*CLASSIFY, "--compare_models", "one, another", *messages(KILL, DARK))
    assert "classification --llm_model one: 2 queries" in out and "2 queries to another at" in out
    assert out.count("Decide whether what it reports is helpful.") == 1
    assert "A: classification --llm_model one; B: classification --llm_model another\n" in out
    assert out.endswith("agreement: 100.0% of 2 queries with two readable answers; Cohen's kappa 1.00\n")


def test_a_comparison_of_goals_lists_what_differs(said):
    out = said("--llm_reward_type", "online_cls,online_cls", "--goal_key", "combat,gold", *messages(KILL, DARK, GOLD))
    table = out[out.index("agreement: ") :].splitlines()
    assert table[0].startswith("agreement: 33.3% of 3 queries") and table[0].endswith("kappa -0.50")
    assert [re.split("  +", line) for line in table[1:]] == [
        ["A", "B", "differing"],
        ["helpful", "not helpful", KILL],
        ["not helpful", "helpful", GOLD],
    ]
    assert len({line.rindex(text) for line, text in zip(table[1:], ["differing", KILL, GOLD])}) == 1


def test_a_comparison_of_suggested_goals(capsys):
    words = ("--root_env", "CrafterTextEnv-v1", "--llm_reward_type", "ellm,ellm", "--judge_wrong_fraction", "0,1")
    words = (*words, "--answers", "judge")
    assert ask.main([*words, *messages("You see grass and tree.", "You see water.")]) == 0
    out = capsys.readouterr().out
    assert "agreement: 50.0% of 2 queries with two readable answers; what was read overlaps by 50.0%" in out
    assert "drink water  chop grass, chop tree  You see water.\n" in out


def test_cohen_s_kappa():
    """The example of Cohen 1960: two raters of 50 applications, 20 and 15 of which both accept and both reject."""
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    assert cohens_kappa(pairs) == pytest.approx(0.4)
    assert cohens_kappa([(1, 1)] * 3) is None


@pytest.fixture
def failing(capsys):
    """Returns the program's output against a judge with faults, asked about one thing after the other."""

    def run(rate: float, *kinds: str, seed: int = 0, code: int, words: tuple[str, ...] = ()) -> tuple[str, str]:
        started = start_judge(JudgeOptions(trouble=Faults(rate, kinds, seed)))
        given = ("--llm_server_addr", started.address, "--llm_max_in_flight", "1", *CLASSIFY, *words)
        try:
            assert ask.main([*given, *messages(KILL, DARK, GOLD)]) == code
        finally:
            started.close()
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


def test_an_unreadable_answer_is_asked_again_as_in_a_run(failing):
    out, _ = failing(1.0, "unreadable", code=0)
    assert out.count(f"   | {UNREADABLE}\n   asked again:\n   | {UNREADABLE}\n") == 3 and "   unreadable; " in out
    assert "read as: nothing\nunreadable: 100.0% at first, 100.0% after asking again" in out
    out, _ = failing(0.5, "unreadable", seed=13, code=0)  # the first request
    assert f"   | {UNREADABLE}\n   asked again:\n   | <knowledge>" in out
    assert "unreadable: 33.3% at first, 0.0% after asking again" in out


def test_an_overloaded_server_is_asked_again(failing):
    out, _ = failing(0.5, "http_503", seed=31, code=0)  # the first, third and fourth request
    assert "3 of 3 queries answered\n" in out


def test_a_failing_query_does_not_end_the_others(failing):
    out, error = failing(0.5, "http_400", seed=22, code=1)  # the second request
    assert "   failed: http_400: " in out and "2 of 3 queries answered, 1 failed\n" in out
    assert error == "error: 1 queries have no answer\n"


@pytest.mark.parametrize("fault", ["wrong_key", "wrong_model", "redirect"])
def test_a_server_that_refuses_is_asked_once(failing, fault):
    out, error = failing(1.0, fault, code=2)
    assert error.count("\n") == 1 and "\n1. " in out and "\n2. " not in out


def test_a_server_that_fails_later_keeps_what_was_answered(failing):
    out, error = failing(0.5, "wrong_key", seed=10, code=1)  # the second request
    assert "\nthe rest is not asked: the LLM server at " in out and "1 of 3 queries answered, 1 failed\n" in out
    assert error == "error: 2 queries have no answer\n"


def test_no_server_is_one_line(capsys):
    assert "no LLM server answers at localhost:1 " in refused(
        capsys, *CLASSIFY, "--llm_server_addr", "localhost:1", *messages(KILL, DARK)
    )


@pytest.mark.parametrize(
    "words, told",
    [
        ((*CLASSIFY,), "nothing to ask about: give --message"),
        ((*CLASSIFY, "--message", ""), "nothing to ask about: give --message"),
        (("--message", KILL), "--llm_reward_type must be given"),
        (("--message", KILL, "--llm_reward_type", "online"), "--llm_reward_type 'online' is not known"),
        (("--message", KILL, "--llm_reward_type", "rnd"), "--llm_reward_type rnd: asks no LLM"),
        (("--message", KILL, "--query", "rank"), "--query rank: is not known; use one of classification"),
        (("--message", KILL, "--query", "goals", "--root_env", "Catch-v0"), "has no "),
        (("--message", KILL, "--query", "ranking"), "1 caption: a query of the kind ranking needs 2"),
        ((*CLASSIFY, "--message", KILL, "--goal", "a\nb"), "--goal: holds line breaks"),
        ((*CLASSIFY, "--message", KILL, "--compare_models", "a,b"), "name it with --llm_server_addr"),
        ((*CLASSIFY, "--message", KILL, "--compare_models", "a"), "--compare_models a: names no two models"),
        ((*CLASSIFY, "--messages_csv", "missing.csv"), "--messages_csv missing.csv: can't be read"),
        ((*CLASSIFY, "--messages_csv", "empty.csv"), "has no column message, it is empty"),
        ((*CLASSIFY, "--messages_csv", "blank.csv"), "its column message holds no text"),
        ((*CLASSIFY, "--messages_csv", "blank.csv", "--messages_column", "b"), "has no column b, it has message, a"),
        ((*CLASSIFY, "--messages_csv", "bytes.csv"), "--messages_csv bytes.csv: can't be read"),
        ((*CLASSIFY, "--messages_of", "missing"), "--messages_of missing: has no captions in messages.npz"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "blank.csv").write_text("message,a\n,1\n")
    (tmp_path / "bytes.csv").write_bytes(b"message\n\xff\n")
    assert told in refused(capsys, *words)


def test_a_stop_keeps_what_was_answered():
    started = start_judge(JudgeOptions(trouble=Faults(0.5, ["hang"], seed=10)))
    command = [sys.executable, "-m", "launch.ask", "--llm_server_addr", started.address, "--llm_max_in_flight", "1"]
    command += [*CLASSIFY, *messages(KILL, DARK, GOLD)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    lines = iter(process.stdout.readline, "")
    read = [next(line for line in lines if line.startswith("1. "))]
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out = "".join(read + list(lines))
    assert process.wait(30) == 0
    started.close()
    assert "the rest is not asked: SIGINT\n" in out and "1 of 3 queries answered\n" in out
