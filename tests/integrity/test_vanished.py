"""A folder that disappears while a program writes it: said at once, and saved elsewhere what would be lost."""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from oni_jax.annotation.judge import EmbeddedJudge, JudgeOptions
from oni_jax.envs import babyai
from oni_jax.host.held_folders import HeldFolder, held_folder
from oni_jax.host.run_files import saved_steps
from oni_jax.host.runtime import FolderGoneError, StopRequest
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError
from oni_jax.types import UNKNOWN
from tests.offline.pairs import random_dataset
from tests.support.asking import start_judge
from tests.support.launched import Launched, rows
from tests.support.processes import SMALL, summary
from tests.support.trials import trial

CATCH = (
    "--root_env=Catch-v0 --encoder_custom=mlp_encoder --hidden_size=32 --log_every_sec=0.1 --save_every_steps=4096 "
    "--llm_reward_type=none"
).split()
GOALS = "--root_env=BabyAI-Text-GoToLocal-RedBall-S20 --max_episode_steps=20 --num_rounds=1000".split()


def remove(folder: pathlib.Path) -> None:
    deadline = time.monotonic() + 20
    while folder.exists():  # a write meanwhile makes it fail
        shutil.rmtree(folder, ignore_errors=True)
        assert time.monotonic() < deadline


def rename(folder: pathlib.Path) -> None:
    folder.rename(f"{folder}2")


LOSSES: dict[str, tuple[Callable[[pathlib.Path], None], str, str]] = {  # loss, its words, and where the state is saved
    "removed": (remove, "was removed", ".saved"),
    "renamed": (rename, "was renamed to", "2"),
}
losses = pytest.mark.parametrize("loss", LOSSES)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@trial("program's folder lost")
@losses
def test_program_is_stopped_at_once_by_an_error_that_says_what_happened(tmp_path, capsys, loss):
    lose, words, _ = LOSSES[loss]
    stop = StopRequest()
    with pytest.raises(FolderGoneError, match=words), held_folder(str(tmp_path / "run"), "experiment", stop):
        assert not stop
        lose(tmp_path / "run")
        wait_until(lambda: stop.reason)
        assert words in capsys.readouterr().out
        bool(stop)


@losses
def test_errors_that_it_leads_to_give_way_to_what_happened(tmp_path, loss):
    lose, words, _ = LOSSES[loss]
    for error in (UserError("can't be written"), OSError(2, "No such file")):
        folder = tmp_path / type(error).__name__
        with pytest.raises(FolderGoneError, match=words), held_folder(str(folder), "experiment"):
            lose(folder)
            raise error


@losses
def test_answers_are_saved_elsewhere(tmp_path, loss):
    lose, words, ending = LOSSES[loss]
    with pytest.raises(FolderGoneError, match=f"{words}.*: .*run{ending} holds"):
        with held_folder(str(tmp_path / "run"), "experiment") as held:
            with held.saving(lambda elsewhere: pathlib.Path(elsewhere, "a").touch() or None):
                lose(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == [f"run{ending}"]
    assert (tmp_path / f"run{ending}" / "a").exists()


def test_saved_folder_takes_the_name_of_no_other(tmp_path):
    for name in ("run", "run.saved", "run.saved~"):
        (tmp_path / name).mkdir()
    held = HeldFolder(str(tmp_path / "run"))
    remove(tmp_path / "run")
    assert held.save_in() == held.save_in() == str(tmp_path / "run.saved~~")


@trial("program's folder lost")
@losses
def test_labels_of_a_lost_data_set_are_saved(tmp_path, loss):
    lose, words, ending = LOSSES[loss]
    data = random_dataset(tmp_path / "data", 200)
    server = start_judge(JudgeOptions(latency_secs=0.05))
    flags = f"--directory={data} --llm_server_addr={server.address} --custom_annotator_string=mine".split()
    try:
        program = Launched("launch.annotate_pairs", *flags)
        path = data / "preference" / "mine.npy"
        program.wait_for(lambda: path.exists() and (np.load(path) != UNKNOWN).sum() > 5, 60)
        lose(data)
        output = program.finish(30)
    finally:
        server.close()
    assert program.process.returncode == 1 and "Traceback" not in output, output
    assert output.splitlines()[-1].startswith("error: ") and words in output.splitlines()[-1]
    assert "resumes from here" not in output  # it would be false
    saved = np.load(f"{data}{ending}/preference/mine.npy")
    assert (saved != UNKNOWN).sum() > 5 and not data.exists()


@trial("run's folder lost")
@pytest.mark.parametrize("loss", ["removed", pytest.param("renamed", marks=pytest.mark.slow)])
def test_run_saves_where_it_can_and_says_so(tmp_path, loss):
    lose, words, ending = LOSSES[loss]
    folder, kept = tmp_path / "run", tmp_path / f"run{ending}"
    run = Launched("launch.train", *CATCH, f"--train_dir={tmp_path}", "--experiment=run")
    run.wait_for(lambda: rows(folder) and saved_steps(str(folder)), 120)
    lose(folder)
    output = run.finish(30)
    assert run.process.returncode == 1 and "Traceback" not in output, output
    last = output.splitlines()[-1]
    assert last.startswith("error: ") and words in last and f"--resume {kept}" in last
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]  # nothing is made again
    assert summary(kept)["state"] == "stopped" and run.leftovers() == []
    assert saved_steps(str(kept))[-1] == summary(kept)["env_steps"] > 0
    assert Run(str(kept)).config.env.root_env == "Catch-v0"


