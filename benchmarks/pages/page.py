"""The pages of results, docs/results.md and docs/results/NAME.md, from the files in the repository."""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.pages import other_results
from benchmarks.pages.effects import SUMMARIES, Effect, effects
from benchmarks.pages.estimates import mean
from benchmarks.studies import results
from benchmarks.studies.base import AT_THE_END, FOLDER, Contrast, Study
from benchmarks.studies.results import curve, machine_words
from launch.sweeps.results import shown_name, table
from oni_jax.runs.curves import COVERAGE, SUCCESS, UNLOCKED

DOCS = FOLDER.parents[1] / "docs"
PAGE, FOLDER_OF_PAGES = DOCS / "results.md", DOCS / "results"
HEAD = """# Results

**Without Crafter's reward, goals of a network that learnt from a language model's recorded answers unlock far more
achievements than no reward, and more than all actions as goals, which catch up later. Added to a world's reward, labels
by fixed rules gained nothing that we found.**
"""
FIGURE = "ellm"  # the study of the one figure
READING = """<details><summary>How to read the table</summary>

- A study is a [sweep](sweeps.md) of cases and seeds. A curve's points are means of 100 episodes.
- *At the end* is the mean of a curve's last tenth, *over the run* the mean of all its points.
- *Effect* is the main contrast: the mean over seeds of a case minus that of its reference.
- *[low, high]* is the 95 % interval over seeds: Student's for a mean, Welch's for a difference. Where it contains 0, we
  found no difference, which does not show that there is none.
- *\\** marks effects that are significant after Holm's correction over the main contrasts of all studies.
- *Minutes* is the time of all runs on two CPU cores, without a GPU.
- [Recorded answers](answers.md) are a language model's. *Fixed rules* answer in place of one.

```sh
python -m benchmarks.studies                                   # makes these pages and figures from the results
python -m benchmarks.studies run catch_judge --jobs 2          # trains the runs that its file lacks; resumes
python -m benchmarks.studies run catch_judge --jobs 2 --again  # trains all, into train_dir/studies/again; resumes
```

</details>
"""
SIGNED = ("mean_return", "return", "episode/intrinsic_return/", "intrinsic_return/")  # begin metrics that may be < 0
FRACTIONS = (SUCCESS, COVERAGE)  # others are counts
NAMES = {"mean_return": "return", UNLOCKED: "achievements", SUCCESS: "success"}
Runs = Sequence[Mapping[str, Any]]
Cells = Mapping[str, Runs]  # case -> its runs of a task


def pages(studies: Sequence[Study]) -> dict[str, str]:
    """Returns the Markdown of the pages, by their paths in docs/."""
    found = effects(studies)
    return {
        "results.md": index(studies, found),
        **{f"results/{study.name}.md": "\n".join(_page(study, found[study.name])) for study in studies},
        **other_results.pages(),
    }


def index(studies: Sequence[Study], found: Mapping[str, Sequence[Effect]]) -> str:
    """Returns the Markdown of docs/results.md."""
    rows = [
        [
            f"[{study.question}](results/{study.name}.md)",
            study.answer or "Not run yet.",
            effect_words(study, found[study.name]),
            minutes(study, results.counted(study)),
        ]
        for study in studies
    ]
    lines = _plain_table(["question", "answer", "effect [95 %]", "minutes"], [*rows, *other_results.rows()])
    figured = {study.name: study.title for study in studies if results.counted(study)["runs"]}.get(FIGURE)
    image = [f"![{figured}](images/studies/{FIGURE}.png)", ""] if figured else []
    return "\n".join([HEAD, *lines, "", *image, READING])


def effect_words(study: Study, found: Sequence[Effect]) -> str:
    """Returns the effects of a study's main contrasts, with their metrics."""
    return "; ".join(
        f"{_measured(study, x.contrast)} {x.shown()}, `{x.contrast.case}` minus `{x.contrast.reference}`" for x in found
    )


