"""One game that people see is the game that the agents play."""

import numpy as np
import pytest

from oni_jax.envs.base import StepOutput, make_step_output
from oni_jax.envs.nethack.single_game import SingleGame
from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv, episode_seeds
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import NetHackConfig
from tests.support.full_disk import full_disk

TASK, MAX_STEPS = "NetHackScore-v1", 60
SEEDS = episode_seeds(3)(0, 0)


def output(env) -> StepOutput:
    return make_step_output(env.spec, 1)


def play(env) -> tuple[list[bytes], np.ndarray]:
    """(all that was observed and paid, the episode's statistics)."""
    out = output(env)
    env.reset(out)
    seen = [out.records.tobytes()]
    for action in np.random.default_rng(0).integers(env.spec.num_actions, size=MAX_STEPS):
        env.step(np.array([action], np.int32), out)
        seen += [out.records[name].tobytes() for name in ("reward", "terminated", "truncated")]
        if out.records["terminated"][0] or out.records["truncated"][0]:
            seen.append(out.finals.tobytes())
            return seen, out.episode_stats[0].copy()
        seen.append(out.records.tobytes())
    raise AssertionError("the episode has not ended")


@pytest.mark.parametrize("view", ["terminal", "map"])
def test_single_game_equals_the_agents_game(tmp_path, view):
    many = NetHackVectorEnv(
        TASKS[TASK], 1, lambda index, episode: SEEDS, max_episode_steps=MAX_STEPS, settings=NetHackConfig(view)
    )
    single = SingleGame(TASK, SEEDS, MAX_STEPS, settings=NetHackConfig(view), ttyrec=str(tmp_path / "a.ttyrec3.bz2"))
    try:
        seen, stats = play(many)
        single_seen, single_stats = play(single)
    finally:
        many.close()
        single.close()
    assert single_seen == seen
    np.testing.assert_array_equal(single_stats, stats)
    assert single.end_status[0]


def test_its_terminal_shows_the_hero():
    game = SingleGame(TASK, SEEDS, MAX_STEPS, settings=NetHackConfig("map"))
    game.reset(output(game))
    chars, colors, cursor = game.terminal()
    assert cursor is not None
    row, column = cursor
    assert chars.shape == colors.shape == (24, 80) and chr(chars[row, column]) == "@"
    assert b"Agent" in chars.tobytes() and game.turn() == 1
    game.close()


def test_no_room_for_a_game():
    with full_disk(), pytest.raises(UserError, match="a game can't be started there .* set .TMPDIR"):
        SingleGame(TASK, SEEDS, MAX_STEPS)


def test_a_file_that_cannot_be_written():
    with pytest.raises(OSError):
        SingleGame(TASK, SEEDS, MAX_STEPS, ttyrec="/nowhere/a.ttyrec3.bz2")
