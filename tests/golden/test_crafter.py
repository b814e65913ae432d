"""Crafter's captions, first maps and effects are the recorded ones, and the comparison notices one changed number."""

import json
import pathlib

import numpy as np
import pytest

from tests.golden import crafter
from tests.golden.check import read

DATA = pathlib.Path(__file__).parent / "data"
SHARED = pathlib.Path(__file__).parents[3] / "shared" / "golden"  # more recordings, where they lie
QUICK = ("e7_script_easier_oracle", "e9_script_dying_resets")  # those with what no other recording has
FILES = [*sorted(DATA.glob("ellm_[es]*.npz")), *sorted(DATA.glob("bk_crafter_*.npz"))]
TABLE = "ellm_success_table"  # table of all actions in hundreds of states, which takes longest


def elsewhere() -> list:
    """The further recordings: those that are not among FILES under another name."""
    known = {path.read_bytes() for path in FILES}
    paths = sorted([*SHARED.glob("ellm/episodes/*.npz"), *SHARED.glob("bk/crafter_*.npz")])
    return [
        pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.slow)
        for path in paths
        if path.read_bytes() not in known
    ]


def failed(npz: crafter.Npz) -> set[str]:
    return {name for name, error, tolerance in crafter.check(npz) if error > tolerance}


@pytest.mark.parametrize(
    "path",
    [*(pytest.param(path, marks=pytest.mark.slow if path.stem == TABLE else ()) for path in FILES), *elsewhere()],
    ids=lambda path: path.stem,
)
def test_recorded_values(path):
    npz = read(path)
    assert crafter.recognises(npz) and crafter.check(npz) and not failed(npz)


@pytest.mark.parametrize(
    "file, array, output",
    [
        ("ellm_e2_random139_gpt_hash", "state_inventory", "status_text"),
        ("ellm_e2_random139_gpt_hash", "world_semantic_0", "first map"),
        ("ellm_e2_random139_gpt_hash", "frames_rgb64", "picture"),
        ("ellm_e2_random139_gpt_hash", "state_oracle", "oracle"),
        ("ellm_e2_random139_gpt_hash", "step_text_reward", "paid"),
        ("ellm_e2_random139_gpt_hash", "state_suggested", "suggested"),
        ("ellm_e2_random139_gpt_hash", "state_lm_achieved", "achieved"),
        pytest.param(TABLE, "inv_delta", "inv_delta", marks=pytest.mark.slow),
        ("bk_crafter_Crafter-Text-CollectDrink_s12", "inventory", "caption"),
    ],
)
def test_one_changed_number_is_noticed(file, array, output):
    npz = read(DATA / f"{file}.npz")
    changed = npz[array].copy()
    changed[5] = np.where(changed[5] > 0, changed[5] - 1, 1) if changed[5].ndim == 1 else changed[5] + 1
    assert output in failed({**npz, array: changed})


def test_one_changed_caption_is_noticed():
    npz = read(DATA / "bk_crafter_caption_cases.npz")
    texts = json.loads(str(npz["texts"]))
    texts["rows"][7]["caption"] += "."
    assert failed({**npz, "texts": np.array(json.dumps(texts))}) == {"caption"}


def test_other_kinds_are_not_recognised():
    assert not crafter.recognises({"w/weight": np.zeros(1), "in/obs": np.zeros(1)})
