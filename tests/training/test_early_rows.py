"""Rows for the view say what is not known yet: before episodes of full length can have ended."""

import math

import oni_jax
from oni_jax.show.live.view import PlainView
from oni_jax.training import loop

SETTINGS = {
    "plugin": ["tests.support.corridor_plugin"],
    "root_env": "Corridor-v0",
    "encoder_custom": "corridor_encoder",
    "actor_pool": "serial",
    "hidden_size": 8,
    "batch_size": 256,
    "rollout": 16,
    "recurrence": 16,
    "num_workers": 1,
    "num_envs_per_worker": 16,
    "log_every_sec": 1e-6,
    "save_every_sec": 0.0,
    "llm_reward_type": "count",
    "llm_reward_coeff": 0.1,
    "max_episode_steps": 100,
}


def test_short_episodes_are_named_until_long_ones_can_have_ended(tmp_path, monkeypatch):
    shown = []

    class View(PlainView):
        def update(self, row):
            shown.append(row)
            super().update(row)

    monkeypatch.setattr(loop, "build_view", lambda run, *args, **kwargs: View(run, open(tmp_path / "view", "w")))
    oni_jax.train(**SETTINGS, train_dir=tmp_path, train_for_env_steps=16 * 160)
    steps = {row["env_steps"]: row.get("short_episodes") for row in shown if "episode/length" in row}
    assert steps[16 * 16] == 16 and all(steps[number] is None for number in steps if number >= 16 * 100)
    returns = [row["episode/intrinsic_return/count"] for row in shown]
    assert math.isnan(returns[0]) or "episode/length" in shown[0]
    assert math.isfinite(returns[-1])
