"""A run in one HTML file that needs nothing else: figures, evaluation, messages, a recording, settings, machine."""

import datetime
import glob
import os
from collections.abc import Iterator, Mapping, Sequence

from oni_jax.annotation.prompts import escape
from oni_jax.config import Config, UserError, settings
from oni_jax.inspection import InspectedMessage, Inspection, inspect_reward
from oni_jax.reporting.config import ReportConfig
from oni_jax.reporting.curves import SUCCESS, Run, Setting, last_value, read_run
from oni_jax.reporting.evaluation_table import evaluation_tables
from oni_jax.reporting.machine import describe_machine
from oni_jax.reporting.markup import Html, data_uri, joined, page, table, tag
from oni_jax.reporting.plots import DRAWN, FIGURES, draw, image
from oni_jax.types import NO_MESSAGE

STYLE = """
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; } h3 { margin-bottom: .3rem; }
img, video { max-width: 100%; height: auto; } figure { margin: 1rem 0; }
figcaption, .note { color: #555; font-size: .9rem; }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #eee; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.message { font-family: ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; margin: 1rem 0; }
.facts div { display: flex; flex-direction: column; } .facts b { font-size: 1.3rem; } .facts span { color: #555; }
details { margin: .5rem 0; } summary { cursor: pointer; }
"""
MEDIA_TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
MAX_RECORDING_BYTES = 32 << 20
# Tile -> its label, and the form of its number.
TILES: Mapping[str, tuple[str, str]] = {
    "episodes": ("episodes", ",.0f"),
    "mean_return": ("return, last {episodes} episodes", ",.4g"),
    SUCCESS: ("success", ".1%"),
    "episode/dlvl": ("depth", ".3g"),
    "labels_held": ("labels", ",.0f"),
    "env_steps_per_sec_overall": ("steps a second", ",.0f"),
}


def make_report(config: ReportConfig) -> bytes:
    """The file.

    Raises:
        UserError: there is no such run, it has no rows of metrics yet, or a file that is named can't be used.
    """
    run = read_run(config.folder, config.experiment, {*DRAWN, *TILES})
    evaluation = _evaluation(config)  # before what takes seconds: it may be refused
    sections = {
        "Curves": joined(_curves(run)),
        "Evaluation": evaluation,
        "Messages": joined(_messages(config)),
        "Recording": joined(_recordings(config)),
        "Settings": joined(_settings(run.config)),
        "Versions and hardware": _machine(),
    }
    titled = [joined([tag("h2", title), content]) for title, content in sections.items()]
    return page(f"{config.experiment}, {run.config.env.root_env}", STYLE, _heading(run), *titled)


def _heading(run: Run) -> Html:
    config = run.config
    about = f"{config.env.root_env}, reward {config.reward.llm_reward_type}, seed {config.run.seed}"
    time = datetime.timedelta(seconds=round(run.hours[-1] * 3600))
    facts = [("environment steps", f"{run.env_steps[-1]:,.0f}"), ("of training", str(time))]
    for metric, (label, form) in TILES.items():
        if (value := last_value(run, metric)) is not None:
            facts.append((label.format(episodes=f"{config.run.stats_avg:,}"), format(value, form)))
    tiles = [tag("div", tag("b", value), tag("span", label)) for label, value in facts]
    return joined([tag("h1", run.name), tag("p", about), tag("div", *tiles, class_="facts")])


def _curves(run: Run) -> Iterator[Html]:
    for name in FIGURES:
        figure = draw(name, [Setting(run.name, (run,))])
        if figure is not None:
            picture = data_uri(image(figure, "png"), "image/png")
            yield tag("figure", tag("img", src=picture, alt=f"{name.replace('_', ' ')} of {run.name}"))


def _evaluation(config: ReportConfig) -> Html:
    beside = os.path.join(config.folder, "evaluation.json")
    path = config.evaluation or (beside if os.path.exists(beside) else "")
    if path:
        return evaluation_tables(path)
    return _note(f"None: {config.evaluating('--json', beside)} makes one.")


