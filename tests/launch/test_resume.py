"""`--resume FOLDER`: the settings of a run, where it lies now, and what is refused before anything is started."""

import shutil
import subprocess
import sys
from typing import Any

import pytest

from launch import flags, train
from oni_jax.runs.experiment import write_settings
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values

VALUES: dict[str, Any] = {"root_env": "Catch-v0", "encoder_custom": "mlp_encoder", "hidden_size": 16, "gamma": 0.5}
VALUES |= {"llm_reward_type": "none", "train_for_env_steps": 256}


@pytest.fixture
def folder(tmp_path):
    """Folder of a sweep's run with a checkpoint."""
    path = tmp_path / "runs" / "sweep" / "seed=1"
    (path / "checkpoints" / "256").mkdir(parents=True)
    config = with_values(Config(), {**VALUES, "train_dir": str(tmp_path / "runs"), "experiment": "sweep/seed=1"})
    write_settings(config, str(path))
    return path


def test_the_settings_are_those_of_the_run_and_flags_override_them(folder):
    before = Run(str(folder)).config
    assert flags.parse(["--resume", str(folder)]) == before
    config = flags.parse(["--resume", f"{folder}/", "--gamma", "0.75", "--llm-reward-coeff=0.1"])
    assert (config.learner.gamma, config.reward.llm_reward_coeff, config.network.hidden_size) == (0.75, 0.1, 16)


def test_a_run_that_was_moved_is_found_where_it_is(folder, tmp_path, monkeypatch):
    shutil.copytree(tmp_path / "runs", tmp_path / "elsewhere")
    run = flags.parse(["--resume", str(tmp_path / "elsewhere" / "sweep" / "seed=1")]).run
    assert (run.train_dir, run.experiment) == (str(tmp_path / "elsewhere"), "sweep/seed=1")
    shutil.move(folder, tmp_path / "other name")
    monkeypatch.chdir(tmp_path)
    run = flags.parse(["--resume=other name"]).run
    assert (run.train_dir, run.experiment) == (str(tmp_path), "other name")


def test_several_rewards_are_taken_up(folder):
    words = "--llm_reward_type online_cls,rnd --llm_reward_coeff 0.3,0.2 --root_env Catch-v0"
    config = flags.parse(words.split())
    write_settings(with_values(config, {"train_dir": str(folder.parent), "experiment": folder.name}), str(folder))
    again = flags.parse(["--resume", str(folder), "--llm_reward_coeff", "0.5,0.25"])
    assert [term.reward.llm_reward_type for term in again.terms()] == ["online_cls", "rnd"]
    assert [term.reward.llm_reward_coeff for term in again.terms()] == [0.5, 0.25]


@pytest.mark.parametrize(
    "words, told",
    [
        ("--resume {0}/nothing", "there is no such folder; python -m launch.ls lists runs"),
        ("--resume {0}/../..", "config.json can't be read (No such file or directory)"),
        ("--resume {0} --experiment x", "--experiment: --resume {0} names a run already"),
        ("--resume {0} --train_dir=x", "--train_dir: --resume {0} names a run already"),
        ("--config score_retrieval --resume {0}", "--config: --resume {0} names a run already"),
        ("--resume {0} --hidden_size 32", "hidden_size: 16 -> 32: can't change when a run is resumed"),
        ("--resume {0} --gamma 2", "--gamma 2.0: must be from 0 to 1"),
        ("--resume", "--resume needs a value"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, words, told):
    assert train.main(words.format(folder).split()) == 2
    error = capsys.readouterr().err
    assert told.format(folder) in error and error.count("\n") == 1


def test_a_name_in_place_of_a_folder_is_answered_with_the_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "train_dir" / "first").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert train.main(["--resume", "first"]) == 2
    assert "--resume first: there is no such folder; name the run's folder, train_dir/first" in capsys.readouterr().err


def test_run_without_a_checkpoint_says_how_to_begin_again(folder, capsys):
    (folder / "checkpoints" / "256").rmdir()
    assert train.main(["--resume", str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "holds no checkpoint" in error
    again = error.split("; ")[1].removesuffix(" begins again\n").split()
    assert flags.parse(again) == Run(str(folder)).config


DONE = """import sys
from launch.train import main
assert main(sys.argv[1:]) == 0
assert 'jax' not in sys.modules"""


def test_a_run_that_is_done_starts_nothing(folder):
    (folder / "summary.json").write_text('{"env_steps": 256}')
    command = [sys.executable, "-c", DONE, "--resume", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    done, _, after, further, *_ = result.stdout.splitlines()
    assert done == f"{folder}: 256 environment steps are done already; raise --train_for_env_steps"
    assert after == "next:" and f"--resume {folder} --train_for_env_steps 512" in further
