"""python -m tests.golden.check FILE…: computes recorded values again and prints the largest error of each.

A folder, such as tests/golden/data, stands for its files of a known kind. Tests compare others, see `compared`: the
test of one that is named is run on it. Few are known, and not computed again; a line gives the reason.

Exits with 0 when all are within their tolerance, 1 when one is not, 2 when a file could not be checked: it can't be
read, or is of no known kind.
"""

import os
import pathlib
import sys
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from tests.golden import compared


def checkers() -> tuple[ModuleType, ...]:
    """One module a kind: `recognises(npz)`, `check(npz) -> [(output, largest error, allowed)]`."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the recordings are float32 throughout
    from tests.golden import babyai, crafter, episodes, moments, networks, reward_models, shapings

    return babyai, crafter, episodes, networks, moments, reward_models, shapings


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Every array of an .npz file, its name, and the texts of a .json of that name beside it.

    Raises OSError or ValueError when it is none.
    """
    try:
        with np.load(path, allow_pickle=False) as npz:
            arrays = {name: npz[name] for name in npz.files}
    except OSError:
        raise
    except Exception as error:  # damaged bytes lead to those of zip, of zlib, of the header's parser and others
        reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise ValueError(f"not an .npz file ({reason})") from error
    texts = path.with_suffix(".json")
    return {**arrays, "name": np.array(path.stem), "texts": np.array(texts.read_text())} if texts.exists() else arrays


def check_file(path: pathlib.Path) -> int:
    """Prints what was found; the file's exit code."""
    if path.suffix == ".json" and not compared.name_of(path) and path.with_suffix(".npz").exists():
        path = path.with_suffix(".npz")  # the JSON holds its texts
    if path.exists() and (name := compared.name_of(path)):
        return compared.compare_by_test(name, path)
    try:
        npz = read(path)
    except (OSError, ValueError) as error:
        print(f"{path}: can't be read: {error}")
        return 2
    checker = next((module for module in checkers() if module.recognises(npz)), None)
    if checker is None:
        print(f"{path}: no known kind of golden file; it holds {', '.join(sorted(npz)[:5]) or 'nothing'} …")
        return 2
    try:
        results = checker.check(npz)
    except Exception as error:  # whatever a damaged file leads to must be said in one line
        reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        print(f"{path}: FAILED: could not be computed again: {reason}")
        return 1
    failed = sum(not error <= tolerance for _, error, tolerance in results)
    print(f"{path}: {f'FAILED: {failed} of {len(results)} outputs differ' if failed else 'ok'}")
    for name, error, tolerance in results:
        print(f"  {name:62s} {error:10.3g}  allowed {tolerance:g}{'' if error <= tolerance else '  <-- differs'}")
    return 1 if failed else 0


def main(arguments: Sequence[str]) -> int:
    """The exit code for these files: the worst one."""
    if not arguments:
        print("usage: python -m tests.golden.check FILE…, such as tests/golden/data")
        return 2
    given = [pathlib.Path(argument) for argument in arguments]
    return max(check_file(path) for value in given for path in known_files(value) or [value])


def known_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """A folder's recordings that can be checked; none of what is no folder."""
    paths = sorted(folder.glob("*.npz")) if folder.is_dir() else []
    return [path for path in paths if any(module.recognises(read(path)) for module in checkers())]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
