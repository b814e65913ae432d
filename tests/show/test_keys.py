"""Keys: from a terminal to a task's actions, and in words."""

import pytest

from oni_jax.envs.display import ActionKey
from oni_jax.envs.registry import ENVIRONMENTS, find_environment
from oni_jax.settings.worlds import EnvConfig
from oni_jax.show.keys import action_text, key_help, key_text, pressed_keys


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
def test_keys_that_terminals_send(data, keys):
    assert pressed_keys(data) == keys


def test_every_action_has_words():
    for environment in ENVIRONMENTS:
        for name in environment.names if environment.display is not None else ():
            keys = environment.display.keys(EnvConfig(root_env=name))  # type: ignore[union-attr]
            texts, pressed = {action_text(key) for key in keys}, {key.key for key in keys}
            assert (
                len(keys) == len(texts) == len(pressed) == environment.make_spec(EnvConfig(root_env=name)).num_actions
            )
    assert action_text(ActionKey(0xF0, "pray")) == "pray (M-p)"
    assert key_text(13) == "Enter"


def test_the_help_tells_every_key():
    display = find_environment(EnvConfig(root_env="NetHackScoreExtendedActions-v1")).display
    assert display is not None
    text = key_help(display.keys(EnvConfig(root_env="NetHackScoreExtendedActions-v1")), display.moves)
    for words in ("^D kick", "M-p pray", "Enter more", "s search", "HJKLYUBN far"):
        assert words in text
    assert "K far north" not in text
