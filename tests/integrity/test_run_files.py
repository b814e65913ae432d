"""Files of a run that are damaged, or none: what they say counts for nothing."""

import json
import os

import pytest

from oni_jax.host.run_files import ended_at, last_row, saved_secs, summary
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
