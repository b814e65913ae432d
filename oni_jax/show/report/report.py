"""Report of a run in one self-contained HTML file: figures, evaluation, captions, recordings, settings, machine."""

import base64
import datetime
import glob
import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from oni_jax.annotation.prompts import escape
from oni_jax.envs.random_play import random_play
from oni_jax.evaluation.inspection import InspectedCaption, inspect_reward
from oni_jax.host.files import read_regular
from oni_jax.host.run_files import summary
from oni_jax.runs.curves import SUCCESS, Curves, Setting, last_value
from oni_jax.runs.run import Run
from oni_jax.settings.config import listed
from oni_jax.settings.fields import UserError, counted, printable
from oni_jax.show.report.config import ReportConfig
from oni_jax.show.report.evaluation_table import Part, evaluation_parts
from oni_jax.show.report.machine import describe_machine
from oni_jax.show.report.panels import DIAGNOSTICS, DRAWN, FIGURES
from oni_jax.show.report.plots import RETURN, draw, image
from oni_jax.types import NO_MESSAGE

MEDIA_TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
MARKS = {".mp4": re.compile(b"....ftyp", re.DOTALL), ".gif": re.compile(b"GIF8[79]a")}  # beginnings of files
MAX_RECORDING_BYTES = 32 << 20
RECORDINGS = "recordings"
# Metric -> label and number format of its tile.
TILES: Mapping[str, tuple[str, str]] = {
    "episodes": ("episodes", ",.0f"),
    RETURN: ("return, last {episodes} episodes", ",.4g"),
    SUCCESS: ("success", ".1%"),
    "episode/dlvl": ("depth", ".3g"),
    "labels_held": ("labels", ",.0f"),
    "steps_unanswered_fraction": ("steps without an answer", ".2%"),
    "env_steps_per_sec_overall": ("steps a second", ",.0f"),
}


class Recording(NamedTuple):
    name: str
    content: str = ""  # a data URI
    problem: str = ""  # why there is none


def make_report(config: ReportConfig, added: Mapping[bytes, int] | None = None) -> bytes:
    """Makes the HTML file; `added`: captions to score beside those of the run, and how often each was met.

    Raises:
        UserError: there is no such run, it has no rows of metrics yet, or a named file can't be used.
    """
    run = Run(config.folder).metrics({*DRAWN, *TILES}, config.experiment)
    evaluation = _evaluation(config)  # first, since it may fail and the rest takes seconds
    about_captions, captions = _captions(config, added)
    known = [(field, value) for field, value in listed(run.config) if not field.metadata["secret"]]
    page = page_template().render(
        report=config,
        run=run,
        facts=_facts(run),
        **figures_of([Setting(run.name, (run,))]),
        evaluation=evaluation,
        about_captions=about_captions,
        captions=captions,
        recordings=_recordings(config),
        changed=[
            [f"--{x.name}", value, "''" if x.default == "" else x.default] for x, value in known if value != x.default
        ],
        settings=[[f"--{field.name}", value, field.metadata["help"]] for field, value in known],
        machine=describe_machine().items(),
        commit=_commit(config.folder),
    )
    return page.encode()


def page_template(name: str = "report.html") -> jinja2.Template:
    """Loads a page. Every text put into it is escaped; unprintable characters are shown by their codes."""

    def shown(value: object) -> object:
        return value if isinstance(value, Markup) or (text := str(value)).isprintable() else printable(text)

    beside = jinja2.FileSystemLoader(os.path.dirname(__file__))
    options = {"autoescape": True, "undefined": jinja2.StrictUndefined, "trim_blocks": True}
    return jinja2.Environment(loader=beside, finalize=shown, **options).get_template(name, globals={"counted": counted})


def _facts(run: Curves) -> list[tuple[str, str]]:
    """Returns (label, number) of the facts at the top of the page."""
    time = datetime.timedelta(seconds=round(run.hours[-1] * 3600))
    facts = [("environment steps", f"{run.env_steps[-1]:,.0f}"), ("of training", str(time))]
    for metric, (label, form) in TILES.items():
        if (value := last_value(run, metric)) is not None:
            number = min(run.config.run.stats_avg, int(last_value(run, "episodes") or 0))
            facts.append((label.format(episodes=f"{number:,}"), format(value, form)))
            if metric == RETURN and (at_random := random_play(run.config.env)):
                facts.append(("return of random play", format(at_random.mean_return, form)))
    return facts


