"""Runs that earlier versions of the code have written go on: before worlds were apart from the learner, and answers
were kept as bytes. `ranking` is of the latter, the others of the former.
"""

import json
import pathlib
import shutil
import sqlite3

import pytest

from oni_jax.annotation.queries.choices import decode_label
from tests.support.processes import Launched, summary

RUNS = pathlib.Path(__file__).with_name("old_runs")
FLAGS = (
    "--num_workers=1 --num_envs_per_worker=4 --encoder_custom=mlp_encoder --hidden_size=8 --batch_size=64 --rollout=16 "
    "--recurrence=16 --encoder_msg_model=lt_cnn_small --reward_model_batch_size=8 --reward_dataset_size=64 "
    "--save_every_sec=0 --keep_checkpoints=1"
).split()
TASKS = {
    "catch": "--root_env=Catch-v0 --llm_reward_type=none --actor_pool=serial",
    "nethack": "--root_env=NetHackScoreExtendedActions-v1 --llm_reward_type=online_cls --llm_reward_coeff=0.4 "
    "--extrinsic_reward_coeff=0.1",
    "ranking": "--root_env=NetHackScoreExtendedActions-v1 --llm_reward_type=online_motif --llm_reward_coeff=0.1 "
    "--online_dataset_subsample=1 --encoder_hidden_dim=16",
}


def stored_labels(folder: pathlib.Path) -> set:
    if not (folder / "labels.sqlite").exists():
        return set()
    with sqlite3.connect(folder / "labels.sqlite") as store:
        if store.execute("select count(*) from sqlite_master where name = 'labels'").fetchone()[0]:
            rows = store.execute("select prompt, item, label, probability, time from labels")
        else:
            rows = (
                (prompt, item, *decode_label(answer), time)
                for prompt, item, answer, time in store.execute("select prompt, item, answer, time from answers")
            )
        return set(rows)


@pytest.mark.parametrize(
    "name", ["catch", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nethack", "ranking"))]
)
def test_old_run_resumes_where_it_stopped(name, tmp_path):
    shutil.copytree(RUNS / name, tmp_path / name)
    before, held = summary(tmp_path / name), stored_labels(tmp_path / name)
    steps = before["env_steps"] + 640
    flags = [*FLAGS, *TASKS[name].split(), f"--train_dir={tmp_path}", f"--experiment={name}"]
    run = Launched("launch.train", *flags, f"--train_for_env_steps={steps}", "--stats_avg=100")
    output = run.finish()
    assert run.process.returncode == 0, output
    assert f"resumed at {before['env_steps']:,} environment steps" in output
    after = summary(tmp_path / name)
    assert after["updates"] == before["updates"] + 10 and after["episodes"] >= before["episodes"]
    assert after["labels_held"] >= before["labels_held"] == len(held)
    assert held <= stored_labels(tmp_path / name)
    old, new = (json.loads((folder / name / "config.json").read_text()) for folder in (RUNS, tmp_path))
    before = {**old["env"], **old.get("nethack", {})}
    assert {**new["env"], **new["nethack"]} == {
        **before,
        "plugin": "",
        "caption": "state",
        "stepper": "auto",
        "engine": "auto",
    }
