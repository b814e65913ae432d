"""launch.ls, as a user calls it, on folders as training leaves them."""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import pytest

from launch import ls
from oni_jax.host.run_files import LOCK
from tests.show.report.runs import row, write_run

LLM: dict[str, Any] = {"llm_reward_type": "online_cls", "llm_server_addr": "node1", "llm_model": "meta/Llama-3.1-8B-It"}


def write(
    folder: pathlib.Path, steps: int, *, saved: int = 0, summary: dict | None = None, labels: bool = False, **settings
) -> None:
    """A run with a row of metrics at `steps`, a checkpoint, and how its last start ended."""
    labelled = {"labels_held": 3} if labels else {}
    rows = [row(steps, 9.0, mean_return=1.5, episodes=70, **labelled)] if steps else []
    write_run(folder, rows, train_for_env_steps=2_000_000, **settings)
    if saved:
        (folder / "checkpoints" / str(saved)).mkdir(parents=True)
    if summary:
        (folder / "summary.json").write_text(json.dumps({"train_secs": 9.0, **summary}))


@contextlib.contextmanager
def locked(folder: pathlib.Path):
    """As the process that trains it has it."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def listed(capsys, *words: str) -> tuple[list[list[str]], list[str]]:
    """The columns of each run, which are apart where no text of the tests has a blank; and what was skipped."""
    assert ls.main([*words]) == 0
    captured = capsys.readouterr()
    return [line.split() for line in captured.out.splitlines()[1:]], captured.err.splitlines()


def test_states_steps_and_order(tmp_path, capsys):
    write(tmp_path / "s" / "seed=10", 1_234_567, saved=1_200_000)  # killed before it wrote how it ended
    write(tmp_path / "s" / "seed=2", 1_000_000, saved=900_000, summary={"env_steps": 900_000, "state": "stopped"})
    write(tmp_path / "stopped", 1000, saved=1000, summary={"env_steps": 1000, "state": "stopped"})
    write(tmp_path / "failed", 1000, saved=1000, summary={"env_steps": 1000, "state": "died"})
    write(tmp_path / "time", 1000, saved=1000, summary={"env_steps": 1000, "state": "finished"})
    write(tmp_path / "old", 2_000_000, saved=2_000_000, summary={"env_steps": 2_000_000})
    write(tmp_path / "imported", 0, saved=0)
    (tmp_path / "imported" / "checkpoints" / "0").mkdir(parents=True)
    write(tmp_path / "going", 1_500, saved=1_000)
    with locked(tmp_path / "going"):
        found, skipped = listed(capsys, str(tmp_path))
    assert skipped == [] and [(name, state, steps) for name, state, _, steps, *_ in found] == [
        ("failed", "died", "1k/2M"),
        ("going", "running", "1.5k/2M"),
        ("imported", "stopped", "0/2M"),
        ("old", "finished", "2M/2M"),
        ("s/seed=2", "died", "900k/2M"),  # it had gone on
        ("s/seed=10", "died", "1.2M/2M"),
        ("stopped", "stopped", "1k/2M"),
        ("time", "finished", "1k/2M"),
    ]
    assert listed(capsys, str(tmp_path / "s" / "seed=2"))[0][0][0] == "seed=2"


def test_return_reward_and_labels(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    write(tmp_path / "judged", 1000, labels=True, llm_reward_type="online_motif", answers="judge", stats_avg=100)
    write(tmp_path / "llm", 1000, labels=True, **LLM)
    write(tmp_path / "none", 1000)
    os.utime(tmp_path / "none" / "metrics.jsonl", (time.time() + 5, time.time() + 5))
    (judged, llm, none), _ = listed(capsys, "--train_dir", str(tmp_path))
    assert judged[4:-1] == ["1.5", "(70)", "online_motif", "rule-based", "judge"]
    assert llm[2] == "NetHackStaircase-v1" and llm[4:-1] == ["1.5", "(50)", "online_cls", LLM["llm_model"]]
    assert none[4:] == ["1.5", "(50)", "none", "0s"]


def test_a_line_fits(tmp_path, capsys, monkeypatch):
    write(tmp_path / "a_long_name_of_a_run_that_says_all_about_it_seed=12", 1_234_567, labels=True, **LLM)
    for columns in ("80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        ls.main([str(tmp_path)])
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= int(columns) and lines[1].split()[0].startswith("a_")
    assert lines[1].split()[0] == "a_long_name_of_a_run_that_says_all_about_it_seed=12" and "meta/L…-8B-It" in lines[1]


def test_others_are_skipped_with_a_line(tmp_path, capsys):
    write(tmp_path / "good", 1000, saved=1000, summary={"env_steps": 1000})
    (tmp_path / "plots").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    for name, content in (("bad", "{"), ("odd\x1b[2J", '{"network": {"hidden_size": -5}}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
    write(tmp_path / "rows", 1000)
    (tmp_path / "rows" / "metrics.jsonl").write_text('{"env_steps": "many", "mean_return": [], "episodes": 1e999}\n')
    (tmp_path / "rows" / "summary.json").write_text('{"env_steps": null}')
    found, skipped = listed(capsys, str(tmp_path))
    assert [name for name, *_ in found] == ["good", "rows"]
    assert [line.partition(":")[0] for line in skipped] == [
        "skipped plots", f"skipped {tmp_path}/bad/config.json", f"skipped {tmp_path}/odd\\x1b[2J/config.json",
    ]  # fmt: skip
    assert ls.main([str(tmp_path / "nothing")]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    assert listed(capsys, str(tmp_path / "plots")) == ([], [])


def test_run_that_has_not_written_its_settings_yet_starts(tmp_path, capsys):
    (tmp_path / "new").mkdir()
    with locked(tmp_path / "new"):
        assert listed(capsys, str(tmp_path)) == ([], ["skipped new: a run that starts"])
    assert listed(capsys, str(tmp_path)) == ([], ["skipped new: no run"])


def test_listing_imports_no_jax():
    code = "import sys; from launch import ls; ls.main(['.']); assert not {'jax', 'scipy', 'flax'} & {*sys.modules}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("hold", [True, False])
def test_looking_does_not_lock(tmp_path, hold):
    from oni_jax.runs.experiment import is_running

    with locked(tmp_path) if hold else contextlib.nullcontext():
        assert is_running(str(tmp_path)) == is_running(str(tmp_path)) == hold