def _plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table whose cells are sentences, which aligning would make too wide."""
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (header, *rows))
    return [head, "|---" * len(header) + "|", *lines]


def _page(study: Study, found: Sequence[Effect]) -> Iterator[str]:
    kept = results.counted(study)
    yield from (f"# {study.title}", "", study.question, "", f"**{study.answer or 'Not run yet.'}**", "")
    if found:
        yield from (*(_sentence(study, effect) for effect in found), "")
    played = _played_rows(study)
    if kept["runs"]:
        yield from (
            *(played or _shown_rows(study, kept)),
            "",
            f"![{study.title}](../images/studies/{study.name}.png)",
            "",
        )
    noun = "minute" if (time := minutes(study, kept)) == "1" else "minutes"
    needs = f"  # needs {time} {noun} on two cores" if time else ""
    command = f"python -m benchmarks.studies run {study.name} --jobs {study.jobs} --again{needs}"
    yield from ("```sh", command, "```", "", "<details><summary>All rows, notes, machines and commits</summary>", "")
    curves = f" Curves: `{study.name}.json` beside it." * bool(kept["runs"])
    yield f"Cases and flags: `benchmarks/studies/{study.name}.py`.{curves}"
    curves_tables = [] if played else tables(study, kept)
    yield from ("", *(line for lines in curves_tables for line in (*lines, "")))
    yield from (f"- {note}" for note in _notes(study, kept))
    yield from (*_machines(kept), "", "</details>", "", "[All results](../results.md)", "")


def _sentence(study: Study, effect: Effect) -> str:
    contrast, name = effect.contrast, _measured(study, effect.contrast)
    where = " on held-out episodes" if contrast.held_out else f" {contrast.summary}"
    task = f" on `{contrast.task}`" * bool(contrast.task)
    return f"`{contrast.case}` minus `{contrast.reference}`: {name}{where}{task} {effect.shown()}."


def _measured(study: Study, contrast: Contrast) -> str:
    """Returns what a contrast compares, in words."""
    metric = contrast.metric or study.metric
    return study.played.get(metric) or name_of(metric)


def _notes(study: Study, kept: Mapping[str, Any]) -> Iterator[str]:
    yield from study.notes
    if study.left_out and kept["runs"]:
        yield f"The first {study.left_out:,} {study.over} are left out: until then only short episodes have ended."
    if lacking := results.missing(study, kept):
        runs = (f"{label} ({count} {'run' if count == 1 else 'runs'})" for label, count in lacking.items())
        yield f"Not measured yet: {', '.join(runs)}."
    late = "after" if any(not contrast.beforehand for contrast in study.contrasts) else "before"
    noun = "contrast was" if len(study.contrasts) == 1 else "contrasts were"
    yield f"The main {noun} named {late} the runs."


def _shown_rows(study: Study, kept: Mapping[str, Any]) -> list[str]:
    """Returns the lines of the table of the study's main cases, with a column for each task."""
    tasks = {task: results.by_cell(runs) for task, runs in results.by_task(kept).items()}
    summary, several = study.contrasts[0].summary, len(tasks) > 1
    header = ["", *(f"{name_of(study.metric)} {summary}{f', {task}' * several}" for task in tasks)]
    rows = []
    for label, words in study.shown.items():
        cells = [
            _shown(by_cell[label], study.metric, summary) if label in by_cell else "" for by_cell in tasks.values()
        ]
        runs = [run for by_cell in tasks.values() for run in by_cell.get(label, [])]
        if runs:
            rows.append([f"{words} (`{label}`)", *cells, cost(study, runs)])
    return _plain_table([*header, cost_name(study)], rows)


def _played_rows(study: Study) -> list[str]:
    """Returns the lines of the table of the policies' means over held-out episodes; none: they have not been played."""
    if not (study.played and study.episodes_path.exists()):
        return []
    rows = []
    for policy, seeds in json.loads(study.episodes_path.read_text()).items():
        values = [[means[name] for means in seeds if name in means] for name in study.played]
        rows.append([study.shown.get(policy, policy), *(_mean(name, of) for name, of in zip(study.played, values))])
    return _plain_table(["on held-out episodes", *study.played.values()], rows)


