"""Pages of the live view, laid out for a terminal's size: what matters least is left out first."""

import dataclasses
from collections.abc import Mapping, Sequence

from rich.text import Text

from oni_jax.config import RunConfig
from oni_jax.metrics.curve import Curve
from oni_jax.metrics.panels import LABEL_WIDTH, Canvas, answers, charts, charts_beside, gauges, header, overview
from oni_jax.metrics.phrases import phrases
from oni_jax.metrics.rows import Row
from oni_jax.metrics.templates import OVERVIEW, QUEUES

MIN_CHART_HEIGHT, MAX_CHART_HEIGHT = 5, 10  # rows, with title and axis
CHART_COLUMNS = 110  # of a terminal that has charts
MIN_ANSWER_LINES, MIN_LOG_LINES = 4, 2
LEAST_FIRST = ("achieved", "goals", "checkpoint", "entropy", "labels by", "episodes", "limited by", "helpful")


@dataclasses.dataclass
class Content:
    """Contents of a page."""

    run: RunConfig
    row: Row  # with what the view has found out, see `phrases`
    state: str  # in a few words
    curves: Mapping[str, Curve]
    log: Sequence[str] = ()  # lines printed, the newest last
    shows_queues: bool = False
    has_keys: bool = False


def page(canvas: Canvas, height: int, content: Content) -> list[Text]:
    """Returns `height` lines at most; the last one says which keys there are."""
    lines = header(canvas, content.row, content.run, content.state)
    room = height - len(lines) - 1
    if content.shows_queues:
        lines += gauges(canvas, content.row, content.run, QUEUES)[: max(0, room)]
    elif content.row:
        lines += _overview(canvas, room, content)
    lines += _log(canvas, height - len(lines) - 1, content.log)
    if content.has_keys:
        other = "overview" if content.shows_queues else "queues"
        lines = lines[: height - 1] + [canvas.line("")] * (height - 1 - len(lines))
        lines.append(canvas.line((" q ", "reverse"), f" {other}   ", (" Ctrl-C ", "reverse"), " saves and leaves"))
    return lines[:height]


def _overview(canvas: Canvas, room: int, content: Content) -> list[Text]:
    """Returns the sections, with charts or with a curve in a line each, and the newest answers."""
    row, run, given = content.row, content.run, content.row.get("answers", ())
    reserved = min(len(content.log), MIN_LOG_LINES) + (MIN_ANSWER_LINES if given else 0)
    lines = _with_charts(canvas, room - reserved, content)
    if not lines:
        templates = dict(OVERVIEW)
        lines = overview(canvas, row, run, content.curves, templates)
        for label in LEAST_FIRST:
            if len(lines) + reserved > room:
                templates.pop(label)
                lines = overview(canvas, row, run, content.curves, templates)
    lines = lines[: max(0, room)]
    room -= len(lines)
    return lines + answers(canvas, given, room - min(len(content.log), max(2, room // 3)))


def _with_charts(canvas: Canvas, room: int, content: Content) -> list[Text]:
    """Returns the sections, and charts of those that have a curve; nothing where there is no room for charts."""
    found = phrases({label: OVERVIEW[label] for label in content.curves}, content.row, content.run)
    curves = {label: curve for label, curve in content.curves.items() if len(curve) > 1 and found[label]}
    if canvas.width < CHART_COLUMNS or not curves:
        return []
    others = {label: own for label, own in OVERVIEW.items() if label not in curves}
    lines = [*overview(canvas, content.row, content.run, {}, others), canvas.line("")]
    height = (room - len(lines)) // -(-len(curves) // charts_beside(canvas, len(curves))) - 1
    if height < MIN_CHART_HEIGHT:
        return []
    titles = {label: f"{label} {', '.join(text for text, _ in found[label])}" for label in curves}
    return lines + charts(canvas, curves, titles, min(MAX_CHART_HEIGHT, height))


def _log(canvas: Canvas, room: int, log: Sequence[str]) -> list[Text]:
    newest = list(log)[-room:] if room > 0 else []
    return [canvas.line((f"{'log' if i == 0 else '':<{LABEL_WIDTH}}", "bold"), line) for i, line in enumerate(newest)]