@trial("run's folder lost")
@pytest.mark.slow
@losses
def test_run_that_was_lost_goes_on_elsewhere(tmp_path, loss):
    """With games in processes, and an LLM's labels; at any moment of a save."""
    lose, _, ending = LOSSES[loss]
    words = [*SMALL, "--llm_reward_type=online_cls", "--llm_reward_coeff=0.4", "--save_every_steps=512"]
    for moment in range(3):
        folder, kept = tmp_path / f"run{moment}", tmp_path / f"run{moment}{ending}"
        run = Launched("launch.train", *words, f"--train_dir={tmp_path}", f"--experiment=run{moment}")
        run.wait_for(lambda folder=folder: len(saved_steps(str(folder))) > 1, 300)
        time.sleep(0.07 * moment)
        lose(folder)
        output = run.finish(60)
        assert run.process.returncode == 1 and "Traceback" not in output, output
        assert not folder.exists() and run.leftovers() == [], [str(path) for path in folder.rglob("*")]
        steps = summary(kept)["env_steps"]
        again = Launched("launch.train", "--resume", str(kept), f"--train_for_env_steps={steps + 512}")
        output = again.finish(300)
        assert again.process.returncode == 0 and f"resumed at {steps:,} environment steps" in output, output


@trial("files removed")
@pytest.mark.slow
def test_settings_and_checkpoints_that_are_removed_are_written_again(tmp_path):
    folder = tmp_path / "run"
    run = Launched("launch.train", *CATCH, f"--train_dir={tmp_path}", "--experiment=run")
    run.wait_for(lambda: rows(folder) and saved_steps(str(folder)), 120)
    for path in folder.iterdir():
        # A folder goes at once: where it is emptied bit by bit, the run makes it again and again.
        remove(path.rename(tmp_path / f"old {path.name}")) if path.is_dir() else path.unlink(missing_ok=True)
    run.wait_for(lambda: saved_steps(str(folder)), 60)
    run.process.send_signal(signal.SIGTERM)
    output = run.finish(60)
    assert run.process.returncode == 0 and output.count("config.json is missing: it is written") == 1, output
    assert Run(str(folder)).config.env.root_env == "Catch-v0"
    assert saved_steps(str(folder))[-1] == summary(folder)["env_steps"]


@trial("program's folder lost")
@pytest.mark.slow
@losses
def test_conversation_keeps_its_answers_and_goes_on_elsewhere(tmp_path, loss):
    lose, words, ending = LOSSES[loss]
    folder, kept = tmp_path / "goals", pathlib.Path(f"{tmp_path / 'goals'}{ending}")
    server = EmbeddedJudge(babyai.ENVIRONMENT.language, JudgeOptions(latency_secs=0.1))
    flags = [*GOALS, f"--llm_server_addr={server.address}"]
    try:
        program = Launched("launch.write_goals", *flags, f"--reward_dir={folder}")
        answers = folder / "answers.jsonl"
        program.wait_for(lambda: answers.exists() and len(answers.read_text().splitlines()) > 3, 120)
        before = answers.read_text().splitlines()
        lose(folder)
        output = program.finish(30)
        assert program.process.returncode == 1 and "Traceback" not in output, output
        assert words in output.splitlines()[-1] and "keeps the answers" not in output and not folder.exists()
        assert (kept / "answers.jsonl").read_text().splitlines()[: len(before)] == before
        command = [sys.executable, "-m", "launch.write_goals", *flags, f"--reward_dir={kept}", "--num_rounds=8"]
        again = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert again.returncode == 0 and "answers are there already" in again.stdout, again
        assert json.loads((kept / "goals.json").read_text())
    finally:
        server.close()


@trial("program's folder lost")
@pytest.mark.slow
@losses
def test_sweep_starts_nothing_in_a_lost_folder(tmp_path, loss):
    lose, words, ending = LOSSES[loss]
    flags = ["seed=1-9", "--jobs=1", f"--train_dir={tmp_path}", "--experiment=s"]
    program = Launched("launch.sweep", *flags, "--", *CATCH, "--train_for_env_steps=100000000")
    run = tmp_path / "s" / "seed=1"
    program.wait_for(lambda: rows(run) and saved_steps(str(run)), 180)
    lose(tmp_path / "s")
    output = program.finish(60)
    assert program.process.returncode == 1 and "Traceback" not in output, output
    assert words in output.splitlines()[-1] and "seed=2 starts" not in output and program.leftovers() == []
    kept = tmp_path / "s2" / "seed=1" if loss == "renamed" else tmp_path / "s" / "seed=1.saved"
    assert saved_steps(str(kept))[-1] == summary(kept)["env_steps"] and (kept / "config.json").exists()
