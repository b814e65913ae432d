"""launch.answers, as a user calls it: on the package's files, on the user's, and on runs."""

import csv
import pathlib

import numpy as np
import pytest

from launch import answers, train
from oni_jax.annotation.judge_answers import JUDGE_MODEL
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.prompts import load_prompt, unescape
from oni_jax.annotation.queries.choices import encode_label
from oni_jax.answers.answerer import shipped_path
from oni_jax.answers.form import read_answers
from oni_jax.envs.registry import languages
from oni_jax.runs.message_counts import MessageCounts
from oni_jax.runs.plan import with_chosen_env
from oni_jax.runs.run import Run
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config, config_to_json, with_values
from oni_jax.types import Annotation, CaptionBatch, Item

KILL, WALL, LONG = b"You kill the newt!", b"It's a wall.", b"\x1b[2J<label>FOO</label>"


def write_run(folder: pathlib.Path, labels: dict[bytes, int], model: str = "my-llm", **values) -> pathlib.Path:
    """A run that asked a server about these messages, and met some more."""
    settings = {"llm_reward_type": "online_cls", "llm_reward_coeff": 0.1, "llm_server_addr": "a:1", "llm_model": model}
    config = with_values(Config(), {**settings, **values})
    folder.mkdir()
    (folder / "config.json").write_text(config_to_json(config))
    store, digest = (
        LabelStore(str(folder / "labels.sqlite")),
        load_prompt(config.annotation, languages()["nethack"]).digest,
    )
    items: list[Item] = [(message,) for message in labels]
    rows = [(Annotation(item, encode_label(labels[item[0]], float(labels[item[0]]))), "") for item in items]
    store.put_many(model, digest, rows)
    store.close()
    met = MessageCounts()
    captions = [KILL, WALL, LONG, b""]
    met.add(CaptionBatch(captions, np.repeat(np.arange(4, dtype=np.int32), [5, 3, 2, 90])[None]))
    met.save(str(folder))
    return folder


def run(*words: str) -> int:
    return answers.main(list(words))


def test_the_package_s_files_are_listed(capsys):
    assert run() == 0
    out = capsys.readouterr().out
    assert "nethack_classification: 15,881 items" in out and "by Claude, recorded 2026-11; Apache-2.0" in out


def test_an_answer_is_shown(capsys):
    words = ("--show", "nethack_classification", "--goal", "combat", "--message", "You kill the newt!")
    assert run(*words, "--message", "Nobody knows.") == 0
    out = capsys.readouterr().out
    assert "You kill the newt!\n  combat: helpful\nNobody knows.\n  combat: no answer\n" in out


def test_answers_are_exported(tmp_path, capsys):
    path = tmp_path / "a.csv"
    assert run("--show", "crafter_suggestions", "--csv", str(path)) == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) >= 8879 and rows[0].keys() == {"caption", "answer", "count"} and "chop tree" in rows[0]["answer"]


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path, capsys):
    folder = write_run(tmp_path / "run", {b"=HYPERLINK(1)": 1, b"@sum": 0})
    assert run("--add", str(folder), "--out", str(tmp_path / "a.jsonl")) == 0
    assert run("--show", str(tmp_path / "a.jsonl"), "--csv", str(tmp_path / "a.csv")) == 0
    cells = [row["message"] for row in csv.DictReader((tmp_path / "a.csv").read_text().splitlines())]
    assert cells == ["\\x3dHYPERLINK(1)", "\\x40sum"] and [*map(unescape, cells)] == [b"=HYPERLINK(1)", b"@sum"]


def test_answers_of_a_run_become_a_file(tmp_path, capsys):
    path, folder = str(tmp_path / "mine.jsonl.gz"), write_run(tmp_path / "run", {KILL: 1, LONG: 0})
    assert run("--add", str(folder), "--out", path) == 0
    assert "2 answers added" in capsys.readouterr().out
    file = read_answers(path, languages())
    assert file.header[:4] == ("nethack", "classification", ("defaultgoal",), "my-llm")
    assert {item: (row.answers, row.count) for item, row in file.rows.items()} == {
        (KILL,): ((b"1 1.0",), 5),
        (LONG,): ((b"0 0.0",), 2),
    }
    other = write_run(tmp_path / "other", {KILL: 1, WALL: 0}, goal_key="gold")
    assert run("--add", str(other), "--out", path) == 0
    assert "2 answers added" in capsys.readouterr().out
    file = read_answers(path, languages())
    assert file.header.goals == ("defaultgoal", "gold")
    assert {item[0]: row.answers for item, row in file.rows.items()} == {
        KILL: (b"1 1.0", b"1 1.0"),
        LONG: (b"0 0.0", None),
        WALL: (None, b"0 0.0"),
    }
    assert run("--verify", path) == 0 and "3 items" in capsys.readouterr().out
    assert run("--show", path) == 0 and "\\x1b[2J\\x3clabel>FOO" in capsys.readouterr().out


def test_answers_of_a_run_of_several_goals_become_those_of_each(tmp_path, capsys):
    folder = write_run(tmp_path / "run", {KILL: 1, WALL: 0}, goal_key="combat")
    values = {"goal_key": "combat,gold", "goal_conditioned": True, "llm_answer": "goals"}
    config = with_chosen_env(with_values(Run(str(folder)).config, values))
    (folder / "config.json").write_text(config_to_json(config))
    store = LabelStore(str(folder / "labels.sqlite"))
    gold = load_prompt(AnnotationConfig(goal_key="gold"), languages()["nethack"]).digest
    store.put_many("my-llm", gold, [(Annotation((KILL,), encode_label(0, 0.0)), "")])
    store.close()
    path = str(tmp_path / "mine.jsonl.gz")
    assert run("--add", str(folder), "--out", path) == 0
    file = read_answers(path, languages())
    assert file.header.goals == ("combat", "gold")
    assert {item[0]: row.answers for item, row in file.rows.items()} == {
        KILL: (b"1 1.0", b"0 0.0"),
        WALL: (b"0 0.0", None),
    }


