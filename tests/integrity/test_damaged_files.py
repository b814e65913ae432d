"""Files of a run that are damaged, or something else: a line, no traceback, nothing that is waited for or followed."""

import json
import os
import pathlib
from collections.abc import Callable

import numpy as np
import pytest

from launch import ls
from oni_jax.host.files import check_regular, open_to_append, read_regular, write_atomically
from oni_jax.host.run_files import SETTINGS, last_row, summary
from oni_jax.runs import kept
from oni_jax.runs.kept import as_trained
from oni_jax.runs.message_counts import FILE_NAME, MessageCounts
from oni_jax.runs.run import Run
from oni_jax.runs.sharing import _scores
from oni_jax.settings.config import Config, config_to_json
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.json_text import parsed, parsed_object, sealed
from oni_jax.show.report.config import ReportConfig
from oni_jax.show.report.report import _recordings
from tests.support.trials import trial

Spoil = Callable[[pathlib.Path], object]


def instead(make: Spoil) -> Spoil:
    """Puts something in the place of a file."""
    return lambda path: (path.unlink(missing_ok=True), make(path))


NO_FILES: dict[str, Spoil] = {
    "pipe": instead(os.mkfifo),
    "link": instead(lambda path: path.symlink_to("/etc/os-release")),
    "device": instead(lambda path: path.symlink_to("/dev/zero")),
    "dangling link": instead(lambda path: path.symlink_to("/nowhere")),
    "folder": instead(pathlib.Path.mkdir),
}
TEXTS = {
    "empty": b"",
    "text": b"a text\n" * 3,
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "huge number": b'{"env_steps": 1' + b"0" * 5000 + b"}\n",
    "number that no float holds": b'{"env_steps": 1' + b"0" * 400 + b', "secs": 1}\n',
    "name twice": b'{"env_steps": 1, "secs": 1, "env_steps": 2}\n',
    "infinite": b'{"env_steps": 1e999, "secs": 1}\n',
    "NaN": b'{"env_steps": NaN, "secs": NaN}\n',
    "other types": b'{"env_steps": [], "secs": {}, "state": 3, "mean_return": "x"}\n',
    "a list": b"[1]\n",
    "bytes": bytes(range(256)),
}
DAMAGES: dict[str, Spoil] = {name: lambda path, text=text: path.write_bytes(text) for name, text in TEXTS.items()}


@pytest.fixture
def run(tmp_path) -> pathlib.Path:
    folder = tmp_path / "run"
    (folder / "checkpoints" / "100").mkdir(parents=True)
    settings = config_to_json(with_values(Config(), {"llm_reward_type": "none"}), with_sum=True)
    (folder / SETTINGS).write_text(settings)
    (folder / "metrics.jsonl").write_text('{"env_steps": 100, "secs": 1.0, "mean_return": 0.5, "episodes": 3}\n')
    (folder / "summary.json").write_text('{"env_steps": 100, "train_secs": 1.0, "state": "stopped"}')
    return folder


def listed(run: pathlib.Path, capsys) -> str:
    assert ls.main([str(run.parent)]) == 0
    return "".join(capsys.readouterr())


@trial("links and pipes")
@pytest.mark.parametrize("name", [SETTINGS, "metrics.jsonl", "summary.json", "lock", "labels.sqlite"])
@pytest.mark.parametrize("kind", NO_FILES)
def test_whatever_takes_a_file_s_place_is_listed_at_once(run, capsys, name, kind):
    NO_FILES[kind](run / name)
    out = listed(run, capsys)
    assert "PRETTY" not in out and len(out.splitlines()) == 2
    assert ("skipped" in out) == (name == SETTINGS)


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_rows_and_summaries_are_listed_without_what_they_say(run, capsys, name, damage):
    DAMAGES[damage](run / name)
    out = listed(run, capsys).splitlines()
    assert len(out) == 2 and out[1].startswith("run ") and "inf" not in out[1] and "nan" not in out[1]
    values = {**summary(str(run)), **last_row(str(run))}
    assert all(type(x) in (int, float, str) for x in values.values())
    assert name != "summary.json" or damage == "other types" or " damaged " in out[1]


@trial("rows damaged")
@pytest.mark.parametrize("damage", [name for name in TEXTS if name != "empty"])
def test_run_that_died_is_no_imported_one_when_its_rows_are_damaged(run, capsys, damage):
    (run / "summary.json").unlink()
    DAMAGES[damage](run / "metrics.jsonl")
    assert " died " in listed(run, capsys)


@trial("settings damaged")
@pytest.mark.parametrize("damage", [*TEXTS, *NO_FILES])
def test_settings_that_are_none_end_a_program_with_a_line(run, damage):
    (DAMAGES | NO_FILES)[damage](run / SETTINGS)
    with pytest.raises(UserError, match="config.json") as error:
        print(Run(str(run)).config)
    assert "\n" not in str(error.value)


@trial("settings damaged")
def test_changed_settings_are_said_to_be_changed(run, capsys):
    assert Run(str(run)).config.run.seed == Config().run.seed and capsys.readouterr().out == ""
    text = (run / SETTINGS).read_text()
    (run / SETTINGS).write_text(text.replace('"llm_reward_coeff": 0', '"llm_reward_coeff": 7'))
    assert Run(str(run)).config.reward.llm_reward_coeff != Config().reward.llm_reward_coeff
    assert capsys.readouterr().out.count("config.json has another checksum") == 1


