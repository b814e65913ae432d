"""The page of all results, docs/results.md, from the files in the repository."""

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.pages import other_results
from benchmarks.pages.estimates import difference, distinct, end, mean, over_the_run, reached
from benchmarks.pages.figures import images
from benchmarks.studies import results
from benchmarks.studies.base import FOLDER, Study, matches
from benchmarks.studies.results import curve, machine_words
from launch.sweeps.results import shown_name, table
from oni_jax.runs.curves import COVERAGE, SUCCESS

PAGE = FOLDER.parents[1] / "docs" / "results.md"
INTRODUCTION = """# Results

What is learnt here, in which time, on which machine. Each section has the command whose results, in a file of
`benchmarks/`, it shows. `python -m benchmarks.studies` makes the page and its figures from these files. They are
there whatever came out. Some runs were replaced by new ones, whatever these said: those of code that no commit held, or
slowed by other programs. Single runs by which settings were chosen beforehand were not kept.

**A language model's answers, recorded, were learnt from in [ellm](#ellm) alone: `answers` and `model`. No study was
made on a GPU.** Where a *judge* is named, fixed rules answered in an LLM's stead; `oracle`, and the policies that
were pretrained on its goals, use the rules of the world.

**What is shown of answers, mostly by rules.** Goals that a network has learnt from a language model's answers unlock
more on Crafter than those answers alone, and more than all actions as goals. Most gains are gains over no reward at
all. Controls that pay for everything, without an LLM, gain much of them: on Crafter every event (`count`) nearly as
much as labels, which differ from it in six events, and all actions as goals more than the judge's, over the run, but
less at the end than the goals that the world's rules suggest. We found no loss from goals meant for other states.
Captions of states gain less than half. On BabyAI-Text labels keep what paying every caption (`count`) loses again,
without a mark, and preferences end above it, with one. With a world's reward we found no gain: its tasks are learnt
without one, or, as NetHack, not in the steps that were taken, so that larger gains are not excluded.

Not measured: what is learnt from an LLM's labels and comparisons; in a study, more than 5 million steps of NetHack,
and the task Oracle, for want of time; reward models on Crafter's events, of which a run meets some 23, so that labels
need no model; ELLM's goals on BabyAI-Text, which has none.

## How to read them

A study is a [sweep](sweeps.md) of cases and seeds. A curve has fifty points: each is the mean of the last 100 episodes
(`--stats_avg`) of training, by the policy that explores; there are no episodes apart for evaluation.

- **At the end**: the mean of a curve's last tenth. **Over the run**: of all its points, so more for what learns sooner.
- **Million steps to 50 %**: to the first five points in a row that are not below it, no finer than a fiftieth of a run;
  or how many runs get there, where not all do.
- **[low, high]**: 95 % intervals over seeds: Student's of a mean, counts' cut at 0, fractions' at 0 and 1; Welch's of a
  **difference**. Where one contains 0, no difference has been found, which does not say that there is none.
- **\\***: of a table's differences those that remain by Holm's correction: were there none at all, at most 5 % of such
  tables would have a mark. The others may have been found by looking at many. Five seeds are few: that their values are
  normal is assumed, and without that none of the large tables could have a mark.
- **Time of a run**: the median, of training alone. With `--jobs 2` two runs shared two cores; other programs
  ran beside some, which take up to 2.9 times as long as others of their case.
- **Late**: until a server has answered for the first time, it is asked two things and no more. So of answers that are
  late by ten seconds or a minute two come then, and the others after twice that time.
- **Figures**: lines are interquartile means over seeds, bands the bootstrap's 95 % intervals of these, which five seeds
  make too narrow.
- All environments of a run begin at once. Where episodes are long, as the 400 steps of 256 environments in
  BabyAI-Text, they end together for a while, and curves go up and down with that period (102,400 steps). On Crafter
  without death they always do: the fifty points of `few_goals` show some nineteen such ends, its last tenth two.
- **A commit with `-dirty`** had changed files beside it, which may be other studies' results alone.

`success`: episodes that reach the task's goal. `unlocked`: Crafter's achievements in an episode, of 22.

```sh
python -m benchmarks.studies list
python -m benchmarks.studies run catch_judge --jobs 2          # trains the runs that its file lacks; resumes
python -m benchmarks.studies run catch_judge --jobs 2 --again  # trains all, into train_dir/studies/again; resumes
```

`python` is that of the environment in which the package is installed, `.venv/bin/python` after `make setup`.
"""

SUMMARIES = {"at the end": end, "over the run": over_the_run}  # of a curve
SIGNED = ("mean_return", "episode/intrinsic_return/")  # begin metrics that may be negative
FRACTIONS = (SUCCESS, COVERAGE)  # others are counts
Cells = Mapping[str, Sequence[Mapping[str, Any]]]  # case -> its runs of a task
Differences = Mapping[tuple[str, str, str], str]  # case, the case beside it, summary -> in words


def page(studies: Sequence[Study]) -> str:
    """Returns the Markdown of docs/results.md."""
    sections = ("\n".join(_section(study)) for study in studies)
    return "\n".join([INTRODUCTION, *sections, *other_results.sections(), ""])


def differences(study: Study, cells: Cells) -> Differences:
    """Returns the differences between the cases of a task, those marked that remain by Holm's correction."""
    found = {}
    compared = study.references()
    for other, (summary, of) in itertools.product(compared, SUMMARIES.items()):
        values = {label: [of(curve(run, study.metric)) for run in runs] for label, runs in cells.items()}
        for label in cells:
            about = difference(values[label], values.get(other, []))
            if about and matches(label, compared[other]) and label != other and (other, label, summary) not in found:
                found[label, other, summary] = about
    marked = distinct([about.p_value for about in found.values()])
    return {key: about.shown("+") + r" \*" * is_marked for (key, about), is_marked in zip(found.items(), marked)}