def tables(study: Study, kept: Mapping[str, Any]) -> list[list[str]]:
    """Returns the lines of a table of all cases for each task of a study's results, as `results.counted` reads them."""
    points, found = kept[study.over], []
    for task, runs in results.by_task(kept).items():
        cells = results.by_cell(runs)
        seeds = max(map(len, cells.values()))
        heading = f"`{task}`, {points[-1]:,} {study.over}, {seeds} {'seed' if seeds == 1 else 'seeds'}:"
        found.append([heading, "", *_table(study, cells, seeds)])
    return found


def _table(study: Study, cells: Cells, seeds: int) -> list[str]:
    more = [
        metric for metric in (COVERAGE, *study.also) if any(metric in run for runs in cells.values() for run in runs)
    ]
    rows = [
        [
            label if len(runs) == seeds else f"{label} ({len(runs)} of {seeds} seeds)",
            *(_shown(runs, study.metric, summary) for summary in SUMMARIES),
            *(at_the_end([run for run in runs if metric in run], metric) for metric in more),
        ]
        for label, runs in cells.items()
    ]
    name = name_of(study.metric)
    header = ["", *(f"{name} {summary}" for summary in SUMMARIES), *(name_of(metric) for metric in more)]
    return table(header, rows)


def _machines(kept: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each kind of machine, with its runs by commit."""
    by_words: dict[str, list[str]] = {}
    for index, machine in enumerate(kept["machines"]):
        words, _, commit = machine_words(machine).rpartition(", commit ")
        dates = sorted({run["date"] for run in kept["runs"] if run["machine"] == index})
        count = sum(run["machine"] == index for run in kept["runs"])
        by_words.setdefault(words, []).append(
            f"{count} of {commit}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}"
        )
    return (f"- Runs by commit on {words}: {'; '.join(counts)}." for words, counts in by_words.items())


def minutes(study: Study, kept: Mapping[str, Any]) -> str:
    """Returns how many minutes all of a study's runs need, by the time of those that there are; empty: unknown."""
    if not kept["runs"]:
        return ""
    secs = statistics.mean(run["train_secs"] for run in kept["runs"]) * len(study.planned()) / study.jobs
    return f"{max(1, round(secs / 60))}"


def name_of(metric: str) -> str:
    parts = [shown_name(part) for part in metric.split("/")[-2:] if part not in ("episode", "reward")]
    return NAMES.get(metric, " of ".join(parts))


def at_the_end(runs: Runs, metric: str) -> str:
    """Returns the estimate of a metric at the end of runs; empty: there are none."""
    return _shown(runs, metric, AT_THE_END)


def _shown(runs: Runs, metric: str, summary: str) -> str:
    return _mean(metric, [SUMMARIES[summary](curve(run, metric)) for run in runs])


def _mean(metric: str, values: Sequence[float]) -> str:
    """Returns the estimate of a metric's mean over seeds; empty: there are none."""
    low, high = -math.inf if metric.startswith(SIGNED) else 0.0, 1.0 if metric in FRACTIONS else math.inf
    return mean(values, (low, high)).shown() if values else ""


def cost_name(study: Study) -> str:
    """Returns the name of what `cost` returns."""
    return "time of a run" if study.over == "steps" else "million steps a run"


def cost(study: Study, runs: Runs) -> str:
    """Returns how long a run took, at the median, or how many million steps it made in the study's time."""
    if study.over == "seconds":
        return mean([run["env_steps"] / 1e6 for run in runs]).shown()
    secs = statistics.median(run["train_secs"] for run in runs)
    value, name = (secs, "s") if secs < 60 else (secs / 60, "min")
    return f"{value:.{0 if value >= 10 else 1}f} {name}"
