"""The warm-up of potentials, in which they pay nothing: their returns are not reported, rather than 0."""

import pytest

from launch import train
from oni_jax.evaluation.step_rewards import load_scoring
from oni_jax.runs.run import Run
from tests.rewards.bk.preference_models import write_untrained
from tests.support.processes import rows

STEPS = 2048


@pytest.mark.parametrize("warmup_steps", [512, 1 << 20])
def test_returns_are_reported_after_the_warm_up_alone(tmp_path, warmup_steps):
    words = "--llm_reward_type bk-pref --llm_reward_coeff 1 --root_env Catch-v0 --encoder_custom mlp_encoder "
    words += "--hidden_size 8 --num_workers 1 --num_envs_per_worker 8 --batch_size 512 --actor_pool serial "
    words += f"--log_every_sec 0.001 --train_for_env_steps {STEPS} --potential_warmup_steps {warmup_steps} "
    words += "--potential_horizon 2 --use_rnn False"
    folder = write_untrained(str(tmp_path), "Catch-v0")
    assert train.main([*words.split(), "--reward_dir", folder, f"--train_dir={tmp_path}", "--experiment=run"]) == 0
    is_over = warmup_steps < STEPS
    name = "episode/intrinsic_return/bk-pref"
    found = [row[name] for row in rows(tmp_path / "run") if name in row]
    assert bool(found) == is_over and any(found) == is_over
    scoring = load_scoring(Run(str(tmp_path / "run")), Run(str(tmp_path / "run")).config.env, None)
    assert (scoring.scorer is not None) == is_over
    reason = f"it pays after a warm-up of {warmup_steps:,} steps, which takes its scale"
    assert scoring.not_reported == ({} if is_over else {"bk-pref": reason})