@pytest.mark.parametrize("damage", [*TEXTS, *NO_FILES])
def test_counts_of_captions_are_read_or_refused_in_a_line(run, damage):
    MessageCounts().save(str(run))
    MessageCounts().restore(str(run))
    (DAMAGES | NO_FILES)[damage](run / FILE_NAME)
    with pytest.raises(UserError, match=FILE_NAME):
        MessageCounts().restore(str(run))


@trial("kept files damaged")
@pytest.mark.parametrize("damage", [*TEXTS, "pipe", "folder", "dangling link"])
def test_damaged_list_of_kept_files_is_said_once(run, capsys, damage):
    index = run / kept.FOLDER / kept.INDEX
    index.parent.mkdir()
    index.write_text(json.dumps(sealed(kept.Kept(str(run))._asdict())))
    config = Run(str(run)).config
    assert as_trained(str(run), config) == config and capsys.readouterr().out == ""
    (DAMAGES | NO_FILES)[damage](index)
    assert as_trained(str(run), config) == as_trained(str(run), config) == config
    assert capsys.readouterr().out.count("files.json can't be read") == 1


@trial("kept files damaged")
def test_damaged_copy_of_a_prompt_is_not_read(run, capsys):
    copies, text = run / kept.FOLDER / kept.PROMPTS, b'{"kind": "classification"}'
    digest = kept._digest(text)
    copies.mkdir(parents=True)
    copy = copies / f"{digest[:8]}_mine.json"
    copy.write_bytes(text)
    index = kept.Kept(str(run), {}, {"mine.json": digest})
    (copies.parent / kept.INDEX).write_text(json.dumps(sealed(index._asdict())))
    config = with_values(Run(str(run)).config, {"prompt_file": "mine.json"})
    assert as_trained(str(run), config).annotation.prompt_file == str(copy)
    copy.write_bytes(text.replace(b"class", b"clasx"))
    assert as_trained(str(run), config).annotation.prompt_file == "mine.json"
    assert f"{copy}: is damaged" in capsys.readouterr().out


@trial("report's files")
@pytest.mark.parametrize("kind", [*NO_FILES, "text"])
def test_recording_that_is_none_is_left_out_of_a_report(run, kind):
    folder = run / "recordings"
    folder.mkdir()
    for name, content in (("best1-a.gif", b"GIF89a..."), ("best2-a.mp4", b"\0\0\0\x20ftypisom")):
        (folder / name).write_bytes(content)
    config = ReportConfig(train_dir=str(run.parent), experiment="run", num_recordings=2)
    assert all(found.content.startswith("data:") for found in _recordings(config))
    for path in folder.iterdir():
        (NO_FILES | {"text": lambda path: path.write_text("secret")})[kind](path)
    found = _recordings(config)
    assert len(found) == 2 and all("is left out" in x.problem and not x.content for x in found)


@trial("report's files")
@pytest.mark.parametrize("kind", [*NO_FILES, *TEXTS, "other checksum"])
def test_evaluation_that_is_none_is_not_exported(run, capsys, kind):
    content = json.dumps({"evaluations": [{"player": "a", "episodes": []}]})
    (run / "evaluation.json").write_text(content)
    assert _scores(str(run))["evaluations"] == {"evaluation.json": {"evaluations": [{"player": "a"}]}}
    other = {"other checksum": lambda path: path.write_text(content.replace("]}]}", ']}], "checksum": 5}'))}
    (DAMAGES | NO_FILES | other)[kind](run / "evaluation.json")
    assert capsys.readouterr().out == ""
    assert _scores(str(run))["evaluations"] == {}
    assert capsys.readouterr().out.count("evaluation.json: is left out") == 1


@trial("report's files")
def test_linked_folder_of_recordings_is_not_followed(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "best1-a.gif").write_bytes(b"GIF89a")
    (run / "recordings").symlink_to(tmp_path / "elsewhere")
    assert _recordings(ReportConfig(train_dir=str(run.parent), experiment="run")) == []


@pytest.mark.parametrize("kind", NO_FILES)
def test_file_is_read_written_and_appended_to_where_it_is_a_regular_one_alone(tmp_path, kind):
    path, victim = tmp_path / "file", tmp_path / "victim"
    victim.write_text("dear to its owner")
    NO_FILES[kind](path)
    for use in (lambda path: read_regular(path, 9), open_to_append):
        with pytest.raises(OSError):
            use(path)
    with pytest.raises(OSError):
        check_regular(str(tmp_path)) if kind != "folder" else read_regular(path, 9)
    partial = tmp_path / "other.partial"
    partial.symlink_to(victim)
    with pytest.raises(OSError):
        write_atomically(tmp_path / "other", b"content")
    assert victim.read_text() == "dear to its owner"


def test_sealed_object_that_is_changed_is_refused():
    text = json.dumps(sealed({"name": "value", "number": 1.5, "list": [1, 2]})).encode()
    assert parsed_object(text) == {"name": "value", "number": 1.5, "list": [1, 2]}
    rng, num_refused = np.random.default_rng(0), 0
    for place in range(len(text)):
        changed = bytearray(text)
        changed[place] ^= int(rng.integers(1, 256))
        try:
            found = parsed_object(bytes(changed))
        except ValueError:
            num_refused += 1
        else:  # the name of the checksum alone, or what is read alike
            assert {name: found.get(name) for name in ("name", "number", "list")} == parsed_object(text)
    assert num_refused > len(text) * 0.7


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "1e999",
        "-Infinity",
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" + "0" * 5000,
        "-1" + "0" * 400,
        '{"a":1,"a":1}',
    ],
)
def test_json_that_is_not_plain_raises_one_kind_of_error(text):
    with pytest.raises(ValueError):
        parsed(text)