def _messages(config: ReportConfig) -> Iterator[Html]:
    """The most and the least rewarded."""
    try:
        inspection = inspect_reward(config.folder, config.dataset_dir)
    except UserError as error:
        if config.dataset_dir:
            raise
        yield _note(f"None: {error}.")
        return
    rows = inspection.messages
    rewarded = sum(row.reward > 0 for row in rows)
    yield tag("p", f"{len(rows):,} messages, {rewarded:,} with a reward above 0, at {inspection.env_steps:,} steps.")
    if inspection.other_observations:
        yield _note(f"The reward also reads {', '.join(inspection.other_observations)}, here taken as zeros.")
    for title, listed in inspection.ends(config.num_messages):
        yield tag("h3", title.capitalize())
        yield _message_table(listed, inspection)


def _message_table(rows: Sequence[InspectedMessage], inspection: Inspection) -> Html:
    columns = inspection.label_columns
    cells = []
    for row in rows:
        message = tag("span", escape(row.message), class_="message") if row.message else tag("i", NO_MESSAGE)
        known = ["" if x is None else f"{x:,}" for x in (row.count, *(row.labels or [None] * len(columns)))]
        cells.append([message, f"{row.reward:.4g}", f"{row.raw_reward:.4g}", *known])
    return table(["message", "reward", "raw", "count", *columns], cells)


def _recordings(config: ReportConfig) -> Iterator[Html]:
    """The first of the folder `recordings`, by name: best, median, worst; the run's own before others'."""
    found: dict[str, str] = {}  # without its suffix -> path; an MP4 takes the place of its GIF
    for suffix in reversed(MEDIA_TYPES):
        for path in glob.glob(f"{glob.escape(config.folder)}/recordings/*{suffix}"):
            found[path.removesuffix(suffix)] = path
    own = f"-{config.experiment.replace('/', '_')}-"  # see viewing.recordings.file_stem
    paths = sorted(found.values(), key=lambda path: (own not in os.path.basename(path), path))
    if not paths:
        yield _note(f"None: {config.evaluating('--record', '1')} makes one.")
    for path in paths[: config.num_recordings]:
        yield _recording(path)


def _recording(path: str) -> Html:
    name, suffix = os.path.basename(path), os.path.splitext(path)[1]
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_RECORDING_BYTES + 1)
    except OSError as error:
        return _note(f"{name} can't be read ({error.strerror}).")
    if len(data) > MAX_RECORDING_BYTES:
        return _note(f"{name} is left out: it is larger than {MAX_RECORDING_BYTES >> 20} MiB.")
    content = data_uri(data, MEDIA_TYPES[suffix])
    if suffix == ".mp4":
        player = tag("video", src=content, controls="", muted="", loop="")
    else:
        player = tag("img", src=content, alt=f"recording {name}")
    return tag("figure", player, tag("figcaption", name))


def _settings(config: Config) -> Iterator[Html]:
    """Those that are not the defaults, then all."""
    known = [(field, value) for field, value in settings(config) if not field.metadata["secret"]]
    changed = [(field, value) for field, value in known if value != field.default]
    yield tag("p", "Other than the defaults:")
    yield table(
        ["flag", "value", "default"],
        [[f"--{field.name}", value, field.default if field.default != "" else "''"] for field, value in changed],
        num_texts=3,
    )
    rows = [[f"--{field.name}", value, field.metadata["help"]] for field, value in known]
    yield tag("details", tag("summary", "All settings"), table(["flag", "value", ""], rows, num_texts=3))


def _machine() -> Html:
    rows = list(describe_machine().items())
    return joined([_note("Of the machine that wrote this report."), table(["", ""], rows, num_texts=2)])


def _note(text: str) -> Html:
    return tag("p", text, class_="note")
