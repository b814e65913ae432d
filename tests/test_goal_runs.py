"""Runs whose goals a server suggests, as a program trains them: with answers, and without."""

import json
import pathlib
import socket

from launch import train

SMALL = (
    "--config ellm_llm --plugin tests.support.signals_plugin --root_env Signals-v0 --device cpu "
    "--encoder_custom mlp_encoder "
    "--batch_size 128 --rollout 8 --recurrence 8 --hidden_size 8 --ppo_epochs 1 --num_minibatches 1 "
    "--max_episode_steps 9 --log_every_sec 0.01 --save_every_sec 0"
).split()


def trained(train_dir: pathlib.Path, num_steps: int, *words: str) -> list[dict]:
    """The rows of metrics of a run that ended well."""
    words = f"--train_dir={train_dir}", "--experiment=run", f"--train_for_env_steps={num_steps}", *words
    assert train.main([*SMALL, *words]) == 0
    found = [json.loads(line) for line in (train_dir / "run" / "metrics.jsonl").read_text().splitlines()]
    assert found[-1]["env_steps"] == num_steps
    return found


def test_suggestions_of_a_server_are_shown_and_paid(tmp_path):
    *_, last = trained(tmp_path, 51_200)
    assert last["reward/goal_coverage"] > 0.9
    assert last["episode/goals_reached"] > 0.5 and last["episode/intrinsic_return/ellm"] > 0.5
    assert last["episode/goals_timely_fraction"] > 0.1 and last["episode/goals_invalid_fraction"] > 0.1


def test_a_run_that_learns_from_no_reward_says_so(tmp_path, capfd):
    trained(tmp_path, 1_024, *"--llm_reward_type none --llm_reward_coeff 0 --goal_suggester oracle".split())
    assert "warning: --extrinsic_reward_coeff 0 and no intrinsic reward: nothing is learnt" in capfd.readouterr().out


def test_a_server_that_is_not_there_costs_goals_alone(tmp_path, capfd):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rows = trained(tmp_path, 5_120, "--llm_model", "m", "--llm_server_addr", f"127.0.0.1:{port}")
    assert {row["reward/goal_coverage"] for row in rows} == {0}
    assert rows[-1]["episode/goals_reached"] == rows[-1]["episode/intrinsic_return/ellm"] == 0
    assert "Traceback" not in "".join(capfd.readouterr())
