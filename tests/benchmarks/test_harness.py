"""The harness measures what it says; the suite goes on when a part fails, and says which one."""

import json
import os
import subprocess
import sys
import time

import pytest

from benchmarks import harness
from benchmarks.__main__ import PARTS
from oni_jax.host.runtime import ChildError


def run(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=120)


def test_spread_and_ratio():
    assert harness.spread([3.0, 1.0, 2.0]) == {"min": 1.0, "median": 2.0, "max": 3.0, "repeats": [3.0, 1.0, 2.0]}
    assert harness.ratio([2.0, 9.0], [1.0, 3.0])["repeats"] == [2.0, 3.0]


def test_sides_are_measured_in_turn():
    calls: list[str] = []
    sides = {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}
    assert harness.alternate(sides, 2) == {"a": [1, 4], "b": [2, 3]}


def test_a_rate_counts_items(monkeypatch):
    now = [7.0]
    monkeypatch.setattr(harness.time, "perf_counter", lambda: now[0])

    def call() -> None:
        now[0] += 0.01

    assert harness.measure_rate(call, 5, 0.095) == pytest.approx(500)


def sleep(before_secs: float, secs: float) -> harness.Work:
    """Returns the cores, and the times when it was warm, began to work, had done so and cleaned up."""
    time.sleep(before_secs)
    warm = time.monotonic()
    yield
    began = time.monotonic()
    time.sleep(secs)
    done = time.monotonic()
    yield
    return os.sched_getaffinity(0), (warm, began, done, time.monotonic())


def fail() -> harness.Work:
    yield
    raise KeyError("no such thing")


def test_processes_start_together():
    timed = harness.run_together(sleep, [(0.0, 1.0), (0.2, 1.0)])
    last_warm = max(times[0] for _, times in (timing.result for timing in timed))
    assert min(timing.start_secs for timing in timed) >= last_warm
    assert max(timing.start_secs for timing in timed) < min(timing.end_secs for timing in timed)
    for timing in timed:
        cores, (_, began, done, cleaned_up) = timing.result
        assert timing.start_secs <= began < done <= timing.end_secs <= cleaned_up and len(cores) == 1


def test_the_rate_of_several_processes_is_that_of_all_their_time():
    timed = [harness.Timed(1.0, 3.0, None), harness.Timed(2.0, 4.0, None)]
    assert harness.total_rate(timed, 60) == 20


def test_a_failing_process_is_told():
    with pytest.raises(ChildError, match="no such thing"):
        harness.run_together(fail, [()])


def test_the_report_says_where_it_ran(tmp_path):
    harness.write_report(str(tmp_path / "x.json"), {"speed": 1.0})
    report = json.loads((tmp_path / "x.json").read_text())
    assert report["figures"] == {"speed": 1.0}
    assert {"command", "commit", "cpu", "gpu", "num_cores", "jax_backend", "versions"} <= set(report["environment"])
    assert "numpy" in report["environment"]["versions"]


def test_figures_are_printed_with_their_path(capsys):
    harness.print_figures({"a": {"b": harness.spread([1.0])}, "c": [2.0], "d": 3})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["a.b", "d"]


def test_the_suite_tells_a_part_that_fails(tmp_path):
    words = ("--smoke", "--only=env_step", "--with=env_step --no_such_flag", f"--out={tmp_path}")
    result = run("benchmarks", *words)
    assert result.returncode == 1
    assert result.stdout.strip().endswith("failed: env_step")


def test_the_suite_knows_its_parts():
    result = run("benchmarks", "--only=env_steps")
    assert result.returncode == 1 and "no such part: env_steps" in result.stderr + result.stdout
    assert len(set(PARTS)) == len(PARTS)
