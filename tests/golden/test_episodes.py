"""The stepper reproduces the recorded episodes, and the comparison notices one changed number."""

import pathlib

import numpy as np
import pytest

from oni_jax.envs.nethack.native.vector_env import NativeVectorEnv
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv
from tests.envs.nethack.native import needs_native
from tests.golden import episodes

DATA = pathlib.Path(__file__).parent / "data"
SHARED = pathlib.Path(__file__).parents[3] / "shared" / "golden"  # more recordings, where they lie beside the checkout
FILES = {path.name: path for folder in (SHARED, DATA) for path in sorted(folder.glob("NetHack*.npz"))}
STEPPERS = [NetHackVectorEnv, pytest.param(NativeVectorEnv, marks=needs_native)]
EXAMPLE = DATA / "NetHackStaircaseExtendedActions-v1_seed26.npz"


def load(path):
    with np.load(path) as npz:
        return dict(npz)


def failures(results):
    return [name for name, error, tolerance in results if not error <= tolerance]


@pytest.mark.parametrize("make", STEPPERS)
@pytest.mark.parametrize("name", FILES)
def test_replay(name, make):
    npz = load(FILES[name])
    assert episodes.recognises(npz)
    results = episodes.check(npz, make)
    assert failures(results) == []
    outputs = episodes.OUTCOMES + episodes.OBSERVATIONS + episodes.FIRST_OBSERVATIONS
    assert {name for name, _, _ in results} == {"reset_at", *outputs}


@pytest.fixture(scope="module")
def played():
    npz = load(EXAMPLE)
    return npz, episodes.play(npz)


@pytest.mark.parametrize("name", ["reset_at", *episodes.OUTCOMES, *episodes.OBSERVATIONS, *episodes.FIRST_OBSERVATIONS])
def test_one_changed_number_is_noticed(played, name, monkeypatch):
    npz, replay = played
    monkeypatch.setattr(episodes, "play", lambda *_: replay)
    changed = npz[name].copy()
    row = 1 if name.startswith("reset") else int(np.flatnonzero(~npz["done"])[100])
    changed[row].flat[0] += 1 if changed.ndim > 1 else 0
    if changed.ndim == 1:
        changed[row] = changed[row] + 1 if changed.dtype != bool else ~changed[row]
    assert failures(episodes.check({**npz, name: changed})) == [name]


def test_observations_of_ended_steps_are_not_compared(played, monkeypatch):
    npz, replay = played
    monkeypatch.setattr(episodes, "play", lambda *_: replay)
    changed = np.where(npz["done"][:, None], 1, npz["message"])
    assert failures(episodes.check({**npz, "message": changed})) == []


def test_changed_actions_are_noticed():
    npz = load(EXAMPLE)
    assert failures(episodes.check({**npz, "action": npz["action"][::-1]}))


def test_other_kinds_are_not_recognised():
    assert not episodes.recognises({"w/weight": np.zeros(1), "in/obs": np.zeros(1)})


@pytest.mark.parametrize(
    ("one", "other", "by_name"),
    [
        (b"Welcome to Asidonhopo's general store!", b"Welcome to Dirk's general store!", True),
        (b"You see here a dart.", b"Zou see here a dart.", False),
        (b"You see here a dart.", b"You see here 2 darts.", False),
        (b"Hello", b"Hello", False),
    ],
)
def test_shopkeepers_names(one, other, by_name):
    messages = [np.frombuffer(text.ljust(256, b"\0"), np.uint8) for text in (one, other)]
    assert episodes.differ_by_name(*messages) == by_name
