"""Rows of metrics: what is written where, what survives a crash, and what is shown."""

import io
import json
import math
import sys
import types

import numpy as np
import pytest
from rich.console import Console

from oni_jax import metrics
from oni_jax.config import RunConfig, UserError
from oni_jax.metrics.progress import LiveProgress, describe, secs_left
from tests.full_disk import full_disk

ROW = {
    "env_steps": 123_456,
    "updates": 30,
    "secs": 125.0,
    "env_steps_per_sec": 1020.3,
    "env_steps_per_sec_overall": 990.0,
    "episodes": 12,
    "mean_return": 33.21,
    "mean_length": 1200.3,
    "policy_lag_mean": 1.3,
    "policy_lag_max": 4,
    "learner_waits_share": 0.31,
    "inference_waits_share": 0.2,
    "actors_wait_share": 0.5,
    "labels_held": 100,
    "labels_asked": 141,
    "answers_unreadable": 2,
    "requests_failed": 1,
    "labels_backlog": 37,
    "server_state": "up",
    "loss/policy": np.float32(0.5),
}


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_jsonl_appends(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2):
        sink = metrics.JsonlSink(path)
        sink.write(step, {"a": np.float32(0.5), "n": np.int64(3), "word": "up", "bad": float("nan")})
        sink.close()
    assert lines_of(path) == [{"step": step, "a": 0.5, "n": 3, "word": "up", "bad": None} for step in (1, 2)]


