"""Runs as training leaves them, made up."""

import json
import pathlib
from collections.abc import Sequence

import jax
import numpy as np

from oni_jax.envs.registry import env_spec
from oni_jax.learner.update import TrainState
from oni_jax.networks.policy import policy_and_shapes
from oni_jax.networks.registry import policy_observations
from oni_jax.runs.checkpointing import Checkpoints, Saved
from oni_jax.settings.config import Config, config_to_json
from oni_jax.settings.fields import with_values

CATCH = {"root_env": "Catch-v0", "encoder_custom": "mlp_encoder", "hidden_size": 16}
NETHACK = {
    "root_env": "NetHackScore-v1",
    "encoder_custom": "nle_rgbcrop_encoder",
    "hidden_size": 16,
    "max_episode_steps": 40,
}


def write_run(folder: pathlib.Path, values: dict, steps: Sequence[int] = (640,), seed: int = 0) -> Config:
    """A run in `folder` with checkpoints of random parameters, which differ."""
    config = with_values(Config(), values)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config_to_json(config))
    _, shapes = policy_and_shapes(config.network, env_spec(config.env, policy_observations(config.network)))
    rng = np.random.default_rng(seed)
    checkpoints = Checkpoints(str(folder / "checkpoints"), keep=len(steps) or 1)
    for step in steps:
        params = jax.tree.map(lambda x: rng.normal(scale=0.3, size=x.shape).astype(x.dtype), shapes)
        checkpoints.save(step, Saved(TrainState(params, (), (), np.zeros(2, np.uint32)), {}, {}))
    checkpoints.close()
    return config


def write_returns(folder: pathlib.Path, rows: Sequence[tuple[int, float | None]]) -> None:
    """metrics.jsonl of (env_steps, mean_return; None: no episode had ended)."""
    lines = [
        json.dumps({"step": step, "env_steps": step, "secs": 1.0, **({} if mean is None else {"mean_return": mean})})
        for step, mean in rows
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 99, "half')
