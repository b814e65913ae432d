"""What a process tells all others once a batch, as arrays that can travel."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.npz import join_texts, split_texts
from oni_jax.ops.captions import merge_captions
from oni_jax.types import Annotation, CaptionBatch
from oni_jax.worlds.base import WorldReport


class Told(NamedTuple):
    """By one process, or put together of what all have told."""

    captions: CaptionBatch  # with the observations that the reward learns from
    annotations: Sequence[Annotation] = ()  # process 0's: it alone asks
    report: WorldReport = WorldReport()


def pack_told(told: Told) -> dict[str, np.ndarray]:
    """The inverse, for one process, of `merge_told`."""
    captions, annotations, report = told
    return {
        "failures": np.array(report.failures, np.str_),
        "notes": np.array(report.notes, np.str_),
        "num_restarts": np.array(report.num_restarts),
        **({"episodes": np.stack(report.episodes)} if report.episodes else {}),
        "messages": join_texts(captions.messages),
        "index": captions.index,
        **{f"observation {name}": array for name, array in captions.observations.items()},
        "items": join_texts([message for a in annotations for message in a.item]),
        "labels": np.array([a.label for a in annotations], np.int32),
        "probabilities": np.array([a.probability for a in annotations], np.float64),
    }


def merge_told(told: Sequence[Mapping[str, np.ndarray]]) -> Told:
    """Of what all processes told, in their order."""
    report = WorldReport(
        episodes=[stats for found in told for stats in found.get("episodes", ())],
        failures=[f"process {i}: {text}" for i, found in enumerate(told) for text in found["failures"]],
        num_restarts=sum(int(found["num_restarts"]) for found in told),
        notes=list(dict.fromkeys(text for found in told for text in found["notes"].tolist())),
    )
    first = told[0]
    messages, labels = split_texts(first["items"]), first["labels"].tolist()
    size = len(messages) // max(1, len(labels))
    items = [tuple(messages[i : i + size]) for i in range(0, len(messages), max(1, size))]
    annotations = list(map(Annotation, items, labels, first["probabilities"].tolist()))
    return Told(merge_captions([_captions(found) for found in told]), annotations, report)


def _captions(found: Mapping[str, np.ndarray]) -> CaptionBatch:
    prefix = "observation "
    observations = {name.removeprefix(prefix): array for name, array in found.items() if name.startswith(prefix)}
    return CaptionBatch(split_texts(found["messages"]), found["index"], observations)
