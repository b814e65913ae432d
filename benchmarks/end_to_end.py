"""Training runs: environment steps a second, and memory of all processes, for each reward type in turn.

    python -m benchmarks.end_to_end --secs 300 --repeats 2 --json end_to_end.json

Every run is a new `python -m launch.train`, in a fresh folder. The first `--warm_up_secs` of training are left
out. Runs of the reward types alternate, so that a drift of the machine's speed affects all equally; `ratio_to_none` is
labels on against off. The table shows fractions of time spent waiting.
"""

import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from benchmarks.harness import JSON, alternate, num_repeats, ratio, run_app, sized, spread, write_report
from benchmarks.reward_files import REWARD_TYPES
from benchmarks.training import SMOKE_FLAGS, Run, train

FLAGS = "--num_workers 2 --num_envs_per_worker 20 --batch_size 4096"
_SECS = flags.DEFINE_float("secs", 120.0, "Seconds of training in a run, warm-up included.")
_WARM_UP_SECS = flags.DEFINE_float(
    "warm_up_secs", None, "Seconds of training left out at the start of a run. (default: 30; none with --smoke)"
)
_REWARD_TYPES = flags.DEFINE_list("reward_types", REWARD_TYPES, "Reward types, run in turn.")
_FLAGS = flags.DEFINE_string("train_flags", None, f"Flags of every run. (default: {FLAGS}; small with --smoke)")


def run_once(reward_type: str) -> dict[str, Any]:
    """Runs a training. Returns its rates, waits and memory."""
    run = train(reward_type, (_FLAGS.value or sized(FLAGS, SMOKE_FLAGS)).split(), _SECS.value)
    warm_up_secs = sized(30.0, 0.0) if _WARM_UP_SECS.value is None else _WARM_UP_SECS.value
    measured = [row for row in run.rows if row["secs"] >= warm_up_secs]
    if len(measured) < 2:
        raise RuntimeError(f"fewer than two rows of metrics after {warm_up_secs} s: use a larger --secs")
    first, last = measured[0], measured[-1]
    waits = [name for name in last if name.endswith(("_waits_fraction", "_wait_fraction", "_paused_fraction"))]
    return {
        "env_steps_per_sec": (last["env_steps"] - first["env_steps"]) / (last["secs"] - first["secs"]),
        "peak_memory_bytes": max(run.memory_bytes),
        "memory_growth": memory_growth(run.memory_bytes, warm_up_secs / last["secs"]),
        "gpu_idle_fraction": gpu_idle_fraction(run, warm_up_secs),
        "waits": {name: statistics.mean(row[name] for row in measured) for name in waits},
        "policy_lag_mean": statistics.mean(row["policy_lag_mean"] for row in measured),
        "summary": run.summary,
    }


def memory_growth(samples: Sequence[int], skipped_fraction: float) -> float:
    """Returns median of the last tenth of the samples / median of the first tenth, after the skipped ones."""
    settled = samples[round(skipped_fraction * len(samples)) :]
    length = max(1, len(settled) // 10)
    return statistics.median(settled[-length:]) / statistics.median(settled[:length])


def gpu_idle_fraction(run: Run, warm_up_secs: float) -> float | None:
    """Returns the fraction of time in which no kernel ran, by nvidia-smi; None without a GPU."""
    busy = run.gpu_busy_fractions[round(len(run.gpu_busy_fractions) * warm_up_secs / run.rows[-1]["secs"]) :]
    return 1 - statistics.mean(busy) if busy else None


def print_waits(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Prints mean fractions of waiting, a line per reward type."""
    names = list(next(iter(runs.values()))[0]["waits"])
    print(f"{'':<24}" + "".join(f"{name:>24}" for name in names))
    for reward_type, repeats in runs.items():
        fractions = [statistics.mean(run["waits"][name] for run in repeats) for name in names]
        print(f"{reward_type:<24}" + "".join(f"{fraction:>24.1%}" for fraction in fractions))


def main() -> None:
    sides = {name: functools.partial(run_once, name) for name in _REWARD_TYPES.value}
    runs = alternate(sides, sized(num_repeats(), 1))
    rates = {name: [run["env_steps_per_sec"] for run in repeats] for name, repeats in runs.items()}
    print_waits(runs)
    figures = {
        name: {
            "env_steps_per_sec": spread(rates[name]),
            **({"ratio_to_none": ratio(rates[name], rates["none"])} if "none" in rates and name != "none" else {}),
            "peak_memory_bytes": spread([run["peak_memory_bytes"] for run in repeats]),
            "runs": repeats,
        }
        for name, repeats in runs.items()
    }
    write_report(JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
