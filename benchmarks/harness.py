"""Common part of all measurements: flags, hardware and versions, spreads, and the JSON report."""

import json
import math
import os
import pickle
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib import metadata, util
from typing import Any, NamedTuple, NoReturn, TypeVar

from absl import app, flags

from oni_jax.host.runtime import ChildError, code_commit, start_child, stop_child
from oni_jax.settings.fields import UserError, printable

SMOKE = flags.DEFINE_bool("smoke", False, "Small sizes and few repeats: shows that it runs, not how fast.")
REPEATS = flags.DEFINE_integer(
    "repeats", None, "Times that each figure is measured. (default: of each part; 1 with --smoke)", 1
)
JSON = flags.DEFINE_string("json", "", "File for the figures.")

ROOT_ENV = "NetHackScoreExtendedActions-v1"  # the task that is measured
PACKAGES = ("jax", "jaxlib", "flax", "optax", "nle", "numpy", "aiohttp", "orbax-checkpoint", "gymnasium", "torch")

T = TypeVar("T")


def run_app(main: Callable[..., int | None], takes_words: bool = False) -> None:
    """Runs a program with absl's flags, and with the command line's words if it takes them.

    A usage error is one line, and exit code 2.
    """

    def parse(argv: Sequence[str]) -> Sequence[str]:
        try:
            return flags.FLAGS(argv)
        except flags.Error as error:
            _refuse(error)

    def run(argv: Sequence[str]) -> int | None:
        try:
            return main(argv) if takes_words else main()
        except (UserError, app.UsageError) as error:
            return _refuse(error)

    app.run(run, flags_parser=parse)


def _refuse(error: Exception) -> NoReturn:
    print(f"error: {printable(' '.join(str(error).split()))}", file=sys.stderr)
    sys.exit(2)


def num_repeats(full: int = 5) -> int:
    """Returns --repeats, else `full`, or 1 with --smoke."""
    return REPEATS.value or sized(full, 1)


def sized(full: T, smoke: T) -> T:
    """Returns `full`, or `smoke` with --smoke."""
    return smoke if SMOKE.value else full


def is_installed(package: str) -> bool:
    """Returns whether a package can be imported; says so where it can't."""
    found = util.find_spec(package) is not None
    if not found:
        print(f"{package} is not installed: left out", flush=True)
    return found


def num_cpu_devices(num_envs: int) -> int:
    """Returns the number of devices that the cores are, equally many environments on each."""
    return math.gcd(len(os.sched_getaffinity(0)), num_envs)


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Returns minimum, median and maximum over repeats, and the repeats."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values), "repeats": list(values)}


def ratio(values: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Returns the spread of value / other, paired as they were measured in turn."""
    return spread([value / other for value, other in zip(values, others, strict=True)])


def alternate(sides: Mapping[str, Callable[[], T]], repeats: int) -> dict[str, list[T]]:
    """Calls the sides in turn, `repeats` times (A B B A), so that a drift of the machine's speed, or what a side leaves
    behind for the next one, affects all. Prints each rate as it goes."""
    results: dict[str, list[T]] = {name: [] for name in sides}
    for repeat in range(repeats):
        for name in [*sides] if repeat % 2 == 0 else [*sides][::-1]:
            results[name].append(sides[name]())
            if isinstance(rate := results[name][-1], float):
                _print_line(f"  {name}, run {repeat + 1} of {repeats}", rate)
    return results


def measure_rate(call: Callable[[], object], count_per_call: int, secs: float) -> float:
    """Measures a rate per second: repeats `call`, which processes `count_per_call`, for `secs`."""
    start, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < secs or not count:
        call()
        count += 1
    return count * count_per_call / elapsed


class Timed(NamedTuple):
    """Result of a process of `run_together`; seconds of a clock common to all processes."""

    start_secs: float
    end_secs: float
    result: Any


Work = Generator[None, None, Any]
Body = Callable[..., Work]


def run_together(body: Body, arguments: Sequence[tuple]) -> list[Timed]:
    """Times work in several processes at once.

    Process i, spawned and pinned to a separate core as far as there are enough, runs the generator
    `body(*arguments[i])`: it warms up, yields, does its work, yields, cleans up and returns a result. The work, which
    is timed, begins when all are ready.
    """
    cores = sorted(os.sched_getaffinity(0))
    children = []
    try:
        for i, of_process in enumerate(arguments):
            core = cores[i % len(cores)]
            children.append(start_child(f"{body.__name__}-{i}", _timed, core, body, of_process, single_threaded=True))
        for _, connection in children:
            _receive(connection)
        for _, connection in children:
            connection.send_bytes(b"go")
        return [_receive(connection) for _, connection in children]
    finally:
        for process, connection in children:
            stop_child(process, connection)


def _timed(connection: Any, core: int, body: Body, arguments: tuple) -> None:
    os.sched_setaffinity(0, {core})
    run = body(*arguments)
    next(run)
    connection.send("ready")
    connection.recv_bytes()
    start = time.monotonic()
    next(run)
    end = time.monotonic()
    try:
        next(run)
    except StopIteration as stopped:
        connection.send(Timed(start, end, stopped.value))


def _receive(connection: Any) -> Any:
    try:
        answer = connection.recv_bytes()
    except EOFError:
        raise ChildError("a process of the measurement died") from None
    if not answer.startswith(pickle.PROTO):  # its traceback
        raise ChildError(answer.decode(errors="replace"))
    return pickle.loads(answer)


def total_rate(timed: Sequence[Timed], count: int) -> float:
    """Returns the rate per second of all processes together, from the first one's start to the last one's end."""
    return count / (max(timing.end_secs for timing in timed) - min(timing.start_secs for timing in timed))


# Names of what figures were measured on, in `environment`: machine, versions and commit.
MACHINE = ("cpu", "num_cores", "gpu", "python", "versions", "commit")


def environment() -> dict[str, Any]:
    """Returns command, commit, hardware and versions."""
    jax = sys.modules.get("jax")
    return {
        "command": " ".join([os.path.basename(sys.executable), *sys.orig_argv[1:]]),
        "commit": code_commit() or "unknown",
        "cpu": _cpu_name(),
        "num_cores": len(os.sched_getaffinity(0)),
        "gpu": _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or None,
        "jax_backend": jax.default_backend() if jax else None,  # None: this process does not use JAX
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES if util.find_spec(_module(name))},
    }


def write_report(path: str, figures: Mapping[str, Any]) -> None:
    """Prints the figures and, unless `path` is empty, writes them with their environment."""
    print_figures(figures)
    if path:
        with open(path, "w") as file:
            file.write(json.dumps({"figures": figures, "environment": environment()}, indent=2) + "\n")


def print_figures(figures: Mapping[str, Any], prefix: str = "  ") -> None:
    """Prints a line for every spread and every number, outside lists."""
    for name, value in figures.items():
        if isinstance(value, Mapping) and "median" in value:
            _print_line(prefix + name, value["median"], f"   ({value['min']:.5g} to {value['max']:.5g})")
        elif isinstance(value, Mapping):
            print_figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            _print_line(prefix + name, value)


def _print_line(name: str, value: float, more: str = "") -> None:
    print(f"{name:<56} {value:12.5g}{more}", flush=True)


def _module(package: str) -> str:
    return {"orbax-checkpoint": "orbax"}.get(package, package)


def _output(*command: str) -> str:
    """Returns a command's output; empty when the command is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
