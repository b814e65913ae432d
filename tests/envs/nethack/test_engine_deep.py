"""Long games of players who descend, on the built engine and on NLE's: a scripted one, and a trained policy."""

import types
from collections.abc import Iterator

import numpy as np
import pytest

import oni_jax
from oni_jax.envs.nethack.engine import built
from oni_jax.envs.nethack.engine.identity import Pair
from oni_jax.envs.nethack.game import ESCAPE, IN_LINE_INPUT, IN_MORE, SPACE
from oni_jax.envs.nethack.native.vector_env import NativeVectorEnv
from oni_jax.envs.nethack.scripted import ScriptedPlayer
from oni_jax.envs.nethack.tasks import BASE_KEYS, TASKS, nethack
from oni_jax.envs.nethack.vector_env import OBSERVATIONS, episode_seeds
from oni_jax.settings.worlds import NetHackConfig
from tests.envs.nethack.native import needs_engine
from tests.envs.outputs import are_equal, step_output
from tests.support.launched import Launched

TRAVEL_FRACTION = 0.03  # fraction of the keys: to the stairs, wherever they are, and down
TRAVEL = tuple(map(ord, "_>.>"))


def scripted_keys(pair: Pair, num_keys: int, seed: int) -> Iterator[int]:
    """Keys of the scripted player, who also travels."""
    rng, arrays = np.random.default_rng(seed), pair.arrays
    shown = types.SimpleNamespace(**{name: array[None] for name, array in arrays.items()})
    player = ScriptedPlayer(types.SimpleNamespace(num_envs=1, arrays=shown), rng)  # type: ignore[arg-type]
    for _ in range(num_keys):
        if arrays["internal"][IN_MORE]:
            yield SPACE
        elif arrays["internal"][IN_LINE_INPUT]:
            yield ESCAPE
        elif rng.random() < TRAVEL_FRACTION:
            yield from TRAVEL
        else:
            zeros = np.zeros(1, np.int32)
            yield BASE_KEYS[int(player.act(0, np.empty(1), zeros, zeros)[0])]


def deepest(num_games: int, num_keys: int) -> int:
    """The deepest level of scripted games, whose arrays are compared after each key."""
    depth = 0
    for index in range(num_games):
        pair = Pair(built.find_engine(), index)
        try:
            for key in scripted_keys(pair, num_keys, index):
                pair.play([key])
                depth = max(depth, int(pair.arrays["blstats"][nethack.NLE_BL_DEPTH]))
        finally:
            pair.close()
    return depth


@needs_engine
def test_descending_games_are_those_of_the_installed_engine():
    assert deepest(2, 800) >= 2


@needs_engine
@pytest.mark.slow
def test_descending_games_are_those_of_the_installed_engine_for_long():
    assert deepest(64, 5000) >= 5


@needs_engine
def test_save_key_is_that_of_the_installed_engine():
    """NLE has no saved games: the key says something."""
    pair = Pair(built.find_engine(), 0)
    try:
        pair.play([int(nethack.Command.SAVE)])
        assert b"only one way to save yourself" in pair.arrays["message"].tobytes()
        pair.play([SPACE, ord("y"), SPACE, ord("s")])
        assert pair.num_episodes == 1
    finally:
        pair.close()


@needs_engine
@pytest.mark.slow
def test_trained_policy_s_games_are_those_of_the_installed_engine(tmp_path):
    words = ("--root_env=NetHackScore-v1", "--hidden_size=64", "--llm_reward_type=none", "--train_for_env_steps=100000")
    Launched("launch.train", f"--train_dir={tmp_path}", "--experiment=run", *words).finish(1800.0)
    run = oni_jax.load_run(str(tmp_path / "run"))
    task, settings = TASKS["NetHackScore-v1"], [NetHackConfig(engine=engine) for engine in ("wheel", "built")]
    envs = [NativeVectorEnv(task, 64, episode_seeds(1), 0, 5000, OBSERVATIONS, shown) for shown in settings]
    one, other = outs = [step_output(env) for env in envs]
    for env, out in zip(envs, outs, strict=True):
        env.reset(out)
    depth = 0
    for step in range(5000):
        actions = run.act({name: one.records[name] for name in run.spec.observations}, one.records["is_first"])
        for env, out in zip(envs, outs, strict=True):
            env.step(actions, out)
        assert are_equal(one.records, other.records) and are_equal(one.finals, other.finals), step
        assert one.texts.captions == other.texts.captions, step
        assert np.array_equal(one.episode_stats, other.episode_stats), step
        depth = max(depth, int(envs[0].arrays.blstats[:, nethack.NLE_BL_DEPTH].max()))
    for env in envs:
        env.close()
    assert depth >= 3
