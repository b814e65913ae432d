"""BK's three forms from episodes to films, by the commands of docs/bk.md and the rule-based judge."""

import pytest

from tests.support.processes import Launched, rows, summary
from tests.test_docs import ROOT, commands

SHORT = {
    "launch.collect_segments": "--episodes 4 --num_envs 2",
    "launch.write_potential": "--num_rounds 2",
    "launch.check_potential": "--num_windows 50",
    "launch.annotate_segments": "--num_pairs 40",
    "launch.train_potential": "--num_epochs 1 --encoder_custom mlp_encoder --hidden_size 16 --width 16",
    "launch.write_goals": "--num_rounds 10",
    "launch.train": "--batch_size 512 --rollout 16 --recurrence 16 --train_for_env_steps 2048 --num_minibatches 1 "
    "--encoder_custom mlp_encoder --hidden_size 16 --ppo_epochs 1 --potential_warmup_steps 512 --log_every_sec 0.001",
}


@pytest.mark.slow
def test_the_pipeline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    lines = [line for line in commands(ROOT / "docs" / "bk.md") if line.startswith("python -m")]
    assert {line.split()[2] for line in lines} == {*SHORT}
    for line in lines:
        _, _, module, *words = line.split()
        run = Launched(module, *words, *SHORT[module].split())
        output = run.finish(300)
        assert run.process.returncode == 0 and run.leftovers() == [], output
    assert summary(tmp_path / "train_dir" / "bk")["rewarded_steps"] > 500
    last = rows(tmp_path / "train_dir" / "bk")[-1]
    assert last["reward/potential_calls_failed"] == 0 < last["reward/potential_calls"]
    assert last["reward/potential_scale"] not in (0.0, 1.0)
    last = rows(tmp_path / "train_dir" / "bk_goal")[-1]
    assert 0 < last["reward/potential_goal_fraction"] < 1 and last["reward/potential_scale"] not in (0.0, 1.0)
    last = rows(tmp_path / "train_dir" / "bk_pref")[-1]
    assert last["reward/potential_scale"] not in (0.0, 1.0)
    words = "--experiment bk --episodes 2 --num_workers 1 --record 1 --max_episode_steps 12"
    run = Launched("launch.evaluate", *words.split())
    output = run.finish(300)
    assert run.process.returncode == 0 and run.leftovers() == [], output
    assert list((tmp_path / "train_dir" / "bk" / "recordings").glob("*.gif"))
