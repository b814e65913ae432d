"""Training speed before, during and after an outage of the LLM server.

    python -m benchmarks.outage --outage_secs 300 --json outage.json

Rates are medians over windows of --window_secs, robust to short disturbances. `resumed_secs` is the time from the
server's return to the first new label.
"""

import pathlib
import statistics
import tempfile
import time
from collections.abc import Sequence

from absl import app, flags

from benchmarks.harness import JSON, sized, write_report
from benchmarks.training import SMALL_FLAGS
from tests.support.faults import LabelAudit, Server, start_run, stored_labels, windows
from tests.support.launched import last_row, rows

FULL_FLAGS = "--num_workers 2 --num_envs_per_worker 20"
_OUTAGE_SECS = flags.DEFINE_float("outage_secs", None, "Seconds before, during and after the outage. (default: 300)")
_WARM_UP_SECS = flags.DEFINE_float("warm_up_secs", None, "Warm-up, not measured. (default: 60; 2 with --smoke)")
_WINDOW_SECS = flags.DEFINE_float("window_secs", None, "Seconds of a window. (default: 20; 2 with --smoke)")
_FLAGS = flags.DEFINE_string("train_flags", None, f"Flags of the run. (default: {FULL_FLAGS}; small with --smoke)")


def main(argv: Sequence[str]) -> None:
    del argv
    outage = _OUTAGE_SECS.value or sized(300.0, 8.0)
    warm_up, window = _WARM_UP_SECS.value or sized(60.0, 2.0), _WINDOW_SECS.value or sized(20.0, 2.0)
    with tempfile.TemporaryDirectory() as directory:
        server = Server(pathlib.Path(directory))
        server.start()
        words = (_FLAGS.value or sized(FULL_FLAGS, SMALL_FLAGS)).split()
        words += [f"--train_for_seconds={warm_up + 3 * outage}", "--log_every_sec=1"]
        run, folder = start_run(directory, server, "online_cls", *words)
        run.wait_for(lambda: rows(folder))
        audit = LabelAudit(folder / "labels.sqlite")
        run.wait_for(lambda: last_row(folder)["secs"] >= warm_up + outage, timeout_secs=1e9)
        server.stop()
        gone = rows(folder)[-1]["secs"]
        run.wait_for(lambda: last_row(folder)["secs"] >= warm_up + 2 * outage, timeout_secs=1e9)
        audit.look()
        held, states = len(stored_labels(folder / "labels.sqlite")), {row["server_state"] for row in rows(folder)}
        back, since = rows(folder)[-1]["secs"], time.monotonic()
        server.start()
        run.wait_for(lambda: len(stored_labels(folder / "labels.sqlite")) > held)
        resumed_secs = time.monotonic() - since
        output = run.finish(10 * outage + 300)
        own = rows(folder)
        rates = {
            "before": windows(own, warm_up, gone, window),
            "during": windows(own, gone, back, window),
            "after": windows(own, back, own[-1]["secs"], window),
        }
        medians = {name: statistics.median(values) for name, values in rates.items()}
        print(output, "\nserver states:", ", ".join(sorted(states)))
        figures = {
            "exit_code": run.process.returncode,
            "env_steps_per_sec": medians,
            "windows": rates,
            "ratio_during_to_both": medians["during"] / statistics.mean((medians["before"], medians["after"])),
            "resumed_secs": resumed_secs,
            "backlog_max": max(row["labels_backlog"] for row in own),
            "labels": audit.result(server),
            "left_over": len(run.leftovers()),
        }
        server.stop()
    write_report(JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
