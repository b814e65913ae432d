"""Files of a run that are damaged, or none: what they say counts for nothing."""

import json
import os

import pytest

from oni_jax.host.run_files import ended_at, is_damaged, last_row, saved_secs, summary
from oni_jax.metrics.sinks import JsonlSink, write_json
from tests.support.trials import trial


@trial("numbers of a run damaged")
@pytest.mark.parametrize("value", ["text", None, [], {}, -1, float("nan"), float("inf"), True, "1"])
def test_values_that_count_nothing_are_zero(tmp_path, value):
    progress = tmp_path / "checkpoints" / "100" / "progress"
    progress.mkdir(parents=True)
    (progress / "metadata").write_text(json.dumps({"train_secs": value}))
    (tmp_path / "summary.json").write_text(json.dumps({"env_steps": value, "train_secs": value}))
    assert saved_secs(str(tmp_path)) == 0 and ended_at(str(tmp_path)) == (0, 0)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/os-release", path), os.mkdir])
def test_files_that_are_no_regular_ones_are_not_read(tmp_path, make):
    for name in ("summary.json", "metrics.jsonl"):
        make(tmp_path / name)
    assert summary(str(tmp_path)) == {} and last_row(str(tmp_path)) == {}


@trial("rows damaged")
def test_changed_digit_of_the_newest_row_is_noticed(tmp_path):
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    for number in (1, 2):
        sink.write(number, {"env_steps": 100 * number, "mean_return": 0.5})
    sink.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert last_row(str(tmp_path))["env_steps"] == 200
    for changed in (text.replace("200", "900"), text[:-9] + "\n", text.replace('"step": 2', '"step": NaN')):
        (tmp_path / "metrics.jsonl").write_text(changed)
        assert last_row(str(tmp_path)) == {"step": 1, "env_steps": 100, "mean_return": 0.5}


@trial("numbers of a run damaged")
def test_changed_digit_of_a_summary_is_noticed(tmp_path):
    path = tmp_path / "summary.json"
    write_json(path, {"env_steps": 200, "state": "stopped"})
    assert summary(str(tmp_path)) == {"env_steps": 200, "state": "stopped"} and not is_damaged(str(tmp_path))
    for old, new in (("200", "900"), ("stopped", "stoppee"), ("stopped", "finished")):
        text = path.read_text()
        path.write_text(text.replace(old, new))
        assert summary(str(tmp_path)) == {} and is_damaged(str(tmp_path))
        path.write_text(text)
