"""Fills a preference file: from an LLM's answers, the game's score, the environment's return, or chance."""

import asyncio
import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from oni_jax.annotation.address import check_server
from oni_jax.annotation.backlog import Item
from oni_jax.annotation.client import Client
from oni_jax.annotation.judge import JUDGE_MODEL, EmbeddedJudge
from oni_jax.annotation.prompts import Prompt, load_prompt
from oni_jax.config import AnnotationConfig
from oni_jax.preferences.config import AnnotatePairs, PreferenceConfig
from oni_jax.preferences.dataset import FIRST, SECOND, TIE, PairDataset
from oni_jax.preferences.descriptions import describe_blstats, describe_messages
from oni_jax.preferences.llm_annotator import LlmAnnotator
from oni_jax.preferences.preference_file import PreferenceFile, chunk_rows
from oni_jax.runtime import Every, StopRequest

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
    with contextlib.ExitStack() as stack:
        annotation = config.annotation
        if preference.annotator == "llm":
            annotation = stack.enter_context(_server(annotation))
        name = preference.custom_annotator_string or file_name(preference, annotation)
        file = stack.enter_context(PreferenceFile(preference.directory, name, dataset.num_pairs, rows))
        if preference.ignore_existing:
            file.forget()
        progress = _Progress(file, len(rows))
        if preference.annotator == "llm":
            asyncio.run(_ask_llm(preference, annotation, dataset, file, progress, stop))
        else:
            unfinished = file.unfinished()
            file.write(unfinished, RULES[preference.annotator](preference, dataset)[unfinished])
        progress.print(stop)
    return 0


def wanted_keys(preference: PreferenceConfig) -> list[str]:
    """The arrays that an annotator reads."""
    if preference.annotator != "llm":
        return ["data/rewards" if preference.annotator == "return" else "info/score"]
    return ["data/message"] * preference.use_messages + ["data/blstats"] * preference.use_blstats


def file_name(preference: PreferenceConfig, annotation: AnnotationConfig) -> str:
    """The name of a preference file, without .npy."""
    if preference.annotator != "llm":
        return preference.annotator
    goal, version = annotation.goal_key, annotation.prompt_version
    if annotation.goal:
        goal = f"goal-{hashlib.sha256(annotation.goal.encode()).hexdigest()[:8]}"
    if annotation.prompt_file:
        version = os.path.splitext(os.path.basename(annotation.prompt_file))[0]
    model = annotation.llm_model.replace("/", "-")
    return f"{model}_msg_{preference.use_messages}_bl_{preference.use_blstats}_{goal}_{version}"


def better(values: np.ndarray) -> np.ndarray:
    """[P, 2] numbers -> [P] int8: which is higher."""
    return np.select([values[:, 0] > values[:, 1], values[:, 0] < values[:, 1]], [FIRST, SECOND], TIE).astype(np.int8)


def _by_score(preference: PreferenceConfig, dataset: PairDataset) -> np.ndarray:
    return better(dataset.numbers("info/score"))


def _by_return(preference: PreferenceConfig, dataset: PairDataset) -> np.ndarray:
    return better(dataset.numbers("data/rewards").reshape(dataset.num_pairs, 2, -1).sum(2))


def _by_chance(preference: PreferenceConfig, dataset: PairDataset) -> np.ndarray:
    return np.random.default_rng(preference.seed).integers(FIRST, TIE, dataset.num_pairs, np.int8)


RULES: Mapping[str, Callable[[PreferenceConfig, PairDataset], np.ndarray]] = {
    "score": _by_score,
    "return": _by_return,
    "random": _by_chance,
}


@contextlib.contextmanager
def _server(annotation: AnnotationConfig) -> Iterator[AnnotationConfig]:
    """The settings with a server's address: the judge's when none was named."""
    with contextlib.ExitStack() as stack:
        if not annotation.llm_server_addr:
            judge = EmbeddedJudge()
            stack.callback(judge.close)
            annotation = dataclasses.replace(annotation, llm_server_addr=judge.address, llm_model=JUDGE_MODEL)
            print(
                f"no --llm_server_addr: labels come from a rule-based stand-in at {judge.address}, not from an LLM",
                flush=True,
            )
        check_server(annotation)
        yield annotation


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
            parts.append(f"{stop.reason}: the same command goes on from here")
        print(", ".join(parts), flush=True)


async def _ask_llm(
    preference: PreferenceConfig,
    annotation: AnnotationConfig,
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

    prompt: Prompt = load_prompt(annotation, "ranking")
    async with Client(annotation, prompt) as client:
        annotator = progress.annotator = LlmAnnotator(annotation, client, answered, progress)
        unfinished = file.unfinished()
        for start in range(0, len(unfinished), ROWS_AT_ONCE):
            rows = unfinished[start : start + ROWS_AT_ONCE]
            rows_of.clear()
            for row, item in zip(rows.tolist(), describe_pairs(preference, dataset, rows)):
                if item[0] == item[1]:
                    write([row], TIE)
                elif hash(item) in labels:
                    write([row], labels[hash(item)])
                else:
                    rows_of.setdefault(item, []).append(row)
            await annotator.ask(list(rows_of), stop)
            if stop:
                break


def describe_pairs(preference: PreferenceConfig, dataset: PairDataset, rows: np.ndarray) -> Iterator[Item]:
    """Both descriptions of each pair."""
    messages = dataset.messages(rows) if preference.use_messages else [()] * len(rows)
    blstats = dataset.blstats(rows) if preference.use_blstats else [()] * len(rows)
    for i in range(len(rows)):
        sides = []
        for side in (0, 1):
            parts = [describe_messages(messages[i][side])] if preference.use_messages else []
            parts += [describe_blstats(blstats[i][side])] if preference.use_blstats else []
            sides.append(b"\n".join(part for part in parts if part))
        yield tuple(sides)
