"""The environment reproduces the recorded episodes of BabyAI-Text, and the comparison notices one changed number."""

import json
import pathlib

import numpy as np
import pytest

from tests.golden import babyai
from tests.golden.check import read

DATA = pathlib.Path(__file__).parent / "data"
SHARED = pathlib.Path(__file__).parents[3] / "shared" / "golden" / "bk"  # more recordings, where they lie
FILES = {path.name: path for folder in (SHARED, DATA) for path in sorted(folder.glob("minigrid_*.npz"))}
EXAMPLE = "minigrid_BabyAI-Text-GoTo-RedBallBlueBox-S20.npz"


@pytest.mark.parametrize(
    "name", [name if (DATA / name).exists() else pytest.param(name, marks=pytest.mark.slow) for name in FILES]
)
def test_replay(name):
    npz = read(FILES[name])
    assert babyai.recognises(npz)
    results = babyai.check(npz)
    assert results and [found for found, error, tolerance in results if error > tolerance] == []


@pytest.fixture(scope="module")
def played():
    npz = read(DATA / EXAMPLE)
    return npz, babyai.play(babyai.env_of(npz), babyai.stream_of(npz, "7"))


@pytest.mark.parametrize("name", [*babyai.ROWS, *babyai.OUTCOMES])
def test_one_changed_number_is_noticed(played, name, monkeypatch):
    npz, replay = played
    monkeypatch.setattr(babyai, "play", lambda *_: replay)
    texts = json.loads(str(npz["texts"]))
    rows = {"mission": 0, "caption": 1}
    changed = {key: x.copy() for key, x in npz.items()}
    assert not changed["s7/is_first"][5]  # replays begin as recorded
    if name in rows:
        texts["7"]["mission_and_description"][5][rows[name]] += "."
    elif changed[f"s7/{name}"].dtype == bool:
        changed[f"s7/{name}"][5] ^= True
    else:
        changed[f"s7/{name}"][5] += 1
    changed["texts"] = np.array(json.dumps({"7": texts["7"]}))
    failed = {found for found, error, tolerance in babyai.check(changed) if error > tolerance}
    assert failed == {f"s7/{name}"}


def test_a_changed_action_is_noticed():
    npz = read(DATA / EXAMPLE)
    texts = {"7": json.loads(str(npz["texts"]))["7"]}
    action = npz["s7/action"].copy()
    action[5] = (action[5] + 1) % 3
    results = babyai.check({**npz, "s7/action": action, "texts": np.array(json.dumps(texts))})
    assert any(error > tolerance for _, error, tolerance in results)


def test_other_kinds_are_not_recognised():
    assert not babyai.recognises({"w/weight": np.zeros(1), "in/obs": np.zeros(1)})
