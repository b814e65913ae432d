"""The sides of `env_step` play the same games; what is told of them is counted right."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.engine_replay import Replay, recorded
from benchmarks.peers.nle_env import NleEnvs
from benchmarks.stepper import SEEDS, TASK, Stepper, Workload
from oni_jax.envs.nethack.native.stepper import why_not
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv
from tests.envs.nethack.native import needs_native

WORKLOAD = Workload(first_index=3, num_games=2, num_warm_up_steps=10, num_steps=400)  # some episodes end


@pytest.fixture(scope="module", params=["terminal", "map"])
def recording(request):
    warm_up_actions, actions = WORKLOAD.actions()
    with recorded() as (recording, mark):
        stepper = Stepper(WORKLOAD, request.param, share_code=False, make=NetHackVectorEnv)
        stepper.run(warm_up_actions)
        mark()
        stepper.run(actions)
        mark()
        stepper.close()
    return recording


@pytest.mark.parametrize("share_code", [False, True])
def test_a_replay_plays_the_same_games(recording, share_code):
    assert recording.num_engines == 2 and len(recording.seeds) > 2
    replay = Replay(recording, share_code)
    before, after = recording.marks
    replay.run(0, before.num_calls)
    assert replay.digest() == before.digest
    replay.run(before.num_calls, after.num_calls)
    assert replay.digest() == after.digest
    replay.close()


def test_a_replay_that_differs_is_noticed(recording):
    replay = Replay(recording, share_code=False)
    replay.run(0, recording.marks[1].num_calls - 50)
    assert replay.digest() != recording.marks[1].digest
    replay.close()


def test_turns_are_counted_over_all_episodes(recording):
    before, after = recording.marks
    assert 0.2 < (after.turns - before.turns) / (WORKLOAD.num_steps * WORKLOAD.num_games) < 0.7


def test_the_peer_plays_on_after_an_end():
    envs = NleEnvs(TASK, 1, SEEDS, 0, ("blstats", "message"))
    actions = np.random.default_rng(0).integers(len(TASK.keys), size=(1500, 1))
    envs.run(actions[:200])
    early = envs.turns()
    envs.run(actions[200:])
    assert envs._episodes[0] > 0 and envs.turns() - early > 0.2 * 1300
    envs.close()


def figures_of(part, folder, *words):
    path = folder / f"{part}.json"
    words = ["--smoke", "--processes=1", "--games=2", *words, f"--json={path}"]
    result = subprocess.run([sys.executable, "-m", f"benchmarks.{part}", *words], capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(path.read_text())["figures"]


@pytest.mark.slow
def test_the_part_writes_the_figures_that_are_promised(tmp_path):
    figures = figures_of("env_step", tmp_path, "--steps=1", "--warm_up_steps=2")["2_games"]
    native = () if why_not() else ("ratio_native_to_nle_env", "ratio_native_to_ours")
    for name in (*native, "ratio_to_nle_env", "ratio_to_engine"):
        assert figures[name]["median"] > 0 and figures[f"{name}_map"]["median"] > 0
    assert all(side["turns_per_step"] > 0 for side in figures["sides"].values())


@needs_native
def test_sides_in_turn_write_their_ratios(tmp_path):
    figures = figures_of("in_turn", tmp_path, "--steps=10", "--turn_steps=2")
    assert all(figures[name]["median"] > 0 for name in ("nle_env_to_native", "ours_to_native", "nle_env_to_ours"))
