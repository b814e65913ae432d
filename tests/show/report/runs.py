"""Folders of runs as training leaves them, without training."""

import json
import pathlib
from collections.abc import Iterable, Mapping

from oni_jax.settings.config import Config, config_to_json
from oni_jax.settings.fields import with_values

SETTINGS = {"root_env": "NetHackStaircase-v1", "llm_reward_type": "none", "stats_avg": 50}


def row(env_steps: int, secs: float, **metrics: object) -> dict[str, object]:
    return {"step": env_steps, "env_steps": env_steps, "secs": secs, **metrics}


def write_run(folder: pathlib.Path, rows: Iterable[Mapping[str, object]], **settings: object) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = with_values(Config(), {**SETTINGS, "experiment": folder.name, **settings})
    (folder / "config.json").write_text(config_to_json(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def learning(seed: int, num_rows: int = 12) -> list[dict[str, object]]:
    """Rows of a run that gets better, its seed as an offset."""
    return [
        row(
            1000 * (i + 1),
            10.0 * (i + 1),
            mean_return=float(i + seed),
            env_steps_per_sec=100.0 + seed,
            learner_waits_fraction=0.1,
            labels_held=10 * i,
            **{
                "episode/dlvl": 1.0 + 0.1 * i,
                "episode/unlocked": 0.2 * i,
                "episode/goals_timely_fraction": 0.1 * i,
                "reward/accuracy": 0.9,
                "server_state": "ok",
            },
        )
        for i in range(num_rows)
    ]
