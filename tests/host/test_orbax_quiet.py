"""Silence of orbax where something else reports exceptions that can't be raised, as a program's start does."""

import sys

from oni_jax.host.orbax_failures import quieten


class _Failing:
    def __init__(self, text: str):
        self.text = text

    def __del__(self) -> None:
        raise RuntimeError(self.text)


def test_closed_event_loops_alone_are_kept_from_the_hook_that_was_set(monkeypatch):
    reported: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda about: reported.append(str(about.exc_value)))
    for _ in range(2):
        quieten()
    for text in ("Event loop is closed", "another"):
        _Failing(text)
    assert reported == ["another"]
