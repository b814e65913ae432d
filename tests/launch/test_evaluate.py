"""Evaluating, as a user does."""

import csv
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from launch import evaluate
from oni_jax.evaluation import program
from oni_jax.evaluation.agents import RandomAgent
from tests.evaluation.runs import CATCH, NETHACK, write_run


@pytest.fixture(scope="module")
def train_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "first", CATCH, (320, 640))
    write_run(folder / "second", {**CATCH, "llm_reward_type": "online_cls"}, (320,), seed=5)
    write_run(folder / "nethack", NETHACK, ())
    return folder


@pytest.fixture
def run(train_dir):
    def run(*words):
        return evaluate.main(["--train_dir", str(train_dir), "--num_workers", "1", "--episodes", "40", *words])

    return run


def test_a_comparison_and_the_same_again(run, tmp_path, capfd):
    table, rows, again = (str(tmp_path / name) for name in ("a.json", "a.csv", "b.json"))
    assert run("--experiment", "first", "--compare", "second", "--json", table, "--csv", rows) == 0
    out = capfd.readouterr().out
    assert "first at 640 steps minus second at 320 steps, on the same 40 episodes" in out
    assert out.count("labels by: ") == out.count("labels by: rule-based judge, not an LLM\n") == 1  # the second's
    tree = json.loads(pathlib.Path(table).read_text())
    assert tree["evaluations"][0]["labels_by"] is None and tree["other"]["labels_by"] == "rule-based judge, not an LLM"
    assert tree["evaluations"][0]["env_steps"] == 640 and tree["other"]["experiment"] == "second"
    assert tree["differences"][0]["measures"]["return"]["mean"] == pytest.approx(
        tree["evaluations"][0]["measures"]["return"]["mean"] - tree["other"]["measures"]["return"]["mean"]
    )
    assert len(list(csv.DictReader(pathlib.Path(rows).read_text().splitlines()))) == 80
    assert run("--experiment", "second", "--json", again) == 0
    assert json.loads(pathlib.Path(again).read_text())["evaluations"] == [tree["other"]]


def test_every_checkpoint_against_chance(run, capfd):
    assert run("--experiment", "first", "--checkpoint", "all", "--compare", "random", "--policy", "greedy") == 0
    out = capfd.readouterr().out
    for player in ("first at 320 steps", "first at 640 steps"):
        assert f"{player}, Catch-v0, at most 9 steps, greedy, 40 episodes of seed 1" in out
        assert f"{player} minus random policy, on the same 40 episodes" in out


def test_chance_needs_no_run(run, capfd):
    assert run("--experiment", "none", "--policy", "random", "--root_env", "Catch-v0", "--max_episode_steps", "4") == 0
    out = capfd.readouterr().out
    assert "random policy, Catch-v0, at most 4 steps" in out and "ends: step limit 100.0 %" in out


def test_files_that_would_replace_something_else(run, tmp_path, capfd):
    pipe, link, path = (tmp_path / name for name in ("pipe", "link", "a"))
    os.mkfifo(pipe)
    link.symlink_to(path)
    same = ("--json", str(path), "--csv", f"{tmp_path}/./a")
    for words, message in [
        (("--json", str(pipe)), "pipe: is no regular file"),
        (("--csv", str(link)), "link: is no regular file"),
        (same, "a: is the file of --json too"),
    ]:
        assert run("--experiment", "first", *words) == 2
        assert message in capfd.readouterr().err
    assert pipe.is_fifo() and link.is_symlink() and not path.exists()


def test_one_episode_is_compared(run, capfd):
    assert run("--experiment", "first", "--compare", "random", "--episodes", "1") == 0
    out = capfd.readouterr().out
    assert "first at 640 steps minus random policy, on the same 1 episode" in out and "unknown" in out


def test_checkpoints_may_go_while_their_policies_play(tmp_path, capfd, monkeypatch):
    write_run(tmp_path / "live", CATCH, (320, 640))
    play_episodes = program.play_episodes

    def play(*arguments):
        shutil.rmtree(tmp_path / "live" / "checkpoints", ignore_errors=True)
        return play_episodes(*arguments)

    monkeypatch.setattr(program, "play_episodes", play)
    words = ["--train_dir", str(tmp_path), "--experiment", "live", "--checkpoint", "all", "--num_workers", "1"]
    assert evaluate.main([*words, "--episodes", "4"]) == 0
    assert "live at 640 steps, Catch-v0" in capfd.readouterr().out


