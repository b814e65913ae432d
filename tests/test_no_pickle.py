"""No file can run code: nothing here reads what Python's pickles, or source text, could be hidden in."""

import ast
import os
import pathlib
import pickle
import zipfile
from collections.abc import Iterator

import numpy as np
import pytest

from oni_jax.offline.dataset import open_array
from oni_jax.offline.preference_file import PreferenceFile
from oni_jax.published.state_dict import read_checkpoint
from oni_jax.runs.message_counts import FILE_NAME, MessageCounts
from oni_jax.settings.fields import UserError
from tests.support.processes import ROOT

RUN_CODE = {"pickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "pandas"}
# Uses that are allowed: pipes between a program's processes, an error's name, and an unpickler that makes nothing but
# arrays and numbers (tests/offline/test_segment_published.py).
MAY_USE = {
    "oni_jax/annotation/service.py": {"pickle.loads"},
    "oni_jax/published/state_dict.py": {"pickle.UnpicklingError"},
    "oni_jax/offline/segment_published.py": {"pickle.Unpickler", "pickle.UnpicklingError"},
    "benchmarks/harness.py": {"pickle.PROTO", "pickle.dumps", "pickle.loads"},
}
SAFE_WITH = {  # call -> the argument that it needs
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
    "torch.load": ("weights_only", True),
}


def name_of(node: ast.AST) -> str:
    """`a.b.c` of names joined by dots, else nothing."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def findings(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and name_of(node).split(".")[0] in RUN_CODE:
            yield name_of(node)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.asname and alias.name.split(".")[0] in RUN_CODE)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in RUN_CODE:
            yield f"from {node.module}"
        elif isinstance(node, ast.ImportFrom) and node.module in ("numpy", "torch"):
            yield from (f"{node.module}.load" for alias in node.names if alias.name == "load")
        elif isinstance(node, ast.Call):
            given = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
            if name_of(node.func) in ("eval", "exec") or given.get("allow_pickle"):
                yield name_of(node.func)
            argument, value = SAFE_WITH.get(name_of(node.func), (None, None))
            if argument and given.get(argument) is not value:
                yield f"{name_of(node.func)} without {argument}={value}"


def sources() -> list[pathlib.Path]:
    return [path for folder in ("oni_jax", "launch", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_reader_can_run_code(path):
    assert set(findings(path.read_text())) <= MAY_USE.get(str(path.relative_to(ROOT)), set())


@pytest.mark.parametrize(
    "text",
    [
        "import pickle\npickle.load(f)",
        "import pickle as p",
        "from pickle import load",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "from numpy import load",
        "np.lib.format.read_array(f, allow_pickle=True)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "eval(text)",
        "joblib.load(path)",
    ],
)
def test_the_checker_itself(text):
    assert list(findings(text))


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, trace: str):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (self.trace,)


def bomb(path: pathlib.Path, trace: pathlib.Path) -> None:
    """An .npy or .npz file whose arrays are pickles."""
    array = np.empty(3, object)
    array[0] = Bomb(str(trace))
    if path.suffix == ".npz":
        np.savez(path, messages=array, counts=array)
    else:
        np.save(path, array, allow_pickle=True)


def test_files_that_would_run_something_are_refused(tmp_path):
    trace = tmp_path / "trace"
    (tmp_path / "preference").mkdir()
    for name in (FILE_NAME, "weights.npz", "weights.pt.npy", "preference/a.npy"):
        bomb(tmp_path / name, trace)
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Bomb(str(trace))))
    (tmp_path / "pickle.npy").write_bytes(pickle.dumps(Bomb(str(trace))))
    attempts = [
        lambda: MessageCounts().restore(str(tmp_path)),
        lambda: read_checkpoint(str(tmp_path / "weights.npz")),
        lambda: read_checkpoint(str(tmp_path / "pickle.npz")),
        lambda: open_array(str(tmp_path / "preference" / "a.npy")),
        lambda: open_array(str(tmp_path / "pickle.npy")),
        lambda: PreferenceFile(str(tmp_path), "a", 3, range(3)),
    ]
    for attempt in attempts:
        with pytest.raises(UserError) as error:
            attempt()
        assert "\n" not in str(error.value)
    for name in ("pickle.npz", "weights.pt.npy"):
        (tmp_path / FILE_NAME).unlink()
        os.link(tmp_path / name, tmp_path / FILE_NAME)
        with pytest.raises(UserError, match=FILE_NAME):
            MessageCounts().restore(str(tmp_path))
    assert not trace.exists()
    with np.load(tmp_path / "weights.npz", allow_pickle=True) as arrays:  # the code that was kept from running
        assert arrays["messages"] is not None and trace.exists()


def test_a_file_that_would_unpack_to_gigabytes_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / FILE_NAME, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("messages.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (101 << 20,)})
            for _ in range(101):
                file.write(b" " * (1 << 20))
        with archive.open("counts.npy", "w") as file:
            np.save(file, [1])
    with pytest.raises(UserError, match=FILE_NAME):
        MessageCounts().restore(str(tmp_path))
