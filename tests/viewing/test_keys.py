"""Keys: from a terminal to a task's actions, and in words."""

import pytest

from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.viewing.keys import action_text, key_help, key_text, pressed_keys


@pytest.mark.parametrize(
    "data, keys",
    [
        (b"k", [ord("k")]),
        (b"\r", [13]),
        (b"\n", [13]),
        (b"\x04", [4]),
        (b"\x1b[A\x1bOBx", [ord("k"), ord("j"), ord("x")]),
        (b"\x1bp", [0x80 | ord("p")]),
        (b"\x1b", [27]),
        (b"a\x1b[15~", [ord("a")]),
        (b"", []),
    ],
)
def test_what_terminals_send(data, keys):
    assert pressed_keys(data) == keys


def test_every_action_has_words():
    for task in TASKS.values():
        texts = [action_text(key) for key in task.keys]
        assert len(set(texts)) == len(texts) and not any(text.startswith("key ") for text in texts)
    assert action_text(ord("K")) == "far north (K)"
    assert action_text(4) == "kick (^D)"
    assert action_text(0xF0) == "pray (M-p)"
    assert key_text(13) == "Enter"


def test_the_help_tells_every_key():
    text = key_help(TASKS["NetHackScoreExtendedActions-v1"].keys)
    assert "^D kick" in text and "M-p pray" in text and "Enter more" in text and "s search" in text
