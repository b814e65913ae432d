"""The last row of a run is written when nothing is in flight any more: summary, report and inspection say the same."""

import json

import pytest

import oni_jax
from launch import report
from oni_jax.evaluation.inspection import inspect_reward
from oni_jax.host.runtime import code_commit
from oni_jax.runs.curves import last_value
from oni_jax.runs.run import Run
from oni_jax.settings.json_text import parsed_object


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that ends while the judge still thinks about its first captions."""
    return oni_jax.train(
        root_env="Catch-v0", encoder_custom="mlp_encoder", hidden_size=8, actor_pool="serial", num_workers=1,
        num_envs_per_worker=8, batch_size=256, rollout=16, recurrence=16, llm_reward_type="online_cls",
        llm_reward_coeff=0.4, judge_latency_secs=1.0, train_for_env_steps=512,
        train_dir=str(tmp_path_factory.mktemp("runs")), experiment="run",
    )  # fmt: skip


def test_the_last_row_counts_what_was_in_flight(run):
    rows = [parsed_object(line) for line in open(f"{run.folder}/metrics.jsonl")]
    summary = parsed_object(open(f"{run.folder}/summary.json").read())
    assert summary["labels_held"] == len([x for x in inspect_reward(run.folder).captions if x.labels]) > 0
    common = {name for name in summary if name in rows[-1]} - {"env_steps_per_sec", "policy_lag_mean"}
    assert {name: rows[-1][name] for name in common} == {name: summary[name] for name in common}
    assert {"labels_held", "labels_asked", "episodes", "mean_return", "env_steps"} <= common
    assert [row["env_steps"] for row in rows].count(512) == 1
    assert last_value(Run(run.folder).metrics(["labels_held"], "run"), "labels_held") == summary["labels_held"]


def test_the_summary_says_what_was_run(run):
    summary = json.load(open(f"{run.folder}/summary.json"))
    assert summary["hparams"]["root_env"] == "Catch-v0" and summary["hparams"]["judge_latency_secs"] == 1.0
    assert "gamma" not in summary["hparams"] and "llm_api_key" not in summary["hparams"]
    assert summary["commit"] == code_commit()


def test_the_report_says_the_same(run, tmp_path):
    words = ["--train_dir", str(run.config.run.train_dir), "--experiment", "run", "--html", str(tmp_path / "a.html")]
    assert report.main(words) == 0
    held = json.load(open(f"{run.folder}/summary.json"))["labels_held"]
    text = (tmp_path / "a.html").read_text()
    assert f"<b>{held:,.0f}</b><span>labels</span>" in text
    assert f"seed 1, commit {code_commit()}, labels by: rule-based judge, not an LLM</p>" in text