@pytest.mark.parametrize("torn", ['{"step": 2, "a', "x" * 10_000])
def test_jsonl_drops_a_torn_last_line(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n' + torn)
    sink = metrics.JsonlSink(path)
    sink.write(3, {})
    sink.close()
    assert lines_of(path) == [{"step": 1}, {"step": 3}]


def test_jsonl_of_one_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"st')
    metrics.JsonlSink(path).close()
    assert path.read_text() == ""


def test_jsonl_rows_can_be_read_at_once(tmp_path):
    sink = metrics.JsonlSink(tmp_path / "metrics.jsonl")
    sink.write(1, {"a": 1.0})
    assert lines_of(tmp_path / "metrics.jsonl") == [{"step": 1, "a": 1.0}]
    sink.close()


def events(folder) -> list:
    """What the events files in a folder hold; each record is framed by its length and checksums."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboardX.record_writer import masked_crc32c

    found = []
    for path in folder.glob("events.out.tfevents.*"):
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            record = data[12 : 12 + length]
            sums = [int.from_bytes(data[at : at + 4], "little") for at in (8, 12 + length)]
            assert sums == [masked_crc32c(data[:8]), masked_crc32c(record)]
            found.append(Event.FromString(record))
            data = data[12 + length + 4 :]
    return found


def read_events(folder) -> dict[tuple[str, int], float]:
    """(name, step) -> value."""
    values = {}
    for event in events(folder):
        values.update({(value.tag, event.step): value.simple_value for value in event.summary.value})
    return values


def test_files_of_an_experiment(tmp_path):
    sinks = metrics.build_sinks(RunConfig(), tmp_path)
    sinks.write(10, ROW)
    sinks.write(20, {"a": 2.0})
    sinks.close()
    rows = lines_of(tmp_path / "metrics.jsonl")
    assert rows[0]["server_state"] == "up" and rows[1] == {"step": 20, "a": 2.0}
    events = read_events(tmp_path / "tensorboard")
    assert events["loss/policy", 10] == 0.5 and events["a", 20] == 2.0
    assert not any(name == "server_state" for name, _ in events)


def test_a_resumed_run_hides_the_steps_that_come_again(tmp_path):
    from tensorboardX.proto.event_pb2 import SessionLog  # pyright: ignore[reportAttributeAccessIssue]

    metrics.build_sinks(RunConfig(), tmp_path, first_step=500).close()
    starts = [event.step for event in events(tmp_path / "tensorboard") if event.session_log.status == SessionLog.START]
    assert starts == [500]


def test_a_full_disk_loses_rows_and_nothing_else(tmp_path, capsys):
    sinks = metrics.build_sinks(RunConfig(), tmp_path)
    sinks.write(1, {"a": 1.0})
    with full_disk(100):
        for step in (2, 3, 4):
            sinks.write(step, {f"value {i}": 1.0 for i in range(20)})
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and "metrics.jsonl" in told[0] and "tensorboard" in told[1]
    sinks.write(5, {"a": 5.0})
    assert capsys.readouterr().err.count("3 rows were lost") == 2
    sinks.close()
    assert lines_of(tmp_path / "metrics.jsonl") == [{"step": 1, "a": 1.0}, {"step": 5, "a": 5.0}]
    assert read_events(tmp_path / "tensorboard") == {("a", 1): 1.0, ("a", 5): 5.0}


def test_a_full_disk_at_the_start_is_told_in_a_line(tmp_path):
    with full_disk(), pytest.raises(UserError, match="tensorboard") as error:
        metrics.build_sinks(RunConfig(), tmp_path)
    assert "\n" not in str(error.value)


class FakeWandb(types.ModuleType):
    """Stands for the package; records what it is asked for."""

    def __init__(self, broken: bool = False):
        super().__init__("wandb")
        self.broken, self.starts, self.rows, self.finished = broken, [], [], 0

    def init(self, **options):
        self.starts.append(options)
        return self

    def log(self, row, step):
        if self.broken:
            raise ConnectionError("no route\nto host")
        self.rows.append((step, row))

    def finish(self):
        self.finished += 1


@pytest.fixture
def no_key(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)


def use_wandb(run: RunConfig, folder) -> metrics.WandbSink:
    sink = metrics.WandbSink(run, folder)
    for step in (1, 2):
        sink.write(step, {"a": 1.0, "word": "up"})
    sink.close()
    return sink


def test_wandb_missing_warns_once(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    use_wandb(RunConfig(), tmp_path)
    assert capsys.readouterr().err.count("\n") == 1


def test_wandb_without_a_key_is_offline(monkeypatch, tmp_path, capsys, no_key):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    use_wandb(RunConfig(wandb_proj="p"), tmp_path)
    assert capsys.readouterr().err.count("\n") == 1
    assert fake.starts[0]["mode"] == "offline" and fake.starts[0]["project"] == "p"
    assert fake.rows == [(1, {"a": 1.0}), (2, {"a": 1.0})] and fake.finished == 1


def test_wandb_goes_on_under_the_same_id(monkeypatch, tmp_path, capsys):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_API_KEY", "key")
    for _ in range(2):
        use_wandb(RunConfig(), tmp_path)
    assert fake.starts[0]["id"] == fake.starts[1]["id"] and fake.starts[0]["mode"] == "online"
    assert capsys.readouterr().err == ""


def test_wandb_breaking_warns_once_and_is_left_alone(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(broken=True))
    monkeypatch.setenv("WANDB_API_KEY", "key")
    use_wandb(RunConfig(), tmp_path)
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "no route" in errors


def test_wandb_is_only_used_when_asked_for(monkeypatch, tmp_path):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    metrics.build_sinks(RunConfig(), tmp_path).close()
    assert fake.starts == []
    metrics.build_sinks(RunConfig(wandb=True), tmp_path).close()
    assert len(fake.starts) == 1


def test_write_json_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "summary.json"
    metrics.write_json(path, {"a": np.float32(2.5), "b": math.inf, "c": None})
    with pytest.raises(TypeError):
        metrics.write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 2.5, "b": None, "c": None}
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_a_full_disk_leaves_the_summary_of_before(tmp_path, capsys):
    metrics.write_json(tmp_path / "summary.json", {"a": 1})
    with full_disk(5):
        metrics.write_json(tmp_path / "summary.json", {"a": 2})
    assert capsys.readouterr().err.count("\n") == 1
    assert json.loads((tmp_path / "summary.json").read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_rate_is_that_of_the_window():
    meter = metrics.RateMeter(window_secs=10)
    assert meter.update(0, now_secs=0) == 0
    assert meter.update(100, now_secs=1) == 100
    rates = [meter.update(100, now_secs=secs) for secs in range(2, 13)]
    assert rates[0] == 50 and rates[-2:] == [0, 0]
    assert meter.update(400, now_secs=13) == 30


def test_rate_when_calls_are_rarer_than_the_window():
    meter = metrics.RateMeter(window_secs=10)
    meter.update(0, now_secs=0)
    assert meter.update(300, now_secs=30) == 10
    assert meter.update(900, now_secs=60) == 20


def test_means_over_the_last_episodes():
    stats = metrics.RollingStats(("return", "length", "gold"), window=2)
    assert stats.row() == {}
    stats.add(np.array([[1, 10, 5]], np.float32))
    buffer = np.array([[2, 20, 6], [4, 40, 8]], np.float32)
    stats.add(buffer)
    buffer[:] = 0  # the caller's memory
    row = stats.row()
    assert row["mean_return"] == row["episode/return"] == 3
    assert row["mean_length"] == 30 and row["episode/gold"] == 7
    assert "mean_gold" not in row


def test_plain_lines_say_it_all():
    stream = io.StringIO()
    view = metrics.build_progress(RunConfig(train_for_env_steps=1_000_000), stream)
    view.update(ROW)
    view.close()
    assert stream.getvalue().count("\n") == 1
    shown = ("123,456", "12.3%", "1,020", "990", "33.21", "12 episodes", "100 held", "141 asked", "2 unreadable")
    shown += ("1 failed", "server up, 37 queued, ", "learner for games 31%", "lag 1.3", "0:02:05 gone", "left")
    for text in shown:
        assert text in stream.getvalue(), text


def test_a_missing_server_is_told():
    shown = dict(describe({**ROW, "server_state": "waiting for server"}, RunConfig()))
    assert shown["labels"].startswith("waiting for server, 37 queued, 100 held")


def test_a_row_may_lack_anything():
    assert describe({}, RunConfig()) == []
    for name in ROW:
        describe({name: ROW[name]}, RunConfig())
        describe({other: ROW[other] for other in ROW if other != name}, RunConfig())


def test_time_left_is_that_of_the_nearer_limit():
    known = {"secs": 100.0, "env_steps": 500, "env_steps_per_sec_overall": 5.0}
    assert secs_left(known, RunConfig(train_for_env_steps=1000)) == 100
    assert secs_left(known, RunConfig(train_for_env_steps=1000, train_for_seconds=150.0)) == 50
    assert secs_left(known, RunConfig(train_for_seconds=50.0)) == 0
    assert secs_left({"env_steps": 0}, RunConfig()) is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_the_live_view(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    view = metrics.build_progress(RunConfig(), Terminal())
    assert isinstance(view, LiveProgress)
    view.close()
    monkeypatch.setenv("TERM", "dumb")
    assert not isinstance(metrics.build_progress(RunConfig(), Terminal()), LiveProgress)


def test_without_rich_a_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich.live", None)
    stream = Terminal()
    view = metrics.build_progress(RunConfig(), stream)
    view.update(ROW)
    assert "123,456" in stream.getvalue()


@pytest.mark.parametrize("width", [8, 30, 200])
def test_the_live_view_fits_the_terminal(width):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, color_system=None)
    view = LiveProgress(RunConfig(), stream, console)
    view.update(ROW)
    view.close()
    shown = stream.getvalue().replace("\x1b[2K", "").replace("\x1b[1A", "")
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= width + len("\x1b[?25l")
    assert width < 30 or "123,456" in shown


def test_the_table_names_what_rows_hold():
    for name in ROW:
        first = name.split("/")[0]
        assert name in (metrics.__doc__ or "") or f"{first}/<name>" in (metrics.__doc__ or ""), name
