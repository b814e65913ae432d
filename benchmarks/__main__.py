"""Runs the whole suite, each part in a separate process, and prints its key figures.

python -m benchmarks --out results
python -m benchmarks --smoke --only env_step,update
python -m benchmarks --with "env_step --processes=16" --with "end_to_end --secs=120"
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence

from absl import app, flags

from benchmarks.harness import REPEATS, SMOKE, print_figures, run_app
from oni_jax.settings.fields import nearest_first

PARTS = (
    "env_step",
    "inference",
    "update",
    "reward",
    "annotation",
    "end_to_end",
    "startup",
    "memory",
    "view",
    "worlds",
    "potentials",
)

_OUT = flags.DEFINE_string("out", "build/benchmarks", "Folder for the figures, <part>.json each.")
_ONLY = flags.DEFINE_list("only", [], "Parts to run; all when left out.")
_WITH = flags.DEFINE_multi_string("with", [], "'<part> --flag=value ...': flags of one part.")
_LIMIT_SECS = flags.DEFINE_float("limit_secs", 3600.0, "A part that takes longer is ended and counts as failed.")


def command_of(part: str, out: pathlib.Path) -> list[str]:
    command = [sys.executable, "-m", f"benchmarks.{part}", f"--json={out / part}.json"]
    if SMOKE.value:
        command.append("--smoke")
    if REPEATS.value:
        command.append(f"--repeats={REPEATS.value}")
    return command + [word for words in _WITH.value if words.split()[0] == part for word in words.split()[1:]]


def run_part(part: str, out: pathlib.Path) -> bool:
    """Runs a part in a process. Returns whether it succeeded."""
    command = command_of(part, out)
    # One compilation cache for all parts; `startup`, which measures compiling, has another.
    variables = {"JAX_COMPILATION_CACHE_DIR": str(out.resolve() / "compiled"), **os.environ}
    print(f"\n== {' '.join(command)}", flush=True)
    start = time.monotonic()
    try:
        succeeded = subprocess.run(command, timeout=_LIMIT_SECS.value, env=variables).returncode == 0
    except subprocess.TimeoutExpired:
        succeeded = False
    print(f"== {part} {'took' if succeeded else 'FAILED after'} {time.monotonic() - start:.0f} s", flush=True)
    return succeeded


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise app.UsageError(f"{argv[1]!r} is not a flag")
    wrong = {*_ONLY.value, *(words.split()[0] for words in _WITH.value)} - set(PARTS)
    if wrong:
        name, known = min(wrong), f"there are {', '.join(PARTS)}"
        raise app.UsageError(f"no such part: {name}{nearest_first(name, PARTS, known)}")
    parts = [part for part in PARTS if part in _ONLY.value or not _ONLY.value]
    out = pathlib.Path(_OUT.value)
    out.mkdir(parents=True, exist_ok=True)
    failed = [part for part in parts if not run_part(part, out)]
    for part in parts:
        if part not in failed:
            print(f"\n{part}")
            print_figures(json.loads((out / f"{part}.json").read_text())["figures"])
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    run_app(main, takes_words=True)