def test_captions_without_an_answer_are_listed(tmp_path, capsys):
    path, folder = tmp_path / "missing.csv", write_run(tmp_path / "run", {KILL: 1})
    assert run("--missing", str(folder), "--csv", str(path)) == 0
    assert "2 of 4 captions have no answer, 5.00% of the steps" in capsys.readouterr().out
    assert path.read_text().splitlines() == ["message,count", "It's a wall.,3", "\\x1b[2J\\x3clabel>FOO\\x3c/label>,2"]


def test_smaller_samples_are_parts_of_larger_ones(tmp_path, capsys):
    files = []
    for number in (10, 100):
        path = str(tmp_path / f"{number}.jsonl.gz")
        assert run("--show", "crafter_suggestions", "--sample", str(number), "--out", path) == 0
        files.append(read_answers(path, languages()))
    few, many = ({*file.rows} for file in files)
    assert (len(few), len(many)) == (10, 100) and few < many
    whole = read_answers(str(shipped_path("crafter", "suggestions")), languages())
    assert all(whole.rows[item] == row for item, row in files[1].rows.items()) and few != {*list(whole.rows)[:10]}


@pytest.mark.slow
def test_captions_that_the_model_of_a_run_is_least_certain_of_come_first(tmp_path, capsys):
    words = "--config ellm_llm --device cpu --batch_size 512 --rollout 16 --recurrence 16 --crafter_map_stock 16"
    words += f" --train_for_env_steps 8192 --hidden_size 16 --experiment run --train_dir {tmp_path}"
    path = f"{tmp_path}/few.jsonl"
    assert run("--show", "crafter_suggestions", "--sample", "300", "--out", path) == 0
    assert train.main([*words.split(), "--answers", path]) == 0
    tables = []
    for name, more in (("all", ()), ("some", ("--uncertain", "20"))):
        path = tmp_path / f"{name}.csv"
        assert run("--missing", f"{tmp_path}/run", *more, "--csv", str(path)) == 0
        tables.append([(row["message"], int(row["count"])) for row in csv.DictReader(path.read_text().splitlines())])
    everything, some = tables
    assert len(some) == 20 and {*some} <= {*everything} and some != everything[:20]
    loaded = Run(f"{tmp_path}/run").rewards()
    doubts = loaded.rewards.rewards[0].learning.doubts(loaded.state, [text.encode() for text, _ in everything])
    weights = {row: doubt * row[1] for row, doubt in zip(everything, doubts.tolist())}  # type: ignore
    assert [weights[row] for row in some] == sorted(weights.values(), reverse=True)[:20]


@pytest.mark.parametrize(
    "words, told",
    [
        (("--show", "nethack"), "--show nethack: there is no such file; did you mean nethack_"),
        (("--show", "nethack_classification", "--goal", "fun"), "--goal fun"),
        (("--verify", "missing.jsonl"), "--verify missing.jsonl: there is no such file; name a file, or one of"),
        (("--add", "run"), "these need it"),
        (("--add", "nowhere", "--out", "a.jsonl"), "nowhere"),
        (("--add", "run", "--out", "a.txt"), "must end in .jsonl.gz or .jsonl"),
        (("--add", "judged", "--out", "a.jsonl"), "rule-based judge"),
        (("--add", "free", "--out", "a.jsonl"), "which no goal key names"),
        (("--add", "run", "--out", "other.jsonl"), "name another file"),
        (("--show", "a", "--verify", "b"), "one at a time"),
        (("--message", "x"), "are of --show"),
        (("--csv", "x.csv"), "of what?"),
        (("--missing", "nowhere"), "nowhere"),
        (("--missing", "run", "--uncertain", "3"), "holds no checkpoint"),
        (("--uncertain", "3"), "of what? add --missing"),
        (("--add", "recorded", "--out", "a.jsonl"), "asked nobody"),
        (("--add", "reworded", "--out", "a.jsonl"), "which no goal key names"),
        (("--add", "run", "--out", "a.jsonl", "--licence", "two\nlines"), "`licence` is no short text"),
        (("--show", "other.jsonl", "--csv", "other.jsonl"), "whose answers would be lost"),
        (("--sample", "3", "--out", "a.jsonl"), "of what? add --show"),
        (("--show", "crafter_suggestions", "--sample", "3"), "these need it"),
        (("--show", "babyai_goals", "--sample", "3000", "--out", "a.jsonl"), "there are 120 items"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", {KILL: 1})
    write_run(tmp_path / "judged", {KILL: 1}, model=JUDGE_MODEL, llm_server_addr="", answers="judge")
    write_run(tmp_path / "free", {KILL: 1}, goal="Fun.")
    write_run(tmp_path / "recorded", {KILL: 1}, model="Claude", llm_server_addr="", answers="recorded")
    write_run(tmp_path / "reworded", {KILL: 1}, prompt_version="reworded")
    write_run(tmp_path / "foreign", {KILL: 1}, model="another")
    assert run("--add", "foreign", "--out", "other.jsonl") == 0
    before = (tmp_path / "other.jsonl").read_bytes()
    capsys.readouterr()
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert told in captured.err and len(captured.err.splitlines()) == 1 and captured.out == ""
    assert (tmp_path / "other.jsonl").read_bytes() == before
