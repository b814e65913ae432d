"""What a process tells all others once a batch, as arrays that can travel."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.npz import join_texts, split_texts
from oni_jax.ops.captions import merge_captions
from oni_jax.types import Annotation, CaptionBatch, StepCaptions
from oni_jax.worlds.base import WorldReport


class Contribution(NamedTuple):
    """By one process, or put together of what all have told."""

    captions: StepCaptions  # those that are read, with the observations that the reward learns from
    annotations: Sequence[Annotation] = ()  # process 0's: it alone asks
    report: WorldReport = WorldReport()


def pack_contribution(told: Contribution) -> dict[str, np.ndarray]:
    """The inverse, for one process, of `merge_contributions`."""
    captions, annotations, report = told
    return {
        "failures": np.array(report.failures, np.str_),
        "notes": np.array(report.notes, np.str_),
        "num_restarts": np.array(report.num_restarts),
        **({"episodes": np.stack(report.episodes)} if report.episodes else {}),
        **{name: array for end in StepCaptions._fields for name, array in _pack(end, getattr(captions, end)).items()},
        "items": join_texts([message for a in annotations for message in a.item]),
        "item_sizes": np.array([len(a.item) for a in annotations], np.int32),
        "answers": np.frombuffer(b"".join(a.answer or b"" for a in annotations), np.uint8),
        "answer_sizes": np.array([-1 if a.answer is None else len(a.answer) for a in annotations], np.int32),
        "questions": np.array([a.question for a in annotations], np.int32),
    }


def merge_contributions(told: Sequence[Mapping[str, np.ndarray]]) -> Contribution:
    """Of what all processes told, in their order."""
    report = WorldReport(
        episodes=[stats for found in told for stats in found.get("episodes", ())],
        failures=[f"process {i}: {text}" for i, found in enumerate(told) for text in found["failures"]],
        num_restarts=sum(int(found["num_restarts"]) for found in told),
        notes=list(dict.fromkeys(text for found in told for text in found["notes"].tolist())),
    )
    captions = (merge_captions([_unpack(end, found) for found in told]) for end in StepCaptions._fields)
    return Contribution(StepCaptions(*captions), _annotations(told[0]), report)


def _annotations(found: Mapping[str, np.ndarray]) -> list[Annotation]:
    texts, joined = iter(split_texts(found["items"])), found["answers"].tobytes()
    items = [tuple(itertools.islice(texts, size)) for size in found["item_sizes"].tolist()]
    sizes = found["answer_sizes"]
    ends = np.cumsum(np.maximum(sizes, 0)).tolist()
    answers = [None if size < 0 else joined[end - size : end] for size, end in zip(sizes.tolist(), ends)]
    return list(map(Annotation, items, answers, found["questions"].tolist()))


def _pack(end: str, captions: CaptionBatch) -> dict[str, np.ndarray]:
    observations = {f"{end} observation {name}": array for name, array in captions.observations.items()}
    return {f"{end} messages": join_texts(captions.messages), f"{end} index": captions.index, **observations}


def _unpack(end: str, found: Mapping[str, np.ndarray]) -> CaptionBatch:
    prefix = f"{end} observation "
    observations = {name.removeprefix(prefix): array for name, array in found.items() if name.startswith(prefix)}
    return CaptionBatch(split_texts(found[f"{end} messages"]), found[f"{end} index"], observations)
