"""Rows of metrics: what is written where, and what survives a crash."""

import json
import math

import numpy as np
import pytest

from oni_jax.metrics.rows import histogram
from oni_jax.metrics.sinks import JsonlSink, build_sinks, write_json
from oni_jax.metrics.tensorboard_sink import ANSWERS_SECS, NewAnswers, answers_markdown
from oni_jax.settings.fields import UserError
from oni_jax.settings.json_text import SUM, parsed_object
from oni_jax.settings.run import RunConfig
from oni_jax.types import Answer
from tests.metrics.rows import ANSWERS, ROW
from tests.support.documented import undocumented
from tests.support.full_disk import full_disk
from tests.support.trials import trial


def lines_of(path) -> list[dict]:
    """Returns the rows of a file, which agree with their checksums."""
    return [parsed_object(line) for line in path.read_text().splitlines()]


def test_jsonl_appends(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2):
        sink = JsonlSink(path)
        sink.write(step, {"a": np.float32(0.5), "n": np.int64(3), "word": "up", "bad": float("nan")})
        sink.close()
    assert lines_of(path) == [{"step": step, "a": 0.5, "n": 3, "word": "up", "bad": None} for step in (1, 2)]


@pytest.mark.parametrize("torn", ['{"step": 2, "a', "x" * 10_000])
def test_jsonl_drops_a_torn_last_line(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n' + torn)
    sink = JsonlSink(path)
    sink.write(3, {})
    sink.close()
    assert lines_of(path) == [{"step": 1}, {"step": 3}]


def test_jsonl_of_one_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"st')
    JsonlSink(path).close()
    assert path.read_text() == ""


def test_jsonl_rows_can_be_read_at_once(tmp_path):
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write(1, {"a": 1.0})
    assert lines_of(tmp_path / "metrics.jsonl") == [{"step": 1, "a": 1.0}]
    sink.close()


def events(folder) -> list:
    """Returns the contents of the events files in a folder; each record is framed by its length and checksums."""
    from tensorboardX.proto.event_pb2 import Event  # type: ignore
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
    sinks = build_sinks(RunConfig(), tmp_path)
    sinks.write(10, ROW)
    sinks.write(20, {"a": 2.0})
    sinks.close()
    rows = lines_of(tmp_path / "metrics.jsonl")
    assert rows[0]["server_state"] == "ok" and rows[1] == {"step": 20, "a": 2.0}
    events = read_events(tmp_path / "tensorboard")
    assert events["loss/policy_loss", 10] == 0.5 and events["a", 20] == 2.0
    assert not any(name == "server_state" for name, _ in events)


def test_settings_and_commit_stand_in_tensorboard_s_tab_of_hyper_parameters(tmp_path):
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData  # type: ignore

    hparams = {"learning_rate": 2e-4, "use_rnn": False, "root_env": "Catch-v0", "commit": "1a2b3c4-dirty"}
    build_sinks(RunConfig(), tmp_path, hparams=hparams).close()
    values = [value for event in events(tmp_path / "tensorboard") for value in event.summary.value]
    assert {value.metadata.plugin_data.plugin_name for value in values} == {"hparams"}
    parts = [HParamsPluginData.FromString(value.metadata.plugin_data.content) for value in values]
    experiment, start, end = parts
    assert {info.name for info in experiment.experiment.hparam_infos} == set(hparams)
    compared = {info.name.tag for info in experiment.experiment.metric_infos}
    assert "mean_return" in compared and undocumented(compared) == []
    shown = start.session_start_info.hparams
    assert (shown["learning_rate"].number_value, shown["use_rnn"].bool_value) == (2e-4, False)
    assert shown["commit"].string_value == "1a2b3c4-dirty" and end.HasField("session_end_info")


def test_histograms_and_answers_go_where_they_can_be_held(tmp_path):
    rewards = histogram([0, 0, 1, 1, -0.5])
    sinks = build_sinks(RunConfig(), tmp_path)
    sinks.write(10, {"a": 1.0, "intrinsic_rewards": rewards, "answers": ANSWERS})
    sinks.close()
    assert lines_of(tmp_path / "metrics.jsonl") == [{"step": 10, "a": 1.0}]
    (event,) = [event for event in events(tmp_path / "tensorboard") if event.step == 10]
    values = {value.tag: value for value in event.summary.value}
    assert values["a"].simple_value == 1.0
    found = values["intrinsic_rewards"].histo
    assert (found.min, found.max, found.num, found.sum, found.sum_squares) == (-0.5, 1, 3, 1.5, 2.25)
    limits, counts = list(found.bucket_limit), list(found.bucket)
    assert len(limits) == len(counts) == 31 and limits == sorted(limits) and limits[0] == -0.5
    assert counts[0] == 0 and counts[1] == 1 and counts[-1] == 2 and sum(counts) == 3
    text = values["answers"]
    assert text.metadata.plugin_data.plugin_name == "text"
    (shown,) = text.tensor.string_val
    assert b"**helpful**" in shown and b"You find a hidden door." in shown


def test_answers_are_text_and_no_page(tmp_path):
    answer = Answer((b"\x1b[2J<b>Fido</b>", b""), "unreadable", "1. </code> **FOO**\n\n# BAR\r\u202e\ud800")
    shown = answers_markdown([answer])
    unindented = [
        line for line in shown.split("\n") if not line.startswith("    ")
    ]  # indented lines are shown as they are
    assert unindented == ["", "**unreadable**, by this answer:", "", ""]
    assert "\\x1b[2J<b>Fido</b>" in shown and "(no message)" in shown and "# BAR\\r\\u202e\\ud800" in shown
    shown.encode()


def test_answers_are_taken_once_and_now_and_then(monkeypatch):
    now = 1000.0
    monkeypatch.setattr("oni_jax.metrics.tensorboard_sink.time.monotonic", lambda: now)
    new = NewAnswers(2)
    assert new.take({}) == []
    assert new.take({"answers": ANSWERS[:3]}) == [ANSWERS[2], ANSWERS[1]]
    now += ANSWERS_SECS - 1
    assert new.take({"answers": ANSWERS[:4]}) == []
    now += 2
    assert new.take({"answers": ANSWERS[:4]}) == [ANSWERS[3]]
    now += 2 * ANSWERS_SECS
    assert new.take({"answers": ANSWERS[:4]}) == []


def test_a_resumed_run_hides_the_steps_that_come_again(tmp_path):
    from tensorboardX.proto.event_pb2 import SessionLog  # type: ignore

    build_sinks(RunConfig(), tmp_path, first_step=500).close()
    starts = [event.step for event in events(tmp_path / "tensorboard") if event.session_log.status == SessionLog.START]
    assert starts == [500]


@trial("full disk")
def test_a_full_disk_loses_rows_and_nothing_else(tmp_path, capsys):
    sinks = build_sinks(RunConfig(), tmp_path)
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
        build_sinks(RunConfig(), tmp_path)
    assert "\n" not in str(error.value)


def test_write_json_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "summary.json"
    write_json(path, {"a": np.float32(2.5), "b": math.inf, "c": None})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert parsed_object(path.read_text()) == {"a": 2.5, "b": None, "c": None}
    assert json.loads(path.read_text()).keys() == {"a", "b", "c", SUM}
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_a_full_disk_leaves_the_summary_of_before(tmp_path, capsys):
    write_json(tmp_path / "summary.json", {"a": 1})
    with full_disk(5):
        write_json(tmp_path / "summary.json", {"a": 2})
    assert capsys.readouterr().err.count("\n") == 1
    assert parsed_object((tmp_path / "summary.json").read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]
