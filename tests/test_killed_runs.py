"""Runs killed with SIGKILL, and on a full disk: what the checkpoint and the label store held is there."""

import os
import pathlib
import resource
import signal
import sqlite3
from contextlib import ExitStack

import jax
import numpy as np
import pytest

from launch import flags
from oni_jax.annotation.queries.choices import decode_label
from oni_jax.host.files import ScratchFolder
from oni_jax.host.run_files import saved_steps
from oni_jax.runs.checkpointing import Checkpoints
from oni_jax.training import build
from oni_jax.training.plan import resolve
from tests.support.processes import RETRIEVAL, SMALL, Launched, rows, summary
from tests.support.trials import trial

pytestmark = pytest.mark.slow

LEARNT = ("online_cls_reward_model", "online_motif")
WORDS = (
    "--llm_reward_coeff=0.4 --encoder_msg_model=lt_cnn_small --encoder_hidden_dim=32 --remove_duplicated_obs "
    "--save_every_steps=2048 --reward_model_batch_size=32 --log_every_sec=1"
).split()


def labels(folder: pathlib.Path) -> set[tuple[bytes, int]]:
    """Every committed row of the label store."""
    with sqlite3.connect(f"file:{folder / 'labels.sqlite'}?mode=ro", uri=True) as database:
        rows = database.execute("SELECT item, answer FROM answers")
        return {(bytes(item), decode_label(answer).label) for item, answer in rows}


def num_checkpoints(folder: pathlib.Path) -> int:
    path = folder / "checkpoints"
    return sum(entry.name.isdigit() for entry in path.iterdir()) if path.is_dir() else 0


@trial("kill")
@pytest.mark.parametrize("name", ["online_cls", *LEARNT])
def test_kill_loses_no_learning_and_no_answer(name, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    words = [*SMALL, *WORDS, f"--llm_reward_type={name}", f"--train_dir={tmp_path}", "--experiment=run"]
    folder = tmp_path / "run"
    run = Launched("launch.train", *words)
    run.wait_for(lambda: num_checkpoints(folder) >= 2 and len(rows(folder)) > 2, 300)
    run.kill()
    assert run.leftovers() == []
    committed = labels(folder)
    assert len(committed) > 10

    with ExitStack() as stack:
        config = flags.parse(words)
        training = build.build_training(resolve(config), str(folder), stack)
        learner, reward, annotator = training.learner, training.learner.reward, training._annotator
        assert learner.version == training.progress.updates > 0
        saved = Checkpoints(str(folder / "checkpoints")).restore(learner.state)
        assert saved and saved.progress["env_steps"] == training.progress.env_steps
        jax.tree.map(np.testing.assert_array_equal, learner.state, saved.state)
        restored = reward.save()
        assert set(restored) == set(saved.reward)
        for key, array in saved.reward.items():
            np.testing.assert_array_equal(restored[key], array, err_msg=key)
        if name in LEARNT:
            model = getattr(learner.state.reward_state, "model", learner.state.reward_state)
            assert saved.reward["counters"][0] == model.opt_state[1][0].count > 0
            assert all(np.any(np.asarray(x)) for x in jax.tree.leaves(model.opt_state))
        # Then every label that had been committed comes out of the store.
        handed = set()
        while len(handed) < len(committed):
            annotations = annotator.poll()
            handed |= {(b"\0".join(a.item), decode_label(a.answer or b"").label) for a in annotations}
            reward.ingest(annotations)
        assert handed >= committed

    again = Launched("launch.train", *words, f"--train_for_env_steps={training.progress.env_steps + 2048}")
    output = again.finish(300)
    assert again.process.returncode == 0, output
    assert f"resumed at {training.progress.env_steps:,} environment steps" in output
    done = summary(folder)
    assert done["env_steps"] >= training.progress.env_steps + 2048
    assert labels(folder) >= committed and again.leftovers() == []


def test_leftovers_of_a_killed_run_are_removed_by_the_next(tmp_path):
    run = Launched("launch.train", *SMALL, "--llm_reward_type=none", f"--train_dir={tmp_path}", "--experiment=run")
    run.wait_for(lambda: rows(tmp_path / "run"), 300)
    processes = [run.process.pid, *(process.pid for process in run.descendants())]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none may tidy up behind another
        for pid in processes:
            os.kill(pid, number)
    run.process.wait()
    (left,) = run.leftovers(patience_secs=2.0)
    assert list((pathlib.Path(run.temporary) / str(left)).rglob("nle*"))
    ScratchFolder(run.temporary).close()  # as the first thing that the next start does with games
    assert run.leftovers() == []


def test_an_actor_that_hangs_when_its_run_is_killed_is_ended_by_the_next(tmp_path):
    run = Launched("launch.train", *SMALL, "--llm_reward_type=none", f"--train_dir={tmp_path}", "--experiment=run")
    run.wait_for(lambda: rows(tmp_path / "run"), 300)
    actor = next(process for process in run.descendants() if process.name().startswith("actor-"))
    actor.suspend()
    run.kill()
    assert actor in run.leftovers(patience_secs=2.0)
    ScratchFolder(run.temporary).close()
    assert run.leftovers() == []


def test_a_run_outlives_a_full_disk(tmp_path):
    """A disk that is full for all files that are longer than 20 KB: checkpoints, the label store's log, the counts."""
    words = f"--save_every_steps=512 --log_every_sec=1 --train_dir={tmp_path} --experiment=run".split()
    run = Launched("launch.train", *SMALL, *RETRIEVAL, *words)
    folder = tmp_path / "run"
    run.wait_for(lambda: num_checkpoints(folder) and len(rows(folder)) > 2, 300)
    processes = [run.process.pid, *(process.pid for process in run.descendants())]
    _, most = resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE)
    for pid in processes:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (20_000, most))
    run.wait_for(lambda: run.output().count("checkpoints can't be written") >= 2, 300)
    before = max(saved_steps(str(folder)))
    for pid in (run.process.pid, *(process.pid for process in run.descendants())):  # an actor may have been replaced
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
    run.wait_for(lambda: max(saved_steps(str(folder))) > before, 300)
    run.process.send_signal(signal.SIGTERM)
    output = run.finish(60)
    assert run.process.returncode == 0 and "Traceback" not in output, output
    assert max(saved_steps(str(folder))) == summary(folder)["env_steps"]
    assert len(labels(folder)) == summary(folder)["labels_held"] > 0
    assert run.leftovers() == []
