"""A trained run as a file for others: the same policy, reward and settings, and no code that runs unasked."""

import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import oni_jax
from launch import evaluate, export
from oni_jax.runs.run import Run
from oni_jax.runs.shared_file import Shared, pack, read_shared
from oni_jax.runs.sharing import share, unpacked
from oni_jax.settings.fields import UserError
from tests.evaluation.runs import CATCH
from tests.support.processes import COMPILES_SOON, ROOT

import_ = importlib.import_module("launch.import")  # a word of Python's
SECRET = "sesame"
OF_ME = {"wandb_entity": "me", "llm_extra_headers": f'{{"X-Key": "{SECRET}"}}'}
SETTINGS = {
    **CATCH,
    "llm_reward_type": "online_cls_reward_model",
    "llm_reward_coeff": 0.1,
    "answers": "judge",
    "num_workers": 1,
    "num_envs_per_worker": 8,
    "batch_size": 256,
    "actor_pool": "serial",
    "train_for_env_steps": 2048,
}
PLUGIN = """
import pathlib
from oni_jax.rewards.base import LookUp
from oni_jax.rewards.combine import pay
from oni_jax.rewards.registry import RewardType, register_reward

pathlib.Path({trace!r}).touch()

class Taught(LookUp):
    def look_up(self, caption):
        return 0.5

register_reward("taught", RewardType(lambda context: pay(context, Taught())))
"""
STRANGER = """
import importlib, os, sys
import oni_jax
from launch import evaluate
for name in ("brings", "names", "hides"):
    assert evaluate.main([f"{name}.zip", "--episodes=1"]) == 2
    assert importlib.import_module("launch.import").main([f"{name}.zip"]) == 2
    try:
        oni_jax.load_run(f"{name}.zip")
        raise SystemExit("it is opened")
    except oni_jax.UserError as error:
        assert "--trust_code" in str(error)
assert not os.path.exists(sys.argv[1]) and not os.path.exists("train_dir/taught/config.json")
print("scored", *oni_jax.load_run("brings.zip", trust_code=True).score(["x"]))
assert os.path.exists(sys.argv[1])
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> oni_jax.Run:
    folder = tmp_path_factory.mktemp("runs")
    return oni_jax.train(**SETTINGS, train_dir=str(folder), experiment="caught", **OF_ME)


@pytest.fixture(scope="module")
def file(run, tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("files") / "caught.zip"
    path.write_bytes(share(Run(run.folder), licence="CC0-1.0"))
    return path


def changed(shared: Shared, section: str, **values) -> bytes:
    config = json.loads(shared.texts["config.json"])
    config[section] |= values
    return pack(shared._replace(texts={**shared.texts, "config.json": json.dumps(config).encode()}))


def returns(path: pathlib.Path) -> list:
    (played,) = json.loads(path.read_text())["evaluations"]
    return [(x["index"], x["return"], x["intrinsic_return/online_cls_reward_model"]) for x in played["episodes"]]


def test_a_file_plays_and_scores_as_its_run(run, file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--episodes=8", "--num_workers=1", "--json=found.json"]
    train_dir, experiment = os.path.split(run.folder)
    assert evaluate.main([f"--train_dir={train_dir}", f"--experiment={experiment}", *words]) == 0
    expected = returns(tmp_path / "found.json")
    assert evaluate.main([str(file), *words]) == 0
    assert returns(tmp_path / "found.json") == expected and len(expected) == 8
    assert "caught at 2,048 steps" in capsys.readouterr().out
    loaded = oni_jax.load_run(str(file))
    texts = ["The paddle is below the ball.", "The ball is to the left."]
    assert (loaded.score(texts) == run.score(texts)).all()
    assert loaded.config.network == run.config.network


def test_a_file_becomes_a_run_that_trains_further(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert import_.main([str(file), "--experiment=taken"]) == 0
    assert "--resume ./train_dir/taken" in capsys.readouterr().out
    taken = oni_jax.load_run("train_dir/taken")
    there = {path: x.tobytes() for path, x in read_shared(str(file)).arrays.items()}
    (tmp_path / "again.zip").write_bytes(share(Run("train_dir/taken")))
    assert {path: x.tobytes() for path, x in read_shared("again.zip").arrays.items()} == there
    assert import_.main([str(file), "--experiment=taken"]) == 2
    assert "is there already" in capsys.readouterr().err
    oni_jax.train(taken.config, train_for_env_steps=4096)
    assert "resumed at 2,048" in capsys.readouterr().out and Run("train_dir/taken").steps()[-1] == 4096


def test_equal_runs_give_equal_bytes(run, file):
    assert share(Run(run.folder), licence="CC0-1.0") == file.read_bytes()


def test_a_card_says_what_it_is(run, file):
    texts = read_shared(str(file)).texts
    card = texts["card.md"].decode()
    for words in ("# caught", "Catch-v0", "2,048", "online_cls_reward_model, weight 0.1", "CC0-1.0", "judge"):
        assert words in card
    assert "launch.evaluate --compare random" in card  # it has no evaluation yet
    assert json.loads(texts["scores.json"])["last_row"]["env_steps"] == 2048
    (answers,) = json.loads(texts["answers.json"])
    assert answers["asked"] == "judge" and answers["kind"] == "classification"


def test_an_evaluation_stands_on_the_card_beside_random_play(run, monkeypatch):
    path = os.path.join(run.folder, "evaluation.json")
    train_dir, experiment = os.path.split(run.folder)
    words = [f"--train_dir={train_dir}", f"--experiment={experiment}", "--compare=random", "--episodes=8"]
    try:
        assert evaluate.main([*words, "--num_workers=1", f"--json={path}"]) == 0
        data = share(Run(run.folder))
        pathlib.Path(run.folder, "evaluation_old.json").write_text('{"evaluations": 3}')
        assert share(Run(run.folder)) == data
    finally:
        os.remove(path)
    pathlib.Path(run.folder, "shared.zip").write_bytes(data)
    texts = read_shared(os.path.join(run.folder, "shared.zip")).texts
    card = texts["card.md"].decode()
    assert "| random policy | Catch-v0 | 8 |" in card and "| caught at 2,048 steps, sample | Catch-v0 | 8 |" in card
    (found,) = json.loads(texts["scores.json"])["evaluations"].values()
    assert "episodes" not in found["evaluations"][0] and found["other"]["measures"]["return"]


def test_shared_file_holds_nothing_of_the_machine_or_its_user(run, file):
    data = file.read_bytes()
    for words in (os.path.dirname(run.folder), SECRET, '"me"', os.getcwd()):
        assert words.encode() not in data
    shared = read_shared(str(file))
    secret = {
        "llm_api_key": "file:/etc/passwd",
        "label_store": "/etc/passwd",
        "llm_server_addr": "evil:1",
        "answers": "",
    }
    file.with_name("changed.zip").write_bytes(changed(shared, "annotation", **secret))
    asked = oni_jax.load_run(str(file.with_name("changed.zip"))).config.annotation
    assert (asked.llm_api_key, asked.label_store, asked.llm_server_addr) == ("", "", "localhost")


def test_code_runs_only_when_it_is_asked_for(tmp_path, monkeypatch):
    trace, elsewhere = tmp_path / "trace", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "teach_taught.py").write_text(PLUGIN.format(trace=str(trace)))
    monkeypatch.syspath_prepend(str(tmp_path))
    values = {**SETTINGS, "plugin": "teach_taught", "llm_reward_type": "taught", "train_for_env_steps": 256}
    run = oni_jax.train(**{**values, "answers": ""}, train_dir=str(tmp_path), experiment="taught")
    assert export.main([run.folder, f"--out={elsewhere / 'brings.zip'}"]) == 0
    shared = read_shared(str(elsewhere / "brings.zip"))
    assert shared.code() == ["trained_with/plugins/teach_taught.py"]
    without = {name: text for name, text in shared.texts.items() if name not in shared.code()}
    (elsewhere / "names.zip").write_bytes(pack(shared._replace(texts=without)))
    (elsewhere / "hides.zip").write_bytes(changed(shared, "env", plugin=""))
    for path in (trace, tmp_path / "teach_taught.py"):
        path.unlink()
    environment = {**os.environ, **COMPILES_SOON, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", STRANGER, str(trace)]
    result = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 6 and all("--trust_code" in line and "teach_taught" in line for line in lines)
    assert result.stdout.splitlines()[-1] == "scored 0.5"


@pytest.mark.parametrize(
    "section, values, told",
    [
        ("network", {"hidden_size": 32}, "does not fit"),
        ("network", {"hidden_size": -1}, "--hidden_size -1"),
        ("env", {"root_env": "Nowhere-v0"}, "Nowhere-v0"),
        ("env", {"max_episode_steps": "9"}, "max_episode_steps"),
    ],
)
def test_settings_that_do_not_fit_are_a_line(file, tmp_path, capsys, section, values, told):
    (tmp_path / "x.zip").write_bytes(changed(read_shared(str(file)), section, **values))
    assert evaluate.main([str(tmp_path / "x.zip"), "--episodes=1", "--num_workers=1"]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda x: np.full_like(x, np.nan), "NaN or inf"),
        (lambda x: np.full_like(x, np.inf), "NaN or inf"),
        (lambda x: x[..., None], "logits/bias"),
        (lambda x: x.astype(complex), "complex"),
        (lambda x: np.zeros(x.shape, "S9"), "type |S9"),
    ],
)
def test_parameters_that_do_not_fit_are_a_line_and_leave_nothing(file, tmp_path, monkeypatch, capsys, change, told):
    monkeypatch.chdir(tmp_path)
    shared = read_shared(str(file))
    name = "policy/params/logits/bias"
    pathlib.Path("x.zip").write_bytes(
        pack(shared._replace(arrays={**shared.arrays, name: change(shared.arrays[name])}))
    )
    with pytest.raises(UserError) as error, unpacked("x.zip"):
        pass
    assert told in str(error.value) and str(error.value).startswith("x.zip: ")
    assert import_.main(["x.zip"]) == 2 and not Run("train_dir/caught").steps()
    assert capsys.readouterr().err.count("\n") == 1 and os.listdir("train_dir/caught") in ([], ["lock"])
    assert import_.main([str(file)]) == 0


@pytest.mark.parametrize("left_out", ["policy/params/logits/bias", "reward_state/params/params/logits/bias"])
def test_missing_arrays_are_named(file, tmp_path, left_out):
    shared = read_shared(str(file))
    arrays = {name: x for name, x in shared.arrays.items() if name != left_out}
    assert len(arrays) == len(shared.arrays) - 1
    (tmp_path / "x.zip").write_bytes(pack(shared._replace(arrays=arrays)))
    with pytest.raises(UserError, match="logits/bias is absent"), unpacked(str(tmp_path / "x.zip")):
        pass


def test_policy_is_shared_alone_where_its_reward_can_not_be_read(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run.folder, "train_dir/run")
    shutil.rmtree(f"train_dir/run/checkpoints/{SETTINGS['train_for_env_steps']}/reward")
    assert export.main(["run"]) == 0
    assert "without its rewards" in capsys.readouterr().out
    assert evaluate.main(["run.zip", "--episodes=1", "--num_workers=1"]) == 0
    assert "online_cls_reward_model is not reported" in capsys.readouterr().out
    assert import_.main(["run.zip", "--experiment=taken"]) == 0
    assert "not trained further" in capsys.readouterr().out


@pytest.mark.parametrize(
    "main, words, told",
    [
        (export.main, [], "name the folder of a run"),
        (export.main, ["nowhere"], "config.json can't be read"),
        (import_.main, [], "name a file"),
        (import_.main, ["nowhere.zip"], "there is no such file"),
        (evaluate.main, ["nowhere.zip"], "there is no such file"),
        (evaluate.main, ["x.zip", "--experiment=y"], "name one of them"),
        (evaluate.main, ["--trust_code"], "--trust_code"),
    ],
)
def test_misuse_is_a_line(tmp_path, monkeypatch, capsys, main, words, told):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1 and not os.listdir(tmp_path)


def test_its_folder_is_removed(file):
    with unpacked(str(file)) as run:
        folder = run.folder
        assert os.path.isdir(folder)
    assert not os.path.exists(folder)
