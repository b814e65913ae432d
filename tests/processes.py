"""Runs of the programs, as tests start them, and what they write."""

import json
import pathlib

from benchmarks.launched import Launched, rows

__all__ = ["RETRIEVAL", "SMALL", "Launched", "rows", "summary"]

SMALL = (  # a run of NetHack that two cores finish in seconds, thanks to a network that computes little
    "--root_env=NetHackScoreExtendedActions-v1 --num_workers=2 --num_envs_per_worker=4 --batch_size=256 "
    "--hidden_size=32 --encoder_custom=mlp_encoder --log_every_sec=1"
).split()
RETRIEVAL = "--llm_reward_type=online_cls --llm_reward_coeff=0.4 --extrinsic_reward_coeff=0.1".split()


def summary(folder: pathlib.Path) -> dict:
    return json.loads((folder / "summary.json").read_text())
