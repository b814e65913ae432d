"""The list of a task's keys is shown whole in any terminal that is large enough to play in."""

import contextlib
import re

import pytest

from oni_jax.envs.display import COLUMNS
from oni_jax.evaluation.recording import watched_episode
from oni_jax.settings.fields import counted
from oni_jax.show.config import PlayConfig
from oni_jax.show.keys import key_help, key_text
from oni_jax.show.play import HUMAN_HELP, KEYS_HELP, WIDE, set_up, view
from oni_jax.show.session import Session

SIZES = [(24, 80), (24, WIDE), (24, 140), (30, 100), (36, 80), (40, 100), (50, 140)]


@pytest.mark.parametrize("root_env", ["Crafter-v1", "CrafterTextEnv-v1", "BabyAI-Text-GoToLocal-RedBall-S20"])
def test_keys_are_whole_in_every_terminal(root_env):
    table = set_up(PlayConfig(root_env=root_env))
    keys = tuple(table.display.keys(table.env))
    game = watched_episode(table.env, table.suggested, 1, 0, tuple(table.scorer.spec.observations))
    assert game
    with contextlib.closing(Session(game, keys, 100, table.labels, table.scorer)) as session:
        help_text = f"{HUMAN_HELP}, {key_help(keys, table.display.moves)}"
        for rows, columns in SIZES:
            pages = [
                [re.sub(r"\x1b\[[\d;]*m", "", line) for line in view(session, table, help_text, rows, columns, shown)]
                for shown in (False, True)
            ]
            assert all(len(page) <= rows and max(map(len, page)) <= columns for page in pages)
            whole = [all(f"{key_text(x.key)} {x.words}" in text(page) for x in keys if x.in_help) for page in pages]
            assert any(whole), (rows, columns)
            assert whole[0] or KEYS_HELP in text(pages[0]) or "Tab: panel" in text(pages[0]) or columns < WIDE


def text(page: list[str]) -> str:
    """The words of a page; those beside a game alone."""
    is_beside = len(page[0]) >= WIDE and page[0][COLUMNS:].startswith(" |")
    return " ".join(" ".join(line[COLUMNS + 2 :] if is_beside else line for line in page).split())


def test_one_thing_is_no_plural():
    assert [counted(number, "step") for number in (0, 1, 1234)] == ["0 steps", "1 step", "1,234 steps"]
    assert counted(1, "batch", "batches") == "1 batch" and counted(2, "batch", "batches") == "2 batches"


def test_episode_of_one_step_says_so():
    table = set_up(PlayConfig(root_env="BabyAI-Text-GoToLocal-RedBall-S20"))
    keys = tuple(table.display.keys(table.env))
    game = watched_episode(table.env, table.suggested, 1, 0, tuple(table.scorer.spec.observations))
    assert game
    with contextlib.closing(Session(game, keys, 100, table.labels, table.scorer)) as session:
        session.step(0)
        assert " in 1 step, left before its end" in session.summary()
