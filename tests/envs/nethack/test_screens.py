"""The two views of a screen."""

import numpy as np
import pytest

from oni_jax.envs.nethack.screens import BEFORE, VIEWS, WINDOW_SIZE, Screens
from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv, episode_seeds
from oni_jax.settings.worlds import NetHackConfig
from tests.envs.outputs import step_output

TASK = TASKS["NetHackScoreExtendedActions-v1"]


@pytest.mark.parametrize("name", VIEWS)
def test_windows_are_cut_out_of_the_screen(name):
    """Against plain slices of a padded screen, at every place of the hero."""
    view, rng = VIEWS[name], np.random.default_rng(0)
    screens = Screens(2, view)
    for array in screens.arrays.values():
        array[:] = rng.integers(1, 100, array.shape)
    pad = 20
    chars, colors = (np.pad(screens.arrays[key], ((0, 0), (pad, pad), (pad, pad))) for key in (view.chars, view.colors))
    columns = screens.arrays[view.chars].shape[2]
    for y in range(21):
        for x in range(columns):
            windows = screens.windows(slice(None), np.array([x, x]), np.array([y, y]))
            top, left = y - view.first_row - BEFORE + pad, x - BEFORE + pad
            cut = slice(None), slice(top, top + WINDOW_SIZE), slice(left, left + WINDOW_SIZE)
            assert (windows[:, 0] == chars[cut]).all() and (windows[:, 1] == colors[cut]).all()


def test_the_map_is_the_terminal_without_texts():
    """Window rows that hold neither the terminal's first row nor its last two are the same in most steps."""
    rows = {}
    for view in VIEWS:
        env = NetHackVectorEnv(TASK, 4, episode_seeds(3), settings=NetHackConfig(view))
        out, rows[view] = step_output(env), []
        env.reset(out)
        for actions in np.random.default_rng(1).integers(0, len(TASK.keys), (300, 4)):
            env.step(actions, out)
            rows[view].append(out.records.copy())
        env.close()
    terminal, on_map = np.array(rows["terminal"]), np.array(rows["map"])
    assert (terminal["vector_obs"] == on_map["vector_obs"]).all() and (terminal["message"] == on_map["message"]).all()
    hero_row = np.rint(terminal["vector_obs"][..., 1] * 21).astype(int)
    terminal_row = hero_row[..., None] - BEFORE + np.arange(WINDOW_SIZE)
    is_map = (terminal_row >= 1) & (terminal_row < 22)
    for name in ("chars", "colors"):
        same = (terminal[name] == on_map[name]).all(axis=-1)
        assert same[is_map].mean() > 0.98
        assert (on_map[name][~is_map] == 0).all()
    assert (terminal["chars"][~is_map] != 0).any()
