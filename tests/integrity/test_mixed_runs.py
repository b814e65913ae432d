"""Files of one run in the folder of another: they are whole, and yet not believed."""

import json
import os
import pathlib
import shutil
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from launch import ls
from oni_jax.host.run_files import SETTINGS, SUMMARY, is_damaged, last_row, run_id, saved_secs, summary
from oni_jax.metrics.sinks import build_sinks, write_json
from oni_jax.runs.checkpointing import Checkpoints, Saved, restore_params
from oni_jax.runs.experiment import write_settings
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.json_text import RUN_ID
from oni_jax.settings.run import RunConfig
from tests.support.trials import trial

LIKE = {"params": {"kernel": np.zeros(3, np.float32)}}


def saved(folder: pathlib.Path, step: int, value: float) -> str:
    """Saves a checkpoint. Returns the id of its run."""
    checkpoints = Checkpoints(str(folder / "checkpoints"))
    state = {"params": {"kernel": jnp.full(3, value)}}
    checkpoints.save(step, Saved(state, {}, {"env_steps": step, "train_secs": value}))
    checkpoints.close()
    return checkpoints.run_id


def made(folder: pathlib.Path, value: float, *steps: int) -> pathlib.Path:
    """Makes the files of a run, as training does."""
    config = with_values(Config(), {"llm_reward_type": "none"})
    folder.mkdir()
    for step in steps:
        run = saved(folder, step, value)
        write_settings(config, str(folder), run)
    sinks = build_sinks(RunConfig(), str(folder))
    for step in steps:
        sinks.write(step, {"env_steps": step, "secs": float(step), "mean_return": value, "episodes": 3})
    sinks.close()
    row = {"env_steps": steps[-1], "train_secs": value, "mean_return": value, "state": "finished"}
    write_json(folder / SUMMARY, {**row, RUN_ID: run_id(str(folder))})
    return folder


@pytest.fixture
def one(tmp_path) -> pathlib.Path:
    return made(tmp_path / "one", 1.0, 100, 200)


@pytest.fixture
def other(tmp_path) -> pathlib.Path:
    return made(tmp_path / "other", 2.0, 200, 300)


def restored(folder: pathlib.Path) -> Saved:
    checkpoints = Checkpoints(str(folder / "checkpoints"))
    try:
        found = checkpoints.restore(LIKE)
        assert found is not None
        return found
    finally:
        checkpoints.close()


def put(name: str, source: pathlib.Path, target: pathlib.Path) -> None:
    """Puts a file or a folder in the place of another one's."""
    if (source / name).is_dir():
        shutil.rmtree(target / name, ignore_errors=True)
        shutil.copytree(source / name, target / name)
    else:
        shutil.copy(source / name, target / name)


@trial("files of another run")
def test_summary_of_another_run_counts_as_damaged(one, other, capsys):
    assert summary(str(one))["state"] == "finished" and not is_damaged(str(one))
    put(SUMMARY, other, one)
    assert summary(str(one)) == {} and is_damaged(str(one))
    assert ls.main([str(one)]) == 0 and " damaged " in capsys.readouterr().out


@trial("files of another run")
def test_rows_of_another_run_are_left_out_and_counted(one, other, capsys):
    ours, theirs = ((folder / "metrics.jsonl").read_text() for folder in (one, other))
    (one / "metrics.jsonl").write_text(ours + theirs)
    assert Run(str(one)).metrics(["mean_return"]).metrics["mean_return"].tolist() == [1, 1]
    assert "metrics.jsonl: 2 rows of another run are left out" in capsys.readouterr().out
    assert last_row(str(one))["mean_return"] == 1
    (one / "metrics.jsonl").write_text(theirs)
    assert last_row(str(one)) == {}


@trial("files of another run")
@pytest.mark.parametrize("step", [200, 300])
def test_checkpoint_of_another_run_is_set_aside(one, other, step, capsys):
    put(f"checkpoints/{step}", other, one)
    assert saved_secs(str(one)) == 0
    found, params = restore_params(str(one / "checkpoints"), LIKE["params"])
    assert (found, params["kernel"].tolist()) == (200 if step == 300 else 100, [1, 1, 1])
    assert "it is of another run" in capsys.readouterr().out
    assert restored(one).progress["env_steps"] == found
    assert (one / "checkpoints" / f"{step}.unreadable").is_dir()
    assert "it is of another run" in capsys.readouterr().out


@trial("files of another run")
@pytest.mark.parametrize("name", [SETTINGS, "checkpoints"])
def test_run_with_settings_or_checkpoints_of_another_one_is_not_resumed(one, other, name):
    put(name, other, one)
    with pytest.raises(UserError, match="it is of another run"):
        restored(one)


def edited(path: pathlib.Path) -> None:
    path.write_text(path.read_text().replace('"llm_reward_coeff": 0', '"llm_reward_coeff": 7'))


@pytest.mark.parametrize("change", [os.remove, edited, lambda path: None])
def test_run_keeps_its_id_when_its_settings_are_written_again(one, change: Callable, capsys):
    before = run_id(str(one))
    change(one / SETTINGS)
    assert saved(one, 300, 1.0) == before != ""
    write_settings(Run(str(one)).config if (one / SETTINGS).exists() else Config(), str(one))
    assert run_id(str(one)) == before and restored(one).progress["env_steps"] == 300
    moved = one.rename(one.parent / "moved")
    assert run_id(str(moved)) == before and summary(str(moved))


def without_id(path: pathlib.Path) -> None:
    """Writes a JSON object as an earlier version did."""
    found = json.loads(path.read_text())
    found = {name: x for name, x in found.items() if name not in (RUN_ID, "checksum")}
    found.get("run", {}).pop(RUN_ID, None)
    path.write_text(json.dumps(found))


def test_files_without_an_id_are_those_of_an_earlier_version(one, other):
    put(SUMMARY, other, one)
    without_id(one / SUMMARY)
    assert summary(str(one))["mean_return"] == 2
    put(SUMMARY, other, one)
    without_id(one / SETTINGS)
    assert run_id(str(one)) == "" and summary(str(one))["mean_return"] == 2
    assert saved(one, 300, 1.0) == ""
    write_settings(Run(str(one)).config, str(one))
    assert run_id(str(one)) == ""
