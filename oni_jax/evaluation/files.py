"""Results of evaluations as JSON and CSV. A repeated evaluation gives equal files."""

import csv
import importlib.metadata
import io
import itertools
import json
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from oni_jax.evaluation.episodes import SUCCESS
from oni_jax.evaluation.results import Evaluation, differences, named_returns
from oni_jax.ops.statistics import QUANTILES
from oni_jax.settings.json_text import sealed

PACKAGES = ("jax", "jaxlib", "numpy", "nle")


def as_json(evaluations: Sequence[Evaluation], other: Evaluation | None) -> str:
    """Returns all results, with a checksum; `other` is the evaluation that each is compared with."""
    tree: dict[str, Any] = {"versions": versions(), "evaluations": [_tree(x) for x in evaluations]}
    if other:
        tree["other"] = _tree(other)
        tree["differences"] = [_difference_tree(x, other) for x in evaluations]
    return json.dumps(sealed(tree), indent=1) + "\n"


def versions() -> dict[str, str]:
    """Returns versions of software and device that results may depend on."""
    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **packages, "device": jax.devices()[0].device_kind}


def _tree(evaluation: Evaluation) -> dict[str, Any]:
    of, success = evaluation, evaluation.success()
    about = {
        name: value for name, value in of._asdict().items() if name not in ("episodes", "interrupted", "achievements")
    }
    return {
        **about,
        "experiment": of.experiment or None,
        "labels_by": of.labels_by or None,
        "complete": of.complete,
        "measures": {
            name: {**summary._asdict(), "quantiles": dict(zip(map("{:g}".format, QUANTILES), summary.quantiles))}
            for name, summary in of.summaries().items()
        },
        "ends": {end: x._asdict() for end, x in of.ends().items()},
        "success": success._asdict() if success else None,
        **_achievements(of),
        "episodes": _rows(evaluation),
    }


def _achievements(of: Evaluation) -> dict[str, Any]:
    score, rates = of.score(), of.achievement_rates()
    return {"score": score._asdict(), "achievements": {name: x._asdict() for name, x in rates.items()}} if score else {}


def _difference_tree(first: Evaluation, second: Evaluation) -> dict[str, Any]:
    num_common, found = differences(first, second)
    measures = {name: x._asdict() for name, x in found.items()}
    return {"first": first.player, "second": second.player, "num_episodes": num_common, "measures": measures}


def as_csv(evaluations: Sequence[Evaluation]) -> str:
    """Returns a row per episode."""
    rows = []
    for of in evaluations:
        about = {"experiment": of.experiment, "env_steps": of.env_steps, "policy": of.policy}
        rows += [{**about, "complete": int(of.complete), **row} for row in _rows(of)]
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(itertools.chain(*rows))))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _rows(evaluation: Evaluation) -> list[Mapping[str, Any]]:
    successes = evaluation.successes()
    extra = [{}] * len(evaluation.episodes) if successes is None else [{SUCCESS: int(x)} for x in successes]
    return [
        {"index": x.index, **x.stats, "end": x.end, **success, **named_returns(x)}
        for x, success in zip(evaluation.episodes, extra)
    ]
