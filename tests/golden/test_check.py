"""The comparison with the golden data passes on all of it, and notices one changed number of any output."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.golden import check, compared, networks

DATA = pathlib.Path(__file__).parent / "data"
# The recording of policy and loss lies in two files; without its gradients it is one of the same kind.
PARTS = {
    "policy_and_loss": ("policy_and_loss", "policy_and_loss_gradients"),
    "torchbeast_all": ("torchbeast_all",),
    "torchbeast_message": ("torchbeast_message",),
    "torchbeast_message_small": ("torchbeast_message_small",),
    "running_mean_std": ("running_mean_std",),
    "classifier": ("classifier",),
    "ranking_loss": ("ranking_loss",),
}
EPISODE = DATA / "NetHackOracleExtendedActions-v1_seed52.npz"
NUM_OUTPUTS = {
    "policy_and_loss": 36,
    "torchbeast_all": 3,
    "running_mean_std": 2,
    "classifier": 3,
    "ranking_loss": 1,
}  # all others have 2


def outputs_of(names):
    return [name for name in names if name.startswith(("out/", "g/")) or name in ("means", "variances", "loss")]


def save(path, arrays):
    np.savez(path, **arrays)


def load(name):
    return {key: array for part in PARTS[name] for key, array in check.read(DATA / f"{part}.npz").items()}


FILES = {name: load(name) for name in PARTS}
OUTPUTS = [(name, output) for name, npz in FILES.items() for output in outputs_of(npz)]


@pytest.fixture(scope="module", autouse=True)
def computed_once():
    """The same weights and inputs are computed once."""
    results = {}

    def once(compute):
        def cached(npz):
            key = tuple((name, npz[name].tobytes()) for name in npz if name.startswith(("w/", "in/")))
            if key not in results:
                results[key] = compute(npz)
            return results[key]

        return cached

    with pytest.MonkeyPatch.context() as patch:
        for name in ("policy_outputs", "torchbeast_outputs"):
            patch.setattr(networks, name, once(getattr(networks, name)))
        yield


def run(npz, monkeypatch, capsys):
    """Exit code and printed lines for these arrays."""
    monkeypatch.setattr(check, "read", lambda path: npz)
    code = check.main(["some.npz"])
    return code, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", PARTS)
def test_recorded_values_are_met(name, monkeypatch, capsys):
    code, lines = run(FILES[name], monkeypatch, capsys)
    assert code == 0 and lines[0] == "some.npz: ok"
    assert [line.split()[0] for line in lines[1:]] == outputs_of(FILES[name])
    assert len(lines) == 1 + NUM_OUTPUTS.get(name, 2)


@pytest.mark.parametrize(("name", "output"), OUTPUTS)
def test_one_changed_number_is_noticed(name, output, monkeypatch, capsys):
    array = FILES[name][output].copy()
    largest = np.unravel_index(np.abs(array).argmax(), array.shape)
    if np.issubdtype(array.dtype, np.integer):
        array[largest] += 1
    else:
        array[largest] *= 1.005 if output.startswith("g/") else 1.0003
    code, lines = run({**FILES[name], output: array}, monkeypatch, capsys)
    assert code == 1 and lines[0] == f"some.npz: FAILED: 1 of {len(lines) - 1} outputs differ"
    assert [line.split()[0] for line in lines if line.endswith("<-- differs")] == [output]


@pytest.mark.parametrize("name", [name for name in PARTS if name != "ranking_loss"])  # whose output is one number
def test_a_nan_and_a_lost_row_are_noticed(name, monkeypatch, capsys):
    output = outputs_of(FILES[name])[0]
    array = FILES[name][output].astype(np.float64)
    for changed in (np.full_like(array, np.nan), array[1:]):
        assert run({**FILES[name], output: changed}, monkeypatch, capsys)[0] == 1


def test_changed_weights_and_inputs_are_noticed(monkeypatch, capsys):
    npz = FILES["torchbeast_message_small"]
    weight = npz["w/encoder.fc.2.bias"] + 0.01
    assert run({**npz, "w/encoder.fc.2.bias": weight}, monkeypatch, capsys)[0] == 1
    npz = FILES["classifier"]
    assert run({**npz, "w/net.0.bias": npz["w/net.0.bias"] + 0.01}, monkeypatch, capsys)[0] == 1
    npz = FILES["ranking_loss"]
    assert run({**npz, "labels": np.roll(npz["labels"], 1)}, monkeypatch, capsys)[0] == 1
    npz = FILES["running_mean_std"]
    assert run({**npz, "batch2": npz["batch2"] * 1.01}, monkeypatch, capsys)[0] == 1


def test_rounding_is_allowed(monkeypatch, capsys):
    npz = FILES["torchbeast_message_small"]
    assert run({**npz, "out/reward": npz["out/reward"] * 1.00005}, monkeypatch, capsys)[0] == 0


def test_episode(tmp_path, capsys):
    npz = check.read(EPISODE)
    npz["reward"][~npz["done"]] += 0.001
    changed = tmp_path / "changed.npz"
    save(changed, npz)
    assert check.main([f"{EPISODE}"]) == 0
    assert check.main([f"{EPISODE}", f"{changed}"]) == 1
    assert f"{changed}: FAILED: 1 of " in capsys.readouterr().out


def test_exit_code_of_the_command(tmp_path):
    npz = FILES["running_mean_std"]
    save(tmp_path / "changed.npz", {**npz, "means": npz["means"] + 1})
    command = [sys.executable, "-m", "tests.golden.check", DATA / "running_mean_std.npz", tmp_path / "changed.npz"]
    result = subprocess.run(command, cwd=DATA.parents[2], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and ": ok\n" in result.stdout and "FAILED: 1 of 2" in result.stdout


def damaged(path, kind):
    """A path at which there is no golden file."""
    if kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("hello\n")
    elif kind == "empty":
        path.touch()
    elif kind == "array":
        with path.open("wb") as file:
            np.save(file, np.arange(3))
    elif kind == "pickle":
        save(path, {"x": np.array([{}], dtype=object)})
    elif kind == "nothing":
        save(path, {})
    elif kind == "foreign":
        save(path, {f"array{i}": np.zeros(2) for i in range(9)})
    elif kind == "missing":
        pass
    elif kind == "cut":
        path.write_bytes((DATA / "classifier.npz").read_bytes()[:5000])
    else:  # bytes overwritten, which zlib, zip's check sums or the parser of an array's header notices
        content = bytearray((DATA / "classifier.npz").read_bytes())
        start, fill = {"compressed": (200, b"\xff"), "checksum": (2000, b"\0"), "header": (200, b"\0")}[kind]
        content[start : start + 1000] = fill * 1000
        path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "kind",
    "missing folder text empty array pickle nothing foreign cut compressed checksum header".split(),
)
def test_file_that_is_not_golden_takes_one_line(kind, tmp_path, capsys):
    path = damaged(tmp_path / "some.npz", kind)
    assert check.main([f"{path}"]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{path}: ")


def test_error_in_a_computation_is_a_failure_in_one_line(monkeypatch, capsys):
    npz = dict(FILES["torchbeast_message_small"])
    del npz["w/encoder.conv1.weight"]
    code, lines = run(npz, monkeypatch, capsys)
    assert code == 1 and len(lines) == 1 and "could not be computed again" in lines[0]

    def fail(npz):
        raise AssertionError

    monkeypatch.setattr(networks, "check", fail)
    assert run(npz, monkeypatch, capsys) == (1, ["some.npz: FAILED: could not be computed again: AssertionError"])


def test_recording_that_a_test_compares_is_checked_by_it(tmp_path, capsys):
    with np.load(DATA / "ellm_rnd_reward.npz") as npz:
        arrays = dict(npz)
    (tmp_path / "ellm").mkdir()
    path = tmp_path / "ellm" / "rnd_reward.npz"  # as in a folder of one system
    for change, code, word in ((1.0, 0, "ok"), (1.1, 1, "FAILED")):
        np.savez(path, **{**arrays, "rewards_two_calls": change * arrays["rewards_two_calls"]})
        assert check.main([str(path)]) == code
        assert f"{path}: {word}: tests/golden/test_ellm_curiosity.py: " in capsys.readouterr().out


def test_recording_of_what_is_not_carried_over_is_known(tmp_path, capsys):
    (tmp_path / "ellm").mkdir()
    (tmp_path / "ellm" / "dqn_update.npz").write_bytes(b"")
    assert check.main([str(tmp_path / "ellm" / "dqn_update.npz")]) == 0
    assert "known, and not computed again: the DQN is not carried over" in capsys.readouterr().out


def test_texts_beside_a_recording_are_checked_with_it(capsys):
    path = DATA / "bk_crafter_caption_cases.json"
    assert check.main([str(path)]) == 0
    assert f"{path.with_suffix('.npz')}: ok" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["bk/transcripts", "bk/preference_small_gradient_norms", "bk/potentials_descriptions"])
def test_texts_that_nothing_computes_again_are_known(tmp_path, capsys, name):
    path = tmp_path / f"{name}.json"
    path.parent.mkdir()
    path.write_text("{}")
    assert check.main([str(path)]) == 0
    assert "known, and not computed again: " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["normal", "sparse", "zero"])
def test_recorded_shaping_is_computed_again(tmp_path, capsys, name):
    with np.load(DATA / f"bk_shaping_{name}.npz") as npz:
        arrays = dict(npz)
    for change, code in ((0.0, 0), (0.01, 1)):
        save(tmp_path / "some.npz", {**arrays, "shaped/shaped_rewards": arrays["shaped/shaped_rewards"] + change})
        assert check.main([str(tmp_path / "some.npz")]) == code
        assert ("some.npz: ok" in capsys.readouterr().out) == (code == 0)


def test_every_test_of_a_recording_is_there():
    assert all((compared.ROOT / path).exists() and (DATA / name).exists() for name, path in compared.TESTS.items())


def test_no_file_is_a_wrong_use(capsys):
    assert check.main([]) == 2
    assert "tests/golden/data" in capsys.readouterr().out


def test_folder_stands_for_its_files_of_a_known_kind(tmp_path, capsys):
    for name in ("running_mean_std", "bk_rnd_training"):  # a test compares the other
        (tmp_path / f"{name}.npz").write_bytes((DATA / f"{name}.npz").read_bytes())
    assert check.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "running_mean_std.npz: ok" in said and "bk_rnd_training" not in said
    assert len(check.known_files(DATA)) > 20
