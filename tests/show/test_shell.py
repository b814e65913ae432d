"""A person's terminal is left as it was found."""

import os
import sys
import termios

import pytest

from oni_jax.show.shell import Shell
from tests.show.terminals import Person


@pytest.fixture
def terminal(monkeypatch):
    person = Person(columns=80, rows=24)
    with open(person.theirs, "r+b", buffering=0, closefd=False) as file:
        monkeypatch.setattr(sys, "stdin", file)
        monkeypatch.setattr(sys, "stdout", file)
        yield person
    os.close(person.theirs)
    os.close(person.ours)


def test_failed_entry_is_undone(terminal, monkeypatch):
    def refuse(*_):
        raise OSError("no output")

    shell = Shell()
    monkeypatch.setattr(shell, "_send", refuse)
    with pytest.raises(OSError, match="no output"):
        shell.__enter__()
    assert terminal.is_restored()


def test_no_key_leaves_but_ctrl_c(terminal):
    with Shell():
        keys = termios.tcgetattr(terminal.theirs)[6]
        assert keys[termios.VSUSP] == keys[termios.VQUIT] == b"\0" and keys[termios.VINTR] == b"\x03"
    assert terminal.is_restored()
