"""Data that processes all-gather once a batch, packed as arrays."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.host.npz import join_texts, split_texts
from oni_jax.ops.captions import merge_captions
from oni_jax.types import Annotation, CaptionBatch, StepCaptions
from oni_jax.worlds.base import WorldReport


class Contribution(NamedTuple):
    """Data of one process, or merged from all."""

    captions: StepCaptions  # those that the reward reads, with the observations that it learns from
    annotations: Sequence[Annotation] = ()  # the primary process's: it alone queries the LLM
    report: WorldReport = WorldReport()
    intrinsic_returns: Sequence[np.ndarray] = ()  # [K] float32 each: of episodes that were learnt from to their end


def pack_contribution(contribution: Contribution) -> dict[str, np.ndarray]:
    """Packs one process's contribution for `merge_contributions`."""
    captions, annotations, report, returns = contribution
    return {
        "failures": np.array(report.failures, np.str_),
        "notes": np.array(report.notes, np.str_),
        "num_restarts": np.array(report.num_restarts),
        **({"episodes": np.stack(report.episodes)} if report.episodes else {}),
        **({"intrinsic_returns": np.stack(returns)} if returns else {}),
        **{name: array for end in StepCaptions._fields for name, array in _pack(end, getattr(captions, end)).items()},
        "items": join_texts([caption for a in annotations for caption in a.item]),
        "item_sizes": np.array([len(a.item) for a in annotations], np.int32),
        "answers": np.frombuffer(b"".join(a.answer or b"" for a in annotations), np.uint8),
        "answer_sizes": np.array([-1 if a.answer is None else len(a.answer) for a in annotations], np.int32),
        "questions": np.array([a.question for a in annotations], np.int32),
    }


def merge_contributions(packed: Sequence[Mapping[str, np.ndarray]]) -> Contribution:
    """Merges the packed contributions of all processes, in order of process index."""
    report = WorldReport(
        episodes=[stats for part in packed for stats in part.get("episodes", ())],
        failures=[f"process {i}: {text}" for i, part in enumerate(packed) for text in part["failures"]],
        num_restarts=sum(int(part["num_restarts"]) for part in packed),
        notes=list(dict.fromkeys(text for part in packed for text in part["notes"].tolist())),
    )
    captions = (merge_captions([_unpack(end, part) for part in packed]) for end in StepCaptions._fields)
    returns = [row for part in packed for row in part.get("intrinsic_returns", ())]
    return Contribution(StepCaptions(*captions), _annotations(packed[0]), report, returns)


def _annotations(found: Mapping[str, np.ndarray]) -> list[Annotation]:
    texts, joined = iter(split_texts(found["items"])), found["answers"].tobytes()
    items = [tuple(itertools.islice(texts, size)) for size in found["item_sizes"].tolist()]
    sizes = found["answer_sizes"]
    ends = np.cumsum(np.maximum(sizes, 0)).tolist()
    answers = [None if size < 0 else joined[end - size : end] for size, end in zip(sizes.tolist(), ends)]
    return list(map(Annotation, items, answers, found["questions"].tolist()))


def _pack(end: str, captions: CaptionBatch) -> dict[str, np.ndarray]:
    observations = {f"{end} observation {name}": array for name, array in captions.observations.items()}
    return {f"{end} messages": join_texts(captions.captions), f"{end} index": captions.index, **observations}


def _unpack(end: str, found: Mapping[str, np.ndarray]) -> CaptionBatch:
    prefix = f"{end} observation "
    observations = {name.removeprefix(prefix): array for name, array in found.items() if name.startswith(prefix)}
    return CaptionBatch(split_texts(found[f"{end} messages"]), found[f"{end} index"], observations)
