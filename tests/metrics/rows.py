"""A row as a run writes it."""

import numpy as np

from oni_jax.types import Answer

ROW = {
    "env_steps": 123_456,
    "updates": 30,
    "secs": 125.0,
    "env_steps_per_sec": 1020.3,
    "env_steps_per_sec_overall": 990.0,
    "episodes": 12,
    "mean_return": 33.21,
    "mean_length": 1200.3,
    "policy_lag_mean": 1.3,
    "policy_lag_max": 4,
    "learner_waits_fraction": 0.31,
    "inference_waits_fraction": 0.2,
    "actors_wait_fraction": 0.5,
    "labels_held": 100,
    "labels_asked": 141,
    "answers_unreadable": 2,
    "requests_failed": 1,
    "labels_backlog": 37,
    "server_state": "ok",
    "compilations": 12,
    "limited_by": "the environments: --num_workers 8",
    "episode/dlvl": 1.25,
    "episode/kills": 3.5,
    "episode/gold": 31.0,
    "loss/entropy": 2.125,
    "loss/intrinsic_reward_mean": 0.0123,
    "reward/helpful_fraction": 0.314,
    "rewarded_steps": 77,
    "updates_per_sec": 0.2491,
    "acted_steps_per_sec": 1043.0,
    "inference_calls_per_sec": 35.0,
    "labels_per_sec": 12.4,
    "llm_tokens_per_sec": 3412.0,
    "ring_slots_full": 3,
    "ring_slots_free": 5,
    "groups_paused": 2,
    "device_memory_bytes": 12.25 * 2**30,
    "device_memory_peak_bytes": 13 * 2**30,
    "device_memory_limit_bytes": 139.8 * 2**30,
    "annotation/in_flight": 16,
    "annotation/latency_secs_mean": 1.23,
    "annotation/problem": "",
    "reward/accuracy": 0.987,
    "reward/gradient_steps_due": 8,
    "loss/policy_loss": np.float32(0.5),
}

ANSWERS = (
    Answer((b"You kill the newt!",), "helpful", "I know newts.\n<label>FOO</label>"),
    Answer((b"You see here a rock.",), "not helpful", "BAR"),
    Answer(
        (b"\x1b]0;owned\x07[red]Fido[/red] bites you, again and again, all the night long, as dogs do.",),
        "unreadable",
        "?",
    ),
    Answer((b"It is caf\xe9 time.",), "not helpful", "BAR"),
    Answer((b"You find a hidden door.",), "helpful", "FOO"),
)
GOALS = (
    Answer((b"you see cow and grass.",), "2 goals", "- eat cow\n- chop grass"),
    Answer((b"you see water.",), "1 goals", "One may\n\n- drink water\n"),
)
PAIRS = (
    Answer((b"You kill the newt!", b"It is dark."), "first", '{"best_description": 1}'),
    Answer((b"It is dark.", b"You kill the newt!"), "second", '{"best_description": 2}'),
    Answer((b"It is dark.", b"It is dark here."), "tie", '{"best_description": None}'),
    Answer((b"It is dark.", b"\x1b[2J"), "unreadable", "Well."),
)
