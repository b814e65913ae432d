"""Fills a preference file from an LLM's answers, or by a rule."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from oni_jax.annotation.client import make_client
from oni_jax.annotation.labeller import Labeller
from oni_jax.annotation.prompts import load_prompt
from oni_jax.annotation.queries.choices import decode_label
from oni_jax.annotation.service import Question
from oni_jax.answers.answerer import answered_by, open_questions
from oni_jax.host.held_folders import held_folder
from oni_jax.host.reporting import report
from oni_jax.host.runtime import Every, StopRequest
from oni_jax.offline.annotators import RULES, file_name, wanted_keys
from oni_jax.offline.dataset import PairDataset
from oni_jax.offline.descriptions import describe_pairs
from oni_jax.offline.pair_config import AnnotatePairs
from oni_jax.offline.preference_file import PreferenceFile, chunk_rows
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config
from oni_jax.settings.fields import counted
from oni_jax.types import TIE, UNKNOWN, Annotation, Item

ROWS_AT_ONCE = 4096  # described together
PROGRESS_SECS = 5.0
GRACE_SECS = 5.0  # grace for answers in flight when the run is stopped
POLL_SECS = 0.05  # interval of checks for the end of the rows and for a stop request


def annotate_pairs(config: AnnotatePairs, stop: StopRequest) -> int:
    """Labels the pairs of a chunk that have no label yet. Returns the exit code 0.

    Raises:
        UserError: bad data set, preference file, prompt or server address.
    """
    preference = config.preference
    dataset = PairDataset(preference.directory, wanted_keys(preference))
    rows = chunk_rows(dataset.num_pairs, preference.n_annotation_chunks, preference.chunk_number)
    language = Plan(Config(config.env)).language
    prompt = load_prompt(config.annotation, language, "ranking")
    with contextlib.ExitStack() as stack:
        annotation, question = config.annotation, None
        if preference.annotator == "llm":
            (question,) = open_questions([(annotation, "ranking")], language, stack)
        by = answered_by(annotation, language, "ranking") if preference.annotator == "llm" else ""
        named = dataclasses.replace(annotation, llm_model=by)
        name = preference.custom_annotator_string or file_name(preference, named)
        chunk = f"{name}, {preference.chunk_number} of {preference.n_annotation_chunks}"
        file = stack.enter_context(PreferenceFile(preference.directory, name, dataset.num_pairs, rows))
        folder = stack.enter_context(held_folder(preference.directory, "directory", stop, part=chunk))
        made_by: dict[str, Any] = {"annotator": preference.annotator}
        if preference.annotator == "llm":
            made_by |= {"llm_model": by, "prompt": prompt.digest}
            made_by |= {"use_messages": preference.use_messages, "use_blstats": preference.use_blstats}
        file.check_made_by(made_by, preference.ignore_existing)
        stack.enter_context(folder.saving(file.save_in))
        if preference.ignore_existing:
            file.clear()
        progress = AnnotationLog(file, len(rows))
        if question:

            def describe(rows: np.ndarray) -> Iterable[Item]:
                return describe_pairs(preference, dataset, rows)

            asyncio.run(label_pairs(question, describe, file, preference.flushing_freq, progress, stop))
        else:
            unfinished = file.unfinished()
            file.write(unfinished, RULES[preference.annotator](preference, dataset)[unfinished])
        progress.print(stop)
        counts = file.counts()
        total = max(1, sum(counts.values()))
        shown = ", ".join(f"{count:,} {name} ({count / total:.1%})" for name, count in counts.items())
        report(f"preferences: {shown}")
    return 0


class AnnotationLog:
    """Periodic log lines: pairs done, rate, problems."""

    def __init__(self, file: PreferenceFile, num_rows: int):
        self._file, self._num_rows = file, num_rows
        self.num_left = self._num_left_at_start = len(file.unfinished())
        self._started = time.monotonic()
        self._due = Every(PROGRESS_SECS)
        self.labeller: Labeller | None = None
        self.num_unknown = 0
        report(f"{file.path}: {num_rows - self.num_left:,} of {counted(num_rows, 'pair')} are done already")

    def __call__(self) -> None:
        if self._due():
            self.print()

    def print(self, stop: StopRequest | None = None) -> None:
        """Prints a line; the last one is given `stop`."""
        num_left = len(self._file.unfinished()) if stop is not None else self.num_left
        rate = (self._num_left_at_start - num_left) / max(1e-9, time.monotonic() - self._started)
        parts = [f"{self._num_rows - num_left:,} of {counted(self._num_rows, 'pair')}", f"{rate:,.1f} a second"]
        if self.labeller:
            stats: dict[str, Any] = self.labeller.stats()
            counts = {
                "unknown": self.num_unknown,
                "requests failed": stats["requests_failed"],
                "put aside for a later run": stats["put_aside"] - self.num_unknown,
            }
            parts += [f"{count:,} {name}" for name, count in counts.items() if count]
            parts += [f"waiting for the server ({stats['problem']})"] * bool(stats["problem"])
        if stop:
            parts.append(f"{stop.reason}: the same command resumes from here (without --ignore_existing)")
        report(", ".join(parts))


class _PairLabels:
    """A labeller's store that returns no answers, and writes labels into the rows of a preference file.

    Pairs of equal descriptions are ties, and repeated pairs get their earlier label, without being asked about.
    """

    commit_delay_secs = 0.0  # a killed process loses no answer

    def __init__(self, file: PreferenceFile, flushing_freq: int, progress: AnnotationLog):
        self._file, self._flushing_freq, self._progress = file, flushing_freq, progress
        self._labels: dict[int, int] = {}  # keyed by hash of the item: at 1e6 items, two collide once in 4e7 runs
        self._num_written = 0
        self.rows_of: dict[Item, list[int]] = {}  # items to be asked about -> their rows

    def add(self, rows: list[int], items: Iterable[Item]) -> None:
        known: dict[int, list[int]] = {}  # label -> rows that it is known for
        for row, item in zip(rows, items):
            label = TIE if item[0] == item[1] else self._labels.get(hash(item))
            if label is None:
                self.rows_of.setdefault(item, []).append(row)
            else:
                known.setdefault(label, []).append(row)
        for label, rows_known in known.items():
            self._write(rows_known, label)

    def _write(self, rows: list[int], label: int) -> None:
        self._file.write(np.array(rows), label)
        self._progress.num_left -= len(rows)
        if self._num_written // self._flushing_freq < (self._num_written + len(rows)) // self._flushing_freq:
            self._file.flush()
        self._num_written += len(rows)

    def _label(self, item: Item, label: int) -> None:
        self._labels[hash(item)] = label
        self._write(self.rows_of[item], label)

    def all(self, model: str, digest: str) -> list[Annotation]:
        return []

    def get_many(self, model: str, digest: str, items: Sequence[Item]) -> list[Annotation]:
        return []

    def put_many(self, model: str, digest: str, answered: Sequence[tuple[Annotation, str]]) -> None:
        for (item, answer, _), _ in answered:
            self._label(item, decode_label(answer or b"").label)

    def unreadable(self, item: Item) -> None:
        self._progress.num_unknown += 1
        self._label(item, UNKNOWN)

    def done(self, annotations: list[Annotation]) -> None:
        """Forgets the rows of labelled and put-aside items; the latter stay unfinished, for a later run."""
        for annotation in annotations:
            del self.rows_of[annotation.item]


async def label_pairs(
    question: Question,
    describe: Callable[[np.ndarray], Iterable[Item]],
    file: PreferenceFile,
    flushing_freq: int,
    progress: AnnotationLog,
    stop: StopRequest,
) -> None:
    """Asks an LLM about the pairs of a file that have no label yet; `describe`: the items of some rows."""
    labels = _PairLabels(file, flushing_freq, progress)
    prompt, recorded = question.prompt, question.recorded
    annotation = dataclasses.replace(question.config, llm_max_backlog=ROWS_AT_ONCE)  # so that no item is dropped
    async with make_client(annotation, prompt) as client:
        report = labels.done, lambda items: None, labels.unreadable
        labeller = Labeller(annotation, client, labels, prompt, *report, recorded=recorded)
        progress.labeller = labeller
        running = asyncio.ensure_future(labeller.run())
        unfinished = file.unfinished()
        for start in range(0, len(unfinished), ROWS_AT_ONCE):
            if stop:
                break
            rows = unfinished[start : start + ROWS_AT_ONCE]
            labels.add(rows.tolist(), describe(rows))
            labeller.submit([*labels.rows_of][::-1])  # the last is asked about first
            while labels.rows_of and not stop:
                await asyncio.wait([running], timeout=POLL_SECS)
                if running.done():
                    running.result()  # raises its error
                progress()
        running.cancel()
        await labeller.finish(GRACE_SECS)
