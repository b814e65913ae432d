"""Annotating as a program: labels, resuming after a kill, chunks side by side, refusals."""

import collections
import contextlib
import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

from launch import annotate_pairs
from oni_jax.annotation.judge import JudgeOptions
from oni_jax.offline.annotators import file_name
from oni_jax.offline.pair_config import AnnotatePairs
from tests.offline.pairs import padded, random_dataset, write_dataset
from tests.support.asking import start_judge
from tests.support.judge_faults import Faults

NAME = "rule-based-judge_msg_True_bl_False_defaultgoal_default"


def labels(directory: pathlib.Path, annotator: str) -> list[int]:
    return np.load(directory / "preference" / f"{annotator}.npy").tolist()


@contextlib.contextmanager
def judge(log: pathlib.Path, **options):
    server = start_judge(JudgeOptions(log_path=str(log), **options))
    try:
        yield server
    finally:
        server.close()


def asked(log: pathlib.Path) -> collections.Counter:
    """Times that each pair's judging was logged."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return collections.Counter(json.dumps({k: r[k] for k in r if k not in ("time", "fault", "label")}) for r in records)


def run(directory: pathlib.Path, *words: str) -> int:
    return annotate_pairs.main(["--directory", str(directory), *words])


def test_the_judge_says_which_is_better(tmp_path, capsys):
    texts = [[b"You kill the newt!", b""], [b"It's a wall.", b"You kill the newt!"], [b"same", b"same"], [b"", b""]]
    write_dataset(tmp_path, {"data/message": padded([[[first], [second]] for first, second in texts])})
    assert run(tmp_path, "--answers", "judge") == 0
    assert labels(tmp_path, NAME) == [0, 1, 2, 2]
    out = capsys.readouterr().out
    assert "4 of 4 pairs" in out
    counted = "1 first better (25.0%), 1 second better (25.0%), 2 ties (50.0%), 0 unreadable (0.0%)"
    assert f"preferences: {counted}" in out.splitlines()
    assert run(tmp_path, "--answers=judge", "--goal_key", "gold", "--custom_annotator_string", "mine") == 0
    assert labels(tmp_path, "mine") == [2, 2, 2, 2]


def test_prompts_and_rules_are_those_of_the_environment(tmp_path):
    texts = [[b"You see a wall 1 step forward.", b"You see a red ball 1 step forward."], [b"same", b"same"]]
    write_dataset(tmp_path, {"data/message": padded([[[first], [second]] for first, second in texts])})
    words = "--answers judge --goal_key defaultgoal --root_env BabyAI-Text-GoToLocal-RedBall-S20".split()
    assert run(tmp_path, *words, "--custom_annotator_string", "babyai") == 0
    assert run(tmp_path, *words[:4], "--custom_annotator_string", "nethack") == 0
    assert labels(tmp_path, "babyai") == [1, 2] and labels(tmp_path, "nethack") == [2, 2]


def test_names_of_preference_files():
    def name(**values) -> str:
        from oni_jax.settings.fields import with_values

        config = with_values(AnnotatePairs(), values)
        return file_name(config.preference, config.annotation)

    assert name() == "Meta-Llama-3.1-8B-Instruct_msg_True_bl_False_defaultgoal_default"
    assert name(llm_model="a/b", use_blstats=True, goal_key="gold", prompt_version="reworded").startswith(
        "a-b_msg_True_bl_True_gold_rew"
    )
    assert name(goal="x") != name(goal="y") != name()
    assert name(prompt_file="/a/mine.json").endswith("_defaultgoal_mine")
    assert name(annotator="score") == "score"


def test_rules(tmp_path):
    write_dataset(
        tmp_path,
        {
            "info/score": np.array([[3, 1], [1, 3], [2, 2]]),
            "data/rewards": np.array([[[0, 1], [3, 0]], [[1, 1], [1, 1]], [[1, 2], [0, 0]]], float),
        },
    )
    for annotator, expected in (("score", [0, 1, 2]), ("return", [1, 2, 0])):
        assert run(tmp_path, "--annotator", annotator) == 0
        assert labels(tmp_path, annotator) == expected
    random_dataset(tmp_path, num_pairs=200)
    assert run(tmp_path, "--annotator", "random", "--n_annotation_chunks", "2", "--chunk_number", "1") == 0
    assert labels(tmp_path, "random")[:100] == [3] * 100 and set(labels(tmp_path, "random")[100:]) == {0, 1}


def test_existing_labels_stay_unless_told_otherwise(tmp_path):
    random_dataset(tmp_path, num_pairs=4)
    write_dataset(tmp_path, {"preference/score": np.array([1, 3, 1, 1], np.int8), "info/score": np.array([[3, 1]] * 4)})
    assert run(tmp_path, "--annotator", "score") == 0
    assert labels(tmp_path, "score") == [1, 0, 1, 1]
    words = "--annotator score --ignore-existing --n-annotation-chunks 2 --chunk-number 1".split()
    assert run(tmp_path, *words) == 0
    assert labels(tmp_path, "score") == [1, 0, 0, 0]


def start(directory: pathlib.Path, address: str, *words: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "launch.annotate_pairs",
        "--directory",
        str(directory),
        "--llm_server_addr",
        address,
    ]
    return subprocess.Popen([*command, "--custom_annotator_string", "mine", *words], stdout=subprocess.PIPE, text=True)


def num_done(directory: pathlib.Path) -> int:
    path = directory / "preference" / "mine.npy"
    return int((np.load(path) != 3).sum()) if path.exists() else 0


def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
    directory, log, in_flight = random_dataset(tmp_path / "data", num_pairs=120), tmp_path / "log", 4
    with judge(log, latency_secs=0.05) as server:
        words = ("--llm_max_in_flight", str(in_flight))
        first = start(directory, server.address, *words)
        deadline = time.monotonic() + 60
        while num_done(directory) < 30:
            assert time.monotonic() < deadline and first.poll() is None
            time.sleep(0.01)
        first.kill()
        first.communicate()
        done = num_done(directory)
        assert done < 120
        second = start(directory, server.address, *words)
        assert "120 of 120 pairs" in second.communicate(timeout=60)[0] and second.returncode == 0
    times = asked(log)
    assert num_done(directory) == 120 and len(times) == 120
    assert sum(times.values()) <= 120 + in_flight


def test_chunks_run_side_by_side_on_one_file(tmp_path):
    directory, log = random_dataset(tmp_path / "data", num_pairs=60), tmp_path / "log"
    with judge(log, latency_secs=0.02) as server:
        words = ("--n_annotation_chunks", "2", "--chunk_number")
        runs = [start(directory, server.address, *words, str(chunk)) for chunk in (0, 1)]
        outputs = [run.communicate(timeout=60)[0] for run in runs]
    assert all("30 of 30 pairs" in output for output in outputs)
    assert num_done(directory) == 60 and sum(asked(log).values()) == 60


def test_a_chunk_that_another_process_labels_is_refused(tmp_path, capsys):
    directory = random_dataset(tmp_path / "data", num_pairs=200)
    with judge(tmp_path / "log", latency_secs=0.1) as server:
        first = start(directory, server.address)
        deadline = time.monotonic() + 60
        while not num_done(directory):
            assert time.monotonic() < deadline and first.poll() is None
            time.sleep(0.01)
        words = ("--llm_server_addr", server.address, "--custom_annotator_string", "mine")
        assert run(directory, *words) == 2
        assert "another process labels" in capsys.readouterr().err
        first.terminate()
        assert "SIGTERM: the same command resumes from here" in first.communicate(timeout=30)[0]
        assert first.returncode == 0


def test_a_failing_server_loses_no_pair(tmp_path):
    directory = random_dataset(tmp_path / "data", num_pairs=40)
    faults = ("http_500", "no_choices", "missing_choices", "close")
    for name, api in (("chat", "chat"), ("lists", "completions")):
        with judge(tmp_path / "log", trouble=Faults(0.1, faults)) as server:
            words = ("--llm_server_addr", server.address, "--llm_api", api, "--llm_batch_size", "8")
            assert run(directory, *words, "--custom_annotator_string", name, "--llm_max_retries", "50") == 0
        assert 3 not in labels(directory, name)
    assert labels(directory, "chat") == labels(directory, "lists")


@pytest.mark.slow
def test_labels_of_several_makers_are_not_mixed(tmp_path, capsys):
    directory = random_dataset(tmp_path / "data", num_pairs=5)
    mine = ("--custom_annotator_string", "mine")
    assert run(directory, *mine) == 0
    before = labels(directory, "mine")
    for other in ("--llm_server_addr=127.0.0.1:1", "--goal_key=combat"):
        assert run(directory, *mine, other) == 2
        assert "name another file with --custom_annotator_string" in capsys.readouterr().err
        assert labels(directory, "mine") == before
    assert run(directory, *mine) == 0
    assert run(directory, *mine, "--goal_key=combat", "--ignore_existing") == 0
    assert run(directory, *mine) == 2
    before = labels(directory, "mine")
    chunk = ("--n_annotation_chunks=5", "--chunk_number=1", "--ignore_existing")
    assert run(directory, *mine, *chunk) == 2 and labels(directory, "mine") == before  # the others are of combat
    assert run(directory, *mine, "--annotator=score") == 2
    assert "its labels have another annotator" in capsys.readouterr().err
    assert run(directory, *mine, *chunk, "--goal_key=combat") == 0
    (directory / "preference" / "mine.json").unlink()  # as of labels that others published
    assert run(directory, *mine) == 0


@pytest.mark.parametrize("rows_at_once", [3, 4096])
def test_the_same_two_descriptions_are_asked_about_once(tmp_path, monkeypatch, rows_at_once):
    monkeypatch.setattr("oni_jax.offline.pair_annotation.ROWS_AT_ONCE", rows_at_once)
    texts = [[[b"You kill the newt!"], [b""]], [[b""], [b"You kill the newt!"]]] * 20
    directory = write_dataset(tmp_path / "data", {"data/message": padded(texts)})
    with judge(tmp_path / "log") as server:
        assert run(directory, "--llm_server_addr", server.address, "--custom_annotator_string", "mine") == 0
    assert labels(directory, "mine") == [0, 1] * 20
    assert sum(asked(tmp_path / "log").values()) == 2


def test_unreadable_pair_is_unknown_and_not_asked_forever(tmp_path, capsys):
    directory = random_dataset(tmp_path / "data", num_pairs=5)
    words = ("--directory", str(directory), "--custom_annotator_string", "mine", "--llm_server_addr")
    with judge(tmp_path / "log", trouble=Faults(1.0, ("unreadable",))) as server:
        assert annotate_pairs.main([*words, server.address]) == 0
        assert labels(directory, "mine") == [3] * 5
        assert "5 unknown" in capsys.readouterr().out
        assert sum(asked(tmp_path / "log").values()) == 10
        assert annotate_pairs.main([*words, server.address]) == 0
        assert sum(asked(tmp_path / "log").values()) == 10
    with judge(tmp_path / "log") as server:
        assert annotate_pairs.main([*words, server.address, "--ignore_existing"]) == 0
    assert 3 not in labels(directory, "mine")


@pytest.mark.parametrize(
    "words, text",
    [
        (["--annotator", "score", "--directory", "/nowhere"], "/nowhere"),
        (["--chunk_number", "1"], "--chunk_number 1"),
        (["--use_messages", "false"], "--use_blstats"),
        (["--custom_annotator_string", "a/b"], "--custom_annotator_string"),
        (["--annotator", "oracle"], "oracle"),
        (["--label_store", "labels.sqlite"], "--label_store"),
        (["--prompt_file", "/nowhere/p.json"], "/nowhere/p.json"),
        (["--llm-size", "70"], "--llm_model"),
        (["--num-gpus", "8"], "--llm_model"),
        (["--flushing_freq", "0"], "--flushing_freq"),
        (["--use_blstats"], "data/blstats.npy"),
        (["--llm_server_addr", "ftp://x"], "ftp://x"),
    ],
)
def test_refused_in_one_line(tmp_path, capsys, words, text):
    write_dataset(tmp_path, {"data/message": padded([[[b"a"], [b"b"]]])})
    assert run(tmp_path, *words) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1 and text in captured.err
