"""Fills a preference file: from an LLM's answers, or by one of the rules."""

import asyncio
import contextlib
import time

import numpy as np

from oni_jax.annotation.client import Client
from oni_jax.annotation.judge import server_or_judge
from oni_jax.annotation.prompts import Prompt, load_prompt
from oni_jax.config import AnnotationConfig
from oni_jax.envs.nethack import ENVIRONMENT
from oni_jax.preferences.annotators import RULES, file_name, wanted_keys
from oni_jax.preferences.config import AnnotatePairs, PreferenceConfig
from oni_jax.preferences.dataset import PairDataset
from oni_jax.preferences.descriptions import describe_pairs
from oni_jax.preferences.llm_annotator import LlmAnnotator
from oni_jax.preferences.preference_file import PreferenceFile, chunk_rows
from oni_jax.runtime import Every, StopRequest
from oni_jax.types import TIE, Item

ROWS_AT_ONCE = 4096  # described at a time
PROGRESS_SECS = 5.0


def annotate_pairs(config: AnnotatePairs, stop: StopRequest) -> int:
    """Labels the pairs of a chunk that have no label yet. Returns the exit code 0.

    Raises:
        UserError: bad data set, preference file, prompt or server address.
    """
    preference = config.preference
    dataset = PairDataset(preference.directory, wanted_keys(preference))
    rows = chunk_rows(dataset.num_pairs, preference.n_annotation_chunks, preference.chunk_number)
    prompt = load_prompt(config.annotation, ENVIRONMENT.language, "ranking")
    with contextlib.ExitStack() as stack:
        annotation = config.annotation
        if preference.annotator == "llm":
            annotation = stack.enter_context(server_or_judge(annotation, ENVIRONMENT.language))
        name = preference.custom_annotator_string or file_name(preference, annotation)
        file = stack.enter_context(PreferenceFile(preference.directory, name, dataset.num_pairs, rows))
        if preference.ignore_existing:
            file.forget()
        progress = _Progress(file, len(rows))
        if preference.annotator == "llm":
            asyncio.run(_ask_llm(preference, annotation, prompt, dataset, file, progress, stop))
        else:
            unfinished = file.unfinished()
            file.write(unfinished, RULES[preference.annotator](preference, dataset)[unfinished])
        progress.print(stop)
    return 0


class _Progress:
    """A line now and then: pairs done, rate, trouble."""

    def __init__(self, file: PreferenceFile, num_rows: int):
        self._file, self._num_rows = file, num_rows
        self.num_left = self._num_left_at_start = len(file.unfinished())
        self._started = time.monotonic()
        self._due = Every(PROGRESS_SECS)
        self.annotator: LlmAnnotator | None = None
        print(f"{file.path}: {num_rows - self.num_left:,} of {num_rows:,} pairs are done already", flush=True)

    def __call__(self) -> None:
        if self._due():
            self.print()

    def print(self, stop: StopRequest | None = None) -> None:
        """`stop`: this is the last line."""
        num_left = len(self._file.unfinished()) if stop is not None else self.num_left
        rate = (self._num_left_at_start - num_left) / max(1e-9, time.monotonic() - self._started)
        parts = [f"{self._num_rows - num_left:,} of {self._num_rows:,} pairs", f"{rate:,.1f} a second"]
        if self.annotator:
            counts = self.annotator.counts
            texts = {
                "unknown": "unknown",
                "failed_requests": "requests failed",
                "put_aside": "put aside for a later run",
            }
            parts += [f"{counts[name]:,} {text}" for name, text in texts.items() if counts[name]]
            parts += [f"waiting for the server ({self.annotator.problem})"] * bool(self.annotator.problem)
        if stop:
            parts.append(f"{stop.reason}: the same command goes on from here (without --ignore_existing)")
        print(", ".join(parts), flush=True)


async def _ask_llm(
    preference: PreferenceConfig,
    annotation: AnnotationConfig,
    prompt: Prompt,
    dataset: PairDataset,
    file: PreferenceFile,
    progress: _Progress,
    stop: StopRequest,
) -> None:
    """Pairs of equal descriptions are a tie unasked; the same two descriptions again have the label they had."""
    labels: dict[int, int] = {}  # by the items' hashes: at 1e6 items, two collide once in 4e7 runs
    rows_of: dict[Item, list[int]] = {}
    num_written = 0

    def write(rows: list[int], label: int) -> None:
        nonlocal num_written
        file.write(np.array(rows), label)
        progress.num_left -= len(rows)
        if num_written // preference.flushing_freq < (num_written + len(rows)) // preference.flushing_freq:
            file.flush()
        num_written += len(rows)

    def answered(item: Item, label: int) -> None:
        labels[hash(item)] = label
        write(rows_of[item], label)

    async with Client(annotation, prompt) as client:
        annotator = progress.annotator = LlmAnnotator(annotation, client, answered, progress)
        unfinished = file.unfinished()
        for start in range(0, len(unfinished), ROWS_AT_ONCE):
            rows = unfinished[start : start + ROWS_AT_ONCE]
            rows_of.clear()
            known: dict[int, list[int]] = {}  # label -> rows that need not be asked about
            for row, item in zip(rows.tolist(), describe_pairs(preference, dataset, rows)):
                label = TIE if item[0] == item[1] else labels.get(hash(item))
                if label is None:
                    rows_of.setdefault(item, []).append(row)
                else:
                    known.setdefault(label, []).append(row)
            for label, rows_known in known.items():
                write(rows_known, label)
            await annotator.ask(list(rows_of), stop)
            if stop:
                break