def test_a_lost_actor_leaves_a_partial_report_and_no_process(run, tmp_path, capfd, monkeypatch):
    act, num_calls = RandomAgent.act, 0

    def deadly(*given):
        nonlocal num_calls
        num_calls += 1
        if num_calls == 100:  # four units, whose episodes have nine steps
            (pid,) = (child.pid for child in multiprocessing.active_children() if child.name == "actor-0")
            assert pid
            os.kill(pid, signal.SIGKILL)
        return act(*given)

    monkeypatch.setattr(RandomAgent, "act", deadly)
    path = tmp_path / "a.json"
    words = ["--experiment", "first", "--policy", "random", "--episodes", "40000", "--num_workers", "2"]
    assert run(*words, "--json", str(path)) == 1
    out, err = capfd.readouterr()
    assert "PARTIAL: " in out and "(an actor process was lost)" in out
    assert "actor-0 (pid" in err and "killed by SIGKILL" in err and "--max_actor_restarts" not in err
    tree = json.loads(path.read_text())["evaluations"][0]
    assert tree["complete"] is False and 0 < len(tree["episodes"]) < 4000
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("actor")]


@pytest.mark.parametrize(
    "words, message",
    [
        (("--experiment", "nobody"), "nobody/config.json can't be read"),
        (("--experiment", "nethack"), "nethack/checkpoints: holds no checkpoint"),
        (("--experiment", "first", "--checkpoint", "77"), "no checkpoint of 77 steps, but of 320, 640"),
        (("--experiment", "first", "--checkpoint", "newest"), "--checkpoint newest: must be latest, best, all, or"),
        (
            ("--experiment", "first", "--compare", "nethack"),
            "Catch-v0 has .*, on which nethack was trained|Catch-v0 does not show chars",
        ),
        (("--experiment", "first", "--compare", "second", "--compare_checkpoint", "all"), "--compare_checkpoint all"),
        (("--experiment", "first", "--root_env", "NetHackScore-v1"), "NetHackScore-v1 as chosen has other actions"),
        (("--experiment", "first", "--json", "/nowhere/a.json"), "--json /nowhere/a.json: there is no folder /nowhere"),
        (("--experiment", "first", "--csv", "/"), "--csv /: is no regular file"),
        (("--experiment", "first", "--compare", "nobody"), "^error: /[^:]*nobody/config.json can't be read"),
        (("--experiment", "first", "--compare_checkpoint", "320"), "--compare_checkpoint 320: of which run"),
        (
            ("--experiment", "first", "--crafter_task", "attack cow"),
            "--crafter_task attack cow: has no meaning in Catch",
        ),
        (("--policy", "random", "--compare", "x"), "--experiment x --compare random"),
        (("--episodes", "0"), "--episodes 0: must be 1 or more"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, capfd, words, message):
    assert run(*words) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    assert re.search(message, err), err


def interrupt(words) -> tuple[int, str, str]:
    """Starts the program, interrupts it when it has told of a finished episode: (exit code, stdout, stderr)."""
    code = (
        "import functools, sys; from oni_jax.evaluation import program; "
        "program.play_episodes = functools.partial(program.play_episodes, progress_secs=0.05); "
        f"from launch.evaluate import main; sys.exit(main({[*words]!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    told = ""
    for line in process.stdout:
        told += line
        if " of " in line and (done := line.split()[0].replace(",", "")).isdecimal() and int(done) > 0:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, told + out, err


def test_an_interruption_leaves_a_partial_report(tmp_path):
    path = tmp_path / "a.json"
    words = ["--policy", "random", "--root_env", "NetHackScore-v1", "--episodes", "40000", "--num_workers", "1"]
    code, out, err = interrupt([*words, "--max_episode_steps", "50", "--json", str(path)])
    assert code == 130, err
    assert "PARTIAL: " in out and "(SIGINT)" in out and err == ""
    assert json.loads(path.read_text())["evaluations"][0]["complete"] is False


def test_interruption_before_the_first_end_is_said(run, capfd, monkeypatch):
    def play_nothing(*arguments):
        arguments[-2].reason = "SIGINT"
        return []

    monkeypatch.setattr(program, "play_episodes", play_nothing)
    assert run("--experiment", "first") == 130
    out, err = capfd.readouterr()
    assert out.endswith("no episode has ended: nothing to report\nSIGINT: interrupted\n") and err == ""


def test_a_second_evaluation_of_a_process_leaves_xla_s_flags(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_x=1")
    for _ in range(2):
        evaluate.make_deterministic()
        assert os.environ["XLA_FLAGS"] == "--xla_x=1 --xla_gpu_deterministic_ops=true"