def _commit(folder: str) -> str:
    """Returns the git commit of the program that trained, as the summary has it; empty before the run's end."""
    return str(summary(folder).get("commit", ""))


def figures_of(settings: Sequence[Setting]) -> dict[str, list[tuple[str, str]]]:
    """Returns the name and the data URI of each figure that has data: the `curves`, and the `diagnostics`."""
    figures = {name: figure for name in FIGURES if (figure := draw(name, settings)) is not None}
    drawn = [(name, _data_uri(image(figure, "png"), "image/png")) for name, figure in figures.items()]
    return {
        "curves": [each for each in drawn if each[0] not in DIAGNOSTICS],
        "diagnostics": [each for each in drawn if each[0] in DIAGNOSTICS],
    }


def _evaluation(config: ReportConfig) -> list[Part]:
    beside = os.path.join(config.folder, "evaluation.json")
    if config.evaluation:
        return evaluation_parts(config.evaluation, follows_links=True)
    return evaluation_parts(beside) if os.path.lexists(beside) else []


def _captions(config: ReportConfig, added: Mapping[bytes, int] | None) -> tuple[list[str], list[Part]]:
    """Returns lines about all captions, and tables of the most and the least rewarded."""
    try:
        inspection = inspect_reward(config.folder, added)
    except UserError as error:
        if added:
            raise
        return [f"None: {error}."], []
    rows = inspection.captions
    rewarded = sum(row.reward > 0 for row in rows)
    about = [f"{len(rows):,} captions, {rewarded:,} with a reward above 0, at {inspection.env_steps:,} steps."]
    if inspection.other_observations:
        about.append(f"The reward also reads {', '.join(inspection.other_observations)}, set to zeros here.")
    header = ["caption", "reward", "raw", "count", *inspection.label_columns]
    ends = inspection.ends(config.num_messages)
    return about, [
        Part(title.capitalize(), "", [(header, _caption_rows(captions, header))]) for title, captions in ends
    ]


def _caption_rows(rows: Sequence[InspectedCaption], header: Sequence[str]) -> list[list[str]]:
    found = []
    for row in rows:
        known = ["" if x is None else f"{x:,}" for x in (row.count, *(row.labels or [None] * len(header[4:])))]
        found.append([escape(row.caption) or NO_MESSAGE, f"{row.reward:.4g}", f"{row.raw_reward:.4g}", *known])
    return found


def _recordings(config: ReportConfig) -> list[Recording]:
    """Reads the first of the folder `recordings`: this run's before other runs'; best, median, worst; the newest."""
    found: dict[str, str] = {}  # path without suffix -> path; an MP4 replaces its GIF
    folder = os.path.join(config.folder, RECORDINGS)
    for suffix in reversed(MEDIA_TYPES):
        for path in [] if os.path.islink(folder) else glob.glob(f"{glob.escape(folder)}/*{suffix}"):
            found[path.removesuffix(suffix)] = path
    infix = f"-{config.experiment.replace('/', '_')}-"  # see show.recordings.file_stem

    def order(path: str) -> tuple[bool, str, float, str]:
        name = os.path.basename(path)
        return infix not in name, name.partition("-")[0], -os.lstat(path).st_mtime, name

    paths = sorted(found.values(), key=order)
    return [_recording(path) for path in paths[: config.num_recordings]]


def _recording(path: str) -> Recording:
    name = os.path.basename(path)
    try:
        data = read_regular(path, MAX_RECORDING_BYTES)
    except OSError as error:
        return Recording(name, problem=f"is left out: {error.strerror}")
    suffix = os.path.splitext(path)[1]
    if not MARKS[suffix].match(data):
        return Recording(name, problem=f"is left out: it is no {suffix[1:].upper()}")
    return Recording(name, _data_uri(data, MEDIA_TYPES[suffix]))


def _data_uri(data: bytes, media_type: str) -> str:
    """Encodes a file for embedding."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
