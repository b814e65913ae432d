"""Networks found in checkpoints, however nested; files that are none, or that hold code."""

import pathlib
import sys

import numpy as np
import pytest

from oni_jax.published import state_dict
from oni_jax.published.state_dict import find_network, find_number, find_table, read_checkpoint
from oni_jax.settings.fields import UserError

KINDS = ("policy",)
MARK = "critic_linear.weight"
ONES = np.ones((1, 2))


def found_in(content) -> set[str]:
    return set(find_network(content, KINDS).weights)


@pytest.mark.parametrize("prefix", ["", "module.", "module.actor_critic.", "w/"])
def test_networks_are_found_at_any_depth_under_any_prefix(prefix):
    arrays = {f"{prefix}{MARK}": ONES, f"{prefix}a.bias": ONES}
    for content in (arrays, {"model": arrays}, {"a": {"state_dict": arrays}, "optimizer": {"step": ONES}, "epoch": 3}):
        network = find_network(content, KINDS)
        assert network.kind == "policy" and set(network.weights) == {MARK, "a.bias"} and network.left_out == ()
        assert network.weights["a.bias"].dtype == np.float32


def test_other_parts_of_a_file_are_left_out_and_named():
    for others in (
        {"reward_model.net.0.weight": ONES},
        {"actor_critic.mean": ONES, "actor_critic.weights.count": ONES},
    ):
        network = find_network({"actor_critic." + MARK: ONES, **others}, KINDS)
        assert set(network.weights) == {MARK} and network.left_out == tuple(others)


def test_none_or_two_networks_are_refused():
    with pytest.raises(UserError, match="no network.*critic_linear.weight.*net.0.weight"):
        find_network({"model": {"net.0.weight": ONES, "my" + MARK: ONES}}, KINDS)
    with pytest.raises(UserError, match="2 networks"):
        find_network({"model": {MARK: ONES}, "averaged": {MARK: ONES}}, KINDS)
    with pytest.raises(UserError, match=f"NaN or inf, in {MARK}"):
        find_network({MARK: ONES * np.nan}, KINDS)


def test_numbers_and_tables_are_found_by_name():
    content = {"a": {"reward.mean": np.array([0.5])}, "b": {"mean": np.ones(3)}, "var": 2}
    assert find_number(content, ("mean",)) == 0.5 and find_number(content, ("var",)) == 2
    assert find_number({**content, "mean": 0.7}, ("mean",)) is None
    keys = (0.05, 0.1)
    for table in ({0.05: 1, 0.1: 2}, {"0.05": 1.0, "0.10": np.array(2)}, {0.05: 1, 0.1: [2], 0.15000000000000002: 3}):
        assert find_table({"x": {"quantiles": table}}, keys) == {0.05: 1.0, 0.1: 2.0}
    assert find_table({"x": {0.05: 1}, "y": {"0.05": "a", "0.1": 2}}, keys) is None


def test_npz_files_are_read_without_pytorch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    path = tmp_path / "a.npz"
    np.savez(path, **{MARK: ONES})  # type: ignore
    assert found_in(read_checkpoint(str(path))) == {MARK}
    np.savez(path, a=np.array([object()]))
    assert "can't be read (ValueError)" in refusal(path)


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.ones(2, complex), np.zeros(2, "M8[s]"), np.zeros(2, "V2"), ONES > 0]
)
def test_weights_that_are_no_numbers_are_refused(array):
    with pytest.raises(UserError, match=f"no numbers in {MARK}"):
        find_network({MARK: array}, KINDS)


@pytest.mark.parametrize("value", ["x", None, np.array("x"), np.nan, np.array(1j), 10**400, [[1], [1, 2]], {"a": 1}])
def test_values_that_are_no_single_number_are_found_neither_by_name_nor_in_a_table(value):
    assert find_number({"mean": value}, ("mean",)) is None
    assert find_table({"x": {0.5: value}}, (0.5,)) is None


def test_npz_that_grows_beyond_memory_is_not_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **{MARK: np.zeros(1 << 16)})  # type: ignore
    monkeypatch.setattr(state_dict, "memory_bytes", lambda: 1 << 16)
    assert "too large for this machine's memory" in refusal(path)


def test_missing_pytorch_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    path = tmp_path / "a.pth"
    path.write_bytes(b"")
    assert refusal(path).endswith(
        "reading it needs PyTorch 2.6 or newer (pip install torch), or its state dict as an .npz"
    )
    assert "No such file" in refusal(tmp_path / "missing.pth")


def refusal(path: pathlib.Path) -> str:
    with pytest.raises(UserError) as error:
        read_checkpoint(str(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    return str(error.value)


class Code:
    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path("ran"),)


def test_pytorch_files(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.pth"
    weights = {MARK: torch.nn.Parameter(torch.ones(1, 2)), "half": torch.ones(2, dtype=torch.bfloat16)}
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(layer.parameters()).state_dict()
    numpys = {"mean": np.float64(0.5), "var": np.float32(2), "seen": np.ones(3), "quantiles": {0.5: np.int64(1)}}
    for new in (True, False):
        torch.save({"model": weights, "optimizer": optimizer, "more": numpys}, path, _use_new_zipfile_serialization=new)
        content = read_checkpoint(str(path))
        assert found_in(content) == set(weights)
        assert find_number(content, ("mean",)) == 0.5 and find_table(content, (0.5,)) == {0.5: 1}
    whole = path.read_bytes()
    for bad in (b"", b"hello", whole[: len(whole) // 2]):
        path.write_bytes(bad)
        assert "can't be read" in refusal(path)
    for bad in ({"model": weights, "x": Code()}, {"x": np.array([Code()], object)}, layer):
        torch.save(bad, path)
        assert "can't be read" in refusal(path) and "weights_only" not in refusal(path)
    assert not (tmp_path / "ran").exists()
    torch.save([1], path)
    assert "holds a list" in refusal(path)
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    assert "2.6 or newer" in refusal(path)