def _section(study: Study) -> Iterator[str]:
    found = results.counted(study)
    yield from (f"## {study.name}", "", study.question, *([study.note] if study.note else []), "")
    run = f"python -m benchmarks.studies run {study.name} --jobs {study.jobs} --again{_needs(study, found)}"
    yield from ("```sh", run, "```", "", "It trains the same as:", "", "```sh", study.command(), "```", "")
    if lacking := results.missing(study, found):
        runs = (f"{label} ({count} {'run' if count == 1 else 'runs'})" for label, count in lacking.items())
        yield from (f"Not measured yet: {', '.join(runs)}.", "")
    for (task, runs), lines in zip(results.by_task(found).items(), tables(study, found)):
        yield from (*lines, "", image_links(study, task, runs), "")
    if study.left_out and found["runs"]:
        yield f"The first {study.left_out:,} {study.over} are left out: until then only short episodes have ended."
        yield ""
    for index, machine in enumerate(found["machines"]):
        machine_runs = [run for run in found["runs"] if run["machine"] == index]
        dates = sorted({run["date"] for run in machine_runs})
        cases = f": {', '.join(results.by_cell(machine_runs))}" * (len(found["machines"]) > 1)
        yield f"Measured on {machine_words(machine)}; {' to '.join(dict.fromkeys((dates[0], dates[-1])))}{cases}."
        yield ""


def tables(study: Study, found: Mapping[str, Any]) -> list[list[str]]:
    """Returns the lines of a table for each task of a study's results, as `results.counted` reads them."""
    points = found[study.over]
    return [
        [f"`{task}`, {points[-1]:,} {study.over}:", "", *_table(study, results.by_cell(runs), points)]
        for task, runs in results.by_task(found).items()
    ]


def _needs(study: Study, found: Mapping[str, Any]) -> str:
    """Returns a comment on the time that all of a study's runs need, by that of those which there are."""
    if not found["runs"]:
        return ""
    secs = statistics.mean(run["train_secs"] for run in found["runs"]) * len(study.planned()) / study.jobs
    if secs < 90:
        return "  # needs a minute"
    time = f"{secs / 60:.0f} minutes" if secs < 5400 else f"{secs / 3600:.0f} hours"
    return f"  # needs {time} on such a machine"


def _table(study: Study, cells: Cells, points: Sequence[int]) -> list[str]:
    compared, is_over_steps = differences(study, cells), study.over == "steps"
    name, others = metric_name(study), study.references()
    levels = study.levels if study.metric == SUCCESS and is_over_steps else ()
    more = [
        metric for metric in (COVERAGE, *study.also) if any(metric in run for runs in cells.values() for run in runs)
    ]

    def summarised(summary: str, label: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
        return [_shown(runs, study.metric, summary), *(compared.get((label, other, summary), "") for other in others)]

    rows = []
    for label, runs in cells.items():
        rows.append(
            [
                label,
                str(len(runs)),
                *(words for summary in SUMMARIES for words in summarised(summary, label, runs)),
                *(steps_to(level, study, runs, points) for level in levels),
                *(at_the_end([run for run in runs if metric in run], metric) for metric in more),
                time(runs) if is_over_steps else mean([run["env_steps"] / 1e6 for run in runs]).shown(),
            ]
        )
    header = ["", "seeds"]
    for summary in SUMMARIES:
        header += [f"{name} {summary}", *(f"difference to {other}" for other in others)]
    header += [f"million steps to {level:.0%}" for level in levels]
    header += [f"{_words(metric)} at the end" for metric in more]
    return table([*header, "time of a run" if is_over_steps else "million steps a run"], rows)


def metric_name(study: Study) -> str:
    """Returns the name of the study's metric in words."""
    return shown_name(study.metric).removeprefix("mean ")


def _words(metric: str) -> str:
    return " of ".join(shown_name(part) for part in metric.split("/")[-2:] if part not in ("episode", "reward"))


def at_the_end(runs: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Returns the estimate of a metric at the end of runs; empty: there are none."""
    return _shown(runs, metric, "at the end") if runs else ""


def _shown(runs: Sequence[Mapping[str, Any]], metric: str, summary: str) -> str:
    low, high = -math.inf if metric.startswith(SIGNED) else 0.0, 1.0 if metric in FRACTIONS else math.inf
    return mean([SUMMARIES[summary](curve(run, metric)) for run in runs], (low, high)).shown()


def steps_to(level: float, study: Study, runs: Sequence[Mapping[str, Any]], points: Sequence[int]) -> str:
    """Returns the million steps to a level, or how many of the runs reach it."""
    found = [reached(level, curve(run, study.metric), points) for run in runs]
    steps = [num_steps / 1e6 for num_steps in found if num_steps is not None]
    return mean(steps, (0.0, math.inf)).shown() if len(steps) == len(runs) else f"{len(steps)} of {len(runs)} runs"


def time(runs: Sequence[Mapping[str, Any]]) -> str:
    """Returns how long a run took, at the median."""
    secs = statistics.median(run["train_secs"] for run in runs)
    value, name = (secs, "s") if secs < 60 else (secs / 60, "min")
    return f"{value:.{0 if value >= 10 else 1}f} {name}"


def image_links(study: Study, task: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """Returns the Markdown that shows a task's figures."""
    what = f"{metric_name(study)} against {study.over}"
    return "\n".join(f"![{what}](images/studies/{name})" for name in images(study, task, runs))
