"""The golden check sees every output that is off, and says what it can't check."""

import json
import os
import pathlib

import numpy as np
import pytest

from tests.golden import check, moments, networks

DATA = pathlib.Path(__file__).parent / "data"
SHARED = pathlib.Path(__file__).parents[2].parent / "shared" / "golden"  # holds what is too large to be copied
POLICY = SHARED / "policy_and_loss.npz"
needs_policy = pytest.mark.skipif(not POLICY.exists(), reason=f"{POLICY} is not here")
FILES = [
    pytest.param(POLICY, marks=needs_policy),
    *(DATA / f"{name}.npz" for name in ("torchbeast_all", "torchbeast_message", "torchbeast_message_small")),
    DATA / "running_mean_std.npz",
]


def checker_of(path: pathlib.Path):
    return moments if path.stem == "running_mean_std" else networks


def changed(array: np.ndarray, index: int) -> np.ndarray:
    """One number off: integers by 1, others by 1 % of the largest."""
    array = array.copy()
    flat = array.reshape(-1)
    flat[index] += 1 if np.issubdtype(array.dtype, np.integer) else 0.01 * np.abs(array).max()
    return array


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_passes_as_recorded_and_fails_with_one_number_of_any_output_changed(path, monkeypatch):
    npz = check.read(path)
    module = checker_of(path)
    assert [other.recognises(npz) for other in check.checkers()] == [other is module for other in check.checkers()]
    outputs = [name for name in npz if name.startswith(("out/", "g/")) or name in ("means", "variances")]
    if module is networks:  # computed once, compared many times
        once = networks.policy_outputs(npz) if path == POLICY else networks.torchbeast_outputs(npz)
        monkeypatch.setattr(networks, "policy_outputs", lambda _: once)
        monkeypatch.setattr(networks, "torchbeast_outputs", lambda _: once)
    results = module.check(npz)
    assert [name for name, _, _ in results] == outputs
    assert all(error <= tolerance for _, error, tolerance in results)
    for output in outputs:
        for index in {0, npz[output].size - 1}:
            results = module.check(npz | {output: changed(npz[output], index)})
            assert {name for name, error, tolerance in results if not error <= tolerance} == {output}


def test_nan_and_wrong_shapes_are_errors():
    recorded = np.ones(3, np.float32)
    assert networks.compare("out/x", recorded, recorded)[1] == 0
    for computed in (np.array([1, np.nan, 1]), np.ones(4), None):
        name, error, tolerance = networks.compare("out/x", recorded, computed)
        assert not error <= tolerance


def test_command_line_exit_codes(tmp_path, capsys):
    good = DATA / "running_mean_std.npz"
    assert check.main([str(good)]) == 0
    assert "ok" in capsys.readouterr().out

    npz = check.read(good)
    np.savez(tmp_path / "off.npz", **npz | {"means": changed(npz["means"], 2)})
    assert check.main([str(good), str(tmp_path / "off.npz")]) == 1
    assert "means" in capsys.readouterr().out.splitlines()[-2]

    np.savez(tmp_path / "other.npz", a=np.ones(3))
    (tmp_path / "text.npz").write_text(json.dumps({}))
    (tmp_path / "empty.npz").touch()
    for name in ("other.npz", "text.npz", "empty.npz", "missing.npz"):
        assert check.main([str(tmp_path / name)]) == 2
        assert len(capsys.readouterr().out.splitlines()) == 1
    assert check.main([]) == 2


def test_reward_models_are_named_as_unchecked(tmp_path, capsys):
    np.savez(tmp_path / "ranking.npz", rewards=np.ones((3, 2)), labels=np.arange(3), loss=np.float64(0.7))
    np.savez(
        tmp_path / "classifier.npz", **{name: np.ones(2) for name in ("in/labels", "out/logits", "out/predictions")}
    )
    for name in ("ranking.npz", "classifier.npz"):
        assert check.main([str(tmp_path / name)]) == 1
        assert check.UNCHECKED in capsys.readouterr().out


def test_an_episode_is_recognised(capsys):
    path = DATA / "NetHackOracleExtendedActions-v1_seed52.npz"
    assert check.main([os.fspath(path)]) == 0
    assert "reset_at" in capsys.readouterr().out


def test_a_damaged_file_of_a_known_kind_is_one_line_and_a_failure(tmp_path, capsys):
    npz = check.read(DATA / "torchbeast_message_small.npz")
    del npz["w/encoder.conv1.weight"]
    np.savez(tmp_path / "damaged.npz", **npz)
    assert check.main([str(tmp_path / "damaged.npz")]) == 1
    out = capsys.readouterr().out
    assert "FAILED" in out
    assert len(out.splitlines()) == 1
