"""Pages of the live view, laid out for a terminal's size: what matters least is left out first."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

from oni_jax.envs.display import COLUMNS, ROWS, Terminal
from oni_jax.metrics.rows import Row
from oni_jax.settings.run import RunConfig
from oni_jax.show.live.curve import Curve
from oni_jax.show.live.panels import (
    LABEL_WIDTH,
    MIN_CHART_WIDTH,
    Canvas,
    answers,
    charts,
    charts_beside,
    gauges,
    header,
    overview,
)
from oni_jax.show.live.phrases import Phrase, phrases
from oni_jax.show.live.templates import OVERVIEW, QUEUES

MIN_CHART_HEIGHT, MAX_CHART_HEIGHT = 5, 10  # rows, with title and axis
CHART_COLUMNS = 110  # width of a terminal that has charts
MIN_ANSWER_LINES, MIN_LOG_LINES = 4, 2
GAP = 2  # columns between an episode and what is beside it
LEAST_FIRST = ("achieved", "goals", "checkpoint", "entropy", "labels by", "episodes", "limited by", "helpful")
OVERVIEW_PAGE, QUEUES_PAGE, EPISODE_PAGE = "overview", "queues", "episode"
KEYS = {"q": QUEUES_PAGE, "e": EPISODE_PAGE}


@dataclasses.dataclass
class Content:
    run: RunConfig
    row: Row  # a row with the view's additions, see `phrases`
    state: str  # a few words
    curves: Mapping[str, Curve]
    log: Sequence[str] = ()  # lines printed, the newest last
    terminal: Terminal | None = None  # terminal of an episode that is being played
    shown: str = OVERVIEW_PAGE
    has_keys: bool = False

    def press(self, key: str) -> None:
        """Shows a key's page, or the overview again."""
        if (chosen := KEYS.get(key)) and (chosen != EPISODE_PAGE or self.terminal):
            self.shown = OVERVIEW_PAGE if self.shown == chosen else chosen


class Page(NamedTuple):
    """Lines of a page; those with the indices in `episode` stand on the right of an episode's rows."""

    lines: list[Text]
    episode: range = range(0)


def page(canvas: Canvas, height: int, content: Content) -> Page:
    """Returns `height` lines at most; the last one says which keys there are."""
    lines = header(canvas, content.row, content.run, content.state)
    body = Page([])
    if content.shown == EPISODE_PAGE:
        lines = lines if len(lines) + ROWS < height else lines[:1]
        room = max(0, min(ROWS, height - len(lines) - 1))
        body = Page([canvas.line("")] * room, range(room))
    elif content.shown == QUEUES_PAGE:
        body = Page(gauges(canvas, content.row, content.run, QUEUES)[: max(0, height - len(lines) - 1)])
    elif content.row:
        body = _overview(canvas, height - len(lines) - 1, content)
    episode = range(len(lines) + body.episode.start, len(lines) + body.episode.stop)
    lines += body.lines
    lines += _log(canvas, height - len(lines) - 1, content.log)
    if content.has_keys:
        lines = lines[: height - 1] + [canvas.line("")] * (height - 1 - len(lines))
        lines.append(_keys(canvas, content))
    return Page(lines[:height], episode)


def _keys(canvas: Canvas, content: Content) -> Text:
    parts: list[str | Phrase] = []
    for key, chosen in KEYS.items():
        if chosen != EPISODE_PAGE or content.terminal:
            parts += [(f" {key} ", "reverse"), f" {OVERVIEW_PAGE if chosen == content.shown else chosen}   "]
    return canvas.line(*parts, (" Ctrl-C ", "reverse"), " saves and leaves")


def _overview(canvas: Canvas, room: int, content: Content) -> Page:
    """Returns the sections, with an episode, charts or a curve in a line each, and the newest answers."""
    row, run, given = content.row, content.run, content.row.get("answers", ())
    reserved = min(len(content.log), MIN_LOG_LINES) + (MIN_ANSWER_LINES if given else 0)
    lines, episode = _with_episode(canvas, room - reserved, content)
    lines = lines or _with_charts(canvas, room - reserved, content)
    if not lines:
        templates = dict(OVERVIEW)
        lines = overview(canvas, row, run, content.curves, templates)
        for label in LEAST_FIRST:
            if len(lines) + reserved > room:
                templates.pop(label)
                lines = overview(canvas, row, run, content.curves, templates)
    lines = lines[: max(0, room)]
    room -= len(lines)
    return Page(lines + answers(canvas, given, room - min(len(content.log), max(2, room // 3))), episode)


def _with_episode(canvas: Canvas, room: int, content: Content) -> Page:
    """Returns the sections, and below an episode, with charts on its right if they fit there.

    Nothing where there is no episode or no room for it.
    """
    if content.terminal is None or canvas.width < COLUMNS:
        return Page([])
    on_right = Canvas(canvas.console, canvas.width - COLUMNS - GAP)
    titles = _titles(content) if on_right.width >= MIN_CHART_WIDTH else {}
    curves = {label: content.curves[label] for label in titles}
    others = {label: template for label, template in OVERVIEW.items() if label not in titles}
    lines = overview(canvas, content.row, content.run, {} if titles else content.curves, others)
    about = (f"{'episode':<{LABEL_WIDTH}}", "bold"), ("one of those being played", "dim")
    lines += [canvas.line(""), canvas.line(*about)]
    if len(lines) + ROWS + 1 > room:
        return Page([])
    height = min(MAX_CHART_HEIGHT, (ROWS + 1) // max(1, len(curves)) - 1)
    beside = charts(on_right, curves, titles, height, 1)
    beside += [canvas.line("")] * ROWS
    episode = range(len(lines), len(lines) + ROWS)
    lines += [canvas.line(" " * GAP, line) for line in beside[:ROWS]]
    return Page([*lines, canvas.line("")], episode)


def _with_charts(canvas: Canvas, room: int, content: Content) -> list[Text]:
    """Returns the sections, and charts of those that have a curve; nothing where there is no room for charts."""
    titles = _titles(content)
    curves = {label: content.curves[label] for label in titles}
    if canvas.width < CHART_COLUMNS or not curves:
        return []
    others = {label: template for label, template in OVERVIEW.items() if label not in curves}
    lines = [*overview(canvas, content.row, content.run, {}, others), canvas.line("")]
    beside = charts_beside(canvas, len(curves))
    height = (room - len(lines)) // -(-len(curves) // beside) - 1
    if height < MIN_CHART_HEIGHT:
        return []
    return lines + charts(canvas, curves, titles, min(MAX_CHART_HEIGHT, height), beside)


def _titles(content: Content) -> dict[str, str]:
    """Returns titles of charts by the labels of the sections that have a curve."""
    found = phrases({label: OVERVIEW[label] for label in content.curves}, content.row, content.run)
    has_curve = {label: len(curve) > 1 and found[label] for label, curve in content.curves.items()}
    return {label: f"{label} {', '.join(text for text, _ in found[label])}" for label, has in has_curve.items() if has}


def _log(canvas: Canvas, room: int, log: Sequence[str]) -> list[Text]:
    newest = list(log)[-room:] if room > 0 else []
    return [canvas.line((f"{'log' if i == 0 else '':<{LABEL_WIDTH}}", "bold"), line) for i, line in enumerate(newest)]
