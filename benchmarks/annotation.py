"""Throughput of the annotation service and its CPU time, against the embedded judge.

    python -m benchmarks.annotation --json annotation.json

Service and judge are processes that talk HTTP; every message is new, the label store is fresh. `at_pace` submits PACE
new messages a second, a tenth of them at a time, as a run does. In `with_answer_time` each answer takes
`--answer_secs`; `fraction_of_ideal` compares with IN_FLIGHT requests always in flight.
"""

import dataclasses
import functools
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
from absl import flags

from benchmarks.harness import JSON, alternate, num_repeats, run_app, sized, spread, write_report
from benchmarks.samples import sample_messages
from oni_jax.annotation.judge import JUDGE_MODEL, EmbeddedJudge, JudgeOptions
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.prompts import load_prompt
from oni_jax.annotation.service import AnnotationService, Question
from oni_jax.envs.nethack import ENVIRONMENT
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import Query

_ANSWER_SECS = flags.DEFINE_float("answer_secs", 2.0, "The judge's answer time in `with_answer_time`.")
_PACE_SECS = flags.DEFINE_float("pace_secs", 10.0, "Seconds of `at_pace`.")
NUM_LABELS = {"completions": 20_000, "chat": 5_000}  # labels a measurement
IN_FLIGHT = 64  # requests, with answer time
PACE = 100  # messages a second
LIST_SIZE = 100
POLL_SECS = 0.005
NUM_PENDING = 8000  # messages submitted and not labelled yet, at most; the service holds 10,000
LIMIT_SECS = 300.0  # limit for a measurement's labels

SETTINGS = {
    "completions": AnnotationConfig(llm_api="completions", llm_batch_size=LIST_SIZE),
    "chat": AnnotationConfig(llm_api="chat", llm_max_in_flight=16),
}


class Asking:
    """A running service, with the CPU time of its process."""

    def __init__(self, service: AnnotationService):
        self._service = service
        (child,) = [child for child in multiprocessing.active_children() if child.name == "annotation"]
        self._process = psutil.Process(child.pid)
        self._num_submitted = self._num_labelled = 0

    def submit(self, count: int) -> None:
        self._service.submit([Query((message,)) for message in sample_messages(count, self._num_submitted)])
        self._num_submitted += count

    def label(self, count: int) -> None:
        """Labels new messages, at most NUM_PENDING at a time; returns when all have a label."""
        end, deadline = self._num_submitted + count, time.monotonic() + LIMIT_SECS
        while self._num_labelled < end:
            if self._num_submitted - self._num_labelled <= NUM_PENDING // 2:
                self.submit(min(NUM_PENDING // 2, end - self._num_submitted))
            self.wait(POLL_SECS)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._num_labelled} of {end} labelled: {self._service.stats()}")

    def wait(self, secs: float) -> None:
        """Takes in new labels, and sleeps."""
        self._num_labelled += sum(annotation.answer is not None for annotation in self._service.poll())
        time.sleep(secs)

    def cpu_secs(self) -> float:
        used = self._process.cpu_times()
        return used.user + used.system


@contextmanager
def asking(config: AnnotationConfig, answer_secs: float = 0.0) -> Iterator[Asking]:
    """Runs a judge, and a service that has finished probing it."""
    judge = EmbeddedJudge(ENVIRONMENT.language, JudgeOptions(latency_secs=answer_secs))
    try:
        with tempfile.TemporaryDirectory() as folder:
            config = dataclasses.replace(config, llm_server_addr=judge.address, llm_model=JUDGE_MODEL)
            service = AnnotationService(
                [Question(config, load_prompt(config, ENVIRONMENT.language))], LabelStore(f"{folder}/labels.sqlite")
            )
            try:
                asked = Asking(service)
                asked.label(5)
                yield asked
            finally:
                service.close()
    finally:
        judge.close()


def throughput(config: AnnotationConfig, num_labels: int, answer_secs: float = 0.0) -> dict[str, float]:
    """Measures labels a second, and the service's CPU time per label."""
    with asking(config, answer_secs) as asked:
        start, used = time.perf_counter(), asked.cpu_secs()
        asked.label(num_labels)
        secs, used = time.perf_counter() - start, asked.cpu_secs() - used
    return {"labels_per_sec": num_labels / secs, "cpu_micros_per_label": 1e6 * used / num_labels}


def at_pace(config: AnnotationConfig, secs: float) -> dict[str, float]:
    """Measures the fraction of a core that the service uses at PACE new messages a second."""
    with asking(config) as asked:
        start, used = time.perf_counter(), asked.cpu_secs()
        for i in range(round(10 * secs)):
            asked.submit(PACE // 10)
            while (left := start + (i + 1) / 10 - time.perf_counter()) > 0:
                asked.wait(min(left, 0.02))
        asked.label(0)
        elapsed = time.perf_counter() - start
        return {
            "labels_per_sec": round(10 * secs) * (PACE // 10) / elapsed,
            "core_fraction": (asked.cpu_secs() - used) / elapsed,
        }


def with_answer_time(answer_secs: float) -> dict[str, float]:
    """Measures `chat` with IN_FLIGHT requests in flight to a slow judge."""
    config = dataclasses.replace(SETTINGS["chat"], llm_max_in_flight=IN_FLIGHT)
    measured = throughput(config, sized(5, 1) * IN_FLIGHT, answer_secs)
    return {**measured, "fraction_of_ideal": measured["labels_per_sec"] * answer_secs / IN_FLIGHT}


def spreads(measured: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Returns the spread of each figure over the repeats."""
    return {name: spread([figures[name] for figures in measured]) for name in measured[0]}


def main() -> None:
    num_labels, pace_secs = sized(NUM_LABELS, dict.fromkeys(NUM_LABELS, 200)), sized(_PACE_SECS.value, 1.0)
    sides: dict[str, Callable[[], dict[str, float]]] = {}
    for name, config in SETTINGS.items():
        sides[name] = functools.partial(throughput, config, num_labels[name])
        sides[f"{name}_at_pace"] = functools.partial(at_pace, config, pace_secs)
    sides["chat_with_answer_time"] = functools.partial(with_answer_time, sized(_ANSWER_SECS.value, 0.2))
    write_report(JSON.value, {name: spreads(rows) for name, rows in alternate(sides, num_repeats()).items()})


if __name__ == "__main__":
    run_app(main)
