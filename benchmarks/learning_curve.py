"""Learning curves: return, depth and episode length over environment steps and time, for each reward type.

    python -m benchmarks.learning_curve --minutes 5 --json learning_curve.json

One run of each reward type, one after the other; labels come from the rule-based judge.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from benchmarks.harness import JSON, sized, write_report
from benchmarks.training import SMOKE_FLAGS, train

_MINUTES = flags.DEFINE_float("minutes", 5.0, "Minutes of training in each run.")
_REWARD_TYPES = flags.DEFINE_list("reward_types", ["none", "online_cls"], "Reward types.")
_FLAGS = flags.DEFINE_string("train_flags", None, "Flags of every run. (default: none; small with --smoke)")
COLUMNS = (
    "secs",
    "env_steps",
    "episodes",
    "mean_return",
    "mean_length",
    "episode/dlvl",
    "episode/xlvl",
    "rewarded_steps",
)
NUM_LINES = 11


def curve(reward_type: str) -> dict[str, list[float | None]]:
    """Trains. Returns a list for each of COLUMNS, a value per row of metrics; None while no episode has ended."""
    rows = train(reward_type, (_FLAGS.value or sized("", SMOKE_FLAGS)).split(), 60 * _MINUTES.value).rows
    return {name: [row.get(name) for row in rows] for name in COLUMNS}


def print_curve(columns: Mapping[str, Sequence[Any]]) -> None:
    """Prints NUM_LINES rows, evenly spread over the run, with its last one."""
    print("".join(f"{name:>16}" for name in COLUMNS))
    last = len(columns["secs"]) - 1
    for row in sorted({round(last * i / (NUM_LINES - 1)) for i in range(NUM_LINES)}):
        values = [columns[name][row] for name in COLUMNS]
        print("".join(f"{'-' if value is None else f'{value:,.5g}':>16}" for value in values))


def main(argv: Sequence[str]) -> None:
    del argv
    curves = {name: curve(name) for name in _REWARD_TYPES.value}
    for name, columns in curves.items():
        print(name)
        print_curve(columns)
    last = {name: {column: values[-1] for column, values in columns.items()} for name, columns in curves.items()}
    write_report(JSON.value, {"last": last, "curves": curves})


if __name__ == "__main__":
    app.run(main)
