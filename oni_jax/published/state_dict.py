"""PyTorch checkpoints as NumPy arrays, read without running code from them."""

import contextlib
import math
import pickle
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from oni_jax.host.files import open_regular
from oni_jax.host.npz import open_npz
from oni_jax.host.runtime import memory_bytes
from oni_jax.settings.fields import UserError

# A parameter that only this kind of network has.
MARKS = {
    "policy": "critic_linear.weight",
    "ranking model": "reward_fn.1.weight",
    "message classifier": "net.0.weight",
    "Preference Transformer": "preference_attention.value_embed.weight",
}
_NUMBERS = "iuf"  # kinds of NumPy's types
_SAFE_TORCH = (2, 6)  # older ones could be made to run code nevertheless (CVE-2025-32434)
_NEEDS_TORCH = "reading it needs PyTorch 2.6 or newer (pip install torch), or its state dict as an .npz"


class StateDict(NamedTuple):
    """One network of a checkpoint."""

    kind: str  # a key of MARKS
    weights: Mapping[str, np.ndarray]  # published name -> weights, float32
    left_out: tuple[str, ...]  # other names beside its parameters'


def read_checkpoint(path: str) -> Mapping[str, Any]:
    """Reads a PyTorch file, or an .npz: nested dicts and lists of arrays and plain values.

    Raises:
        UserError: it can't be read, or not without running code, or there is no PyTorch to read it.
    """
    try:
        with open_regular(path, follows_links=True) as file:
            is_npz = path.endswith(".npz") and file.read(2) == b"PK"
        content = _read_npz(path) if is_npz else _read_torch(path)
    except UserError:
        raise
    except pickle.UnpicklingError as error:  # whose text explains how to run the code
        needed = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it needs {needed[1]}, and only arrays and plain values are read" if needed else "it is damaged"
        raise UserError(f"{path} can't be read: {reason}") from None
    except Exception as error:  # PyTorch, zip and NumPy raise many types for damaged files
        reason = str(error.strerror) if isinstance(error, OSError) else type(error).__name__
        raise UserError(f"{path} can't be read ({reason}): name a PyTorch checkpoint") from None
    if not isinstance(content, Mapping):
        raise UserError(f"{path} holds a {type(content).__name__}, not the dict of a PyTorch checkpoint")
    return content


def find_network(content: Mapping[str, Any], kinds: tuple[str, ...]) -> StateDict:
    """Finds the only network of these kinds in a checkpoint, however nested, and whatever its names' prefix.

    Raises:
        UserError: there is none, or more than one.
    """
    found = []
    for arrays in _dicts_of_arrays(content):
        for kind in kinds:
            prefixes = [name.removesuffix(MARKS[kind]) for name in arrays if name.endswith(MARKS[kind])]
            found += [(kind, prefix, arrays) for prefix in prefixes if prefix[-1:] in ("", ".", "/")]
    if len(found) != 1:
        names = [name for arrays in _dicts_of_arrays(content) for name in arrays]
        what = f"{len(found)} networks" if found else "no network"
        wanted = " or ".join(f"{kind} ({MARKS[kind]})" for kind in kinds)
        raise UserError(f"holds {what} of the kind {wanted}; it holds {', '.join(names[:4]) or 'no arrays'} …")
    kind, prefix, arrays = found[0]
    parameter = re.compile(re.escape(prefix) + r"(.*[._])?(weight|bias)[^.]*")
    found_weights = {name: array for name, array in arrays.items() if parameter.fullmatch(name)}
    for name, array in found_weights.items():
        if array.dtype.kind not in _NUMBERS:
            raise UserError(f"holds no numbers in {name}, but the type {array.dtype}")
    weights = {name.removeprefix(prefix): array.astype(np.float32) for name, array in found_weights.items()}
    for name, array in weights.items():
        if not np.isfinite(array).all():
            raise UserError(f"holds NaN or inf, in {name}")
    return StateDict(kind, weights, tuple(name for name in arrays if not parameter.fullmatch(name)))


def find_number(content: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    """Finds the only single number under one of these names, however nested; None without one, or with several."""
    numbers = {_single_number(value) for key, value in _entries(content) if key in names} - {None}
    return numbers.pop() if len(numbers) == 1 else None


def _single_number(value: Any) -> float | None:
    with contextlib.suppress(ValueError):  # lists of several lengths
        array = np.asarray(value)
        if array.size == 1 and array.dtype.kind in _NUMBERS and np.isfinite(array).all():
            return float(array.item())
    return None


def find_table(content: Mapping[str, Any], keys: tuple[float, ...]) -> dict[float, float] | None:
    """Finds the first dict, however nested, with a number for each of these keys, also where they are strings."""
    for _, value in _entries(content):
        if isinstance(value, Mapping):
            with contextlib.suppress(TypeError, ValueError, OverflowError):  # other keys, other values
                table = {round(float(key), 6): float(np.squeeze(entry)) for key, entry in value.items()}
                if table.keys() >= set(keys) and all(math.isfinite(table[key]) for key in keys):
                    return {key: table[key] for key in keys}
    return None


def _entries(content: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every value at any depth, with the last part of its name."""
    yield key.rpartition(".")[2], content
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _entries(value, str(name))


def _dicts_of_arrays(content: Mapping[str, Any]) -> Iterator[dict[str, np.ndarray]]:
    for _, value in _entries(content):
        if isinstance(value, Mapping):
            yield {str(name): array for name, array in value.items() if isinstance(array, np.ndarray)}


def _read_npz(path: str) -> dict[str, np.ndarray]:
    with open_npz(path, follows_links=True) as (arrays, headers):
        total = sum(header.num_bytes for header in headers.values())
        if total > memory_bytes() // 2:
            gib = total / 2**30
            raise UserError(f"{path} is too large for this machine's memory, with {gib:.1f} GiB unpacked; name another")
        return dict(arrays)


def _read_torch(path: str) -> Any:
    try:
        import torch
    except ImportError:
        raise UserError(f"{path}: {_NEEDS_TORCH}") from None
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _SAFE_TORCH:
        raise UserError(f"{path}: {_NEEDS_TORCH}; this is {torch.__version__}")
    with torch.serialization.safe_globals(_numpy_globals()):
        return _to_numpy(torch.load(path, map_location="cpu", weights_only=True), torch.Tensor)


def _numpy_globals() -> list[Any]:
    """Returns the globals that pickled NumPy numbers and arrays need, under the names of NumPy 1 and 2."""
    functions: list[Any] = [np.float32(0).__reduce__()[0], np.zeros(1).__reduce__()[0]]
    old_names = [(function, f"numpy.core.multiarray.{function.__name__}") for function in functions]
    dtypes = [type(np.dtype(name)) for name in ("f4", "f8", "i4", "i8", "?")]
    return [*functions, *old_names, np.ndarray, np.dtype, *dtypes]


def _to_numpy(value: Any, tensor_type: type) -> Any:
    if isinstance(value, tensor_type):
        return value.detach().float().numpy()
    if isinstance(value, Mapping):
        return {str(name): _to_numpy(part, tensor_type) for name, part in value.items()}
    return value
