"""The sides of `env_step` play the same games, and write the figures that are promised."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.harness import ROOT_ENV
from benchmarks.host_envs import BuiltEngine, HostEnvs, NleEnvs
from oni_jax.envs.nethack.native.stepper import why_not
from oni_jax.envs.nethack.native.vector_env import why_not_built
from oni_jax.settings.worlds import EnvConfig, NetHackConfig
from tests.envs.nethack.native import needs_engine

CONFIG = EnvConfig(root_env=ROOT_ENV, nethack=NetHackConfig(stepper="python"))


def test_sides_take_the_same_actions():
    """Messages at the end, of which an episode's last is followed by the next one's first on both sides."""
    ours, theirs = HostEnvs(CONFIG, 2, first_index=3), NleEnvs(CONFIG, 2, first_index=3)
    for side in (ours, theirs):
        side.run(120)
    shown = [env.last_observation[env._observation_keys.index("message")] for env in theirs._envs._envs]
    mine = ours._out.records["message"][:, : len(shown[0])]
    assert np.array_equal(mine, np.stack(shown))
    ours.close()
    theirs.close()


def test_peer_plays_on_after_an_end():
    envs = NleEnvs(CONFIG, 1)
    envs.run(1500)
    assert envs._envs._episodes[0] > 0
    envs.close()


def figures_of(folder, *words):
    path = folder / "env_step.json"
    words = ["--smoke", *words, f"--json={path}"]
    result = subprocess.run([sys.executable, "-m", "benchmarks.env_step", *words], capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(path.read_text())["figures"]


def test_sides_on_the_host_are_compared(tmp_path):
    words = "--processes=1 --envs=2 --steps=10 --turn_steps=2 --warm_up_steps=2 --view=map"
    figures = figures_of(tmp_path, *words.split())["2_envs"]
    built, native = not why_not_built(), not why_not()
    first, *others = (
        ["built"] * built + ["native"] * native + ["make_vec", "python", "nle_env"] + ["built_engine"] * built
    )
    for name in (first, *others):
        assert figures[f"{name}_env_steps_per_sec"]["min"] > 0 and figures[f"{name}_cpu_us_per_step"]["median"] > 0
    assert all(figures[f"{first}_ratio_to_{name}"]["median"] > 0 for name in others)


def test_sides_are_chosen(tmp_path):
    words = "--processes=1 --envs=1 --steps=2 --turn_steps=1 --warm_up_steps=1 --sides=nle_env,python"
    assert [*figures_of(tmp_path, *words.split())["1_envs"]][-1] == "nle_env_ratio_to_python"


@needs_engine
def test_engine_alone_plays_on_after_an_end():
    engine = BuiltEngine(EnvConfig(root_env=ROOT_ENV), 2)
    engine.run(3000)
    assert min(engine._episodes) > 1
    engine.close()


@pytest.mark.parametrize(
    "root_env", ["Catch-v0", pytest.param("BabyAI-Text-PickUp-RedBall-S20", marks=pytest.mark.slow)]
)
def test_other_tasks_are_measured(tmp_path, root_env):
    figures = figures_of(tmp_path, f"--root_env={root_env}", "--processes=1", "--steps=10", "--warm_up_steps=2")[
        "4_envs"
    ]
    assert figures["ours_env_steps_per_sec"]["median"] > 0
