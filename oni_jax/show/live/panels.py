"""Pages of the live view, as lines that fit a terminal's width."""

import re
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from oni_jax.host.run_files import fraction_done
from oni_jax.metrics.rows import Row, finite
from oni_jax.settings.fields import printable
from oni_jax.settings.run import RunConfig
from oni_jax.show.live.curve import Curve, chart, sparkline
from oni_jax.show.live.pace import ENDLESS
from oni_jax.show.live.phrases import Phrase, phrases
from oni_jax.show.live.templates import WAITS
from oni_jax.types import NO_MESSAGE, Answer

LABEL_WIDTH = 11
VALUE_WIDTH = 27  # width next to a curve in the same line
MAX_LINES = 3  # lines of a section
BAR_WIDTH = 20
MIN_CHART_WIDTH = 44
# Label -> patterns of the metric whose curve it has: the first that a name of a row matches, if it is one alone.
CURVES: Mapping[str, Sequence[str]] = {
    "return": ("mean_return",),
    "intrinsic": ("episode/intrinsic_return/.+", "loss/intrinsic_reward_mean"),
    "helpful": ("reward/(.+/)?helpful_fraction", "reward/(.+/)?goal_coverage"),
    "entropy": ("loss/entropy",),
}
# Answer -> a mark for each caption of its item, and their style.
MARKS = {"helpful": ("+", "green"), "not helpful": ("-", ""), "unreadable": ("??", "yellow")}
MARKS |= {"first": ("> ", ""), "second": (" >", ""), "tie": ("==", "dim")}


class Canvas:
    """Makes lines of a width; escapes what the terminal can't show."""

    def __init__(self, console: Console, width: int):
        self.console, self.width, self.ascii_only = console, max(1, width), console.options.ascii_only

    def line(self, *parts: str | Phrase | Text) -> Text:
        """Returns a line, cut off where the terminal ends."""
        text = Text.assemble(*(part if isinstance(part, Text) else self._text(part) for part in parts))
        text.truncate(self.width, overflow="crop" if self.ascii_only else "ellipsis")
        return text

    def section(self, label: str, found: Iterable[Phrase]) -> list[Text]:
        """Returns a label and phrases, on several lines if need be."""
        content = Text(", ").join(map(self._text, found))
        room = max(1, self.width - LABEL_WIDTH)
        wrapped = content.wrap(self.console, room) if content.cell_len > room else [content]
        labels = [label] + [""] * (MAX_LINES - 1)
        return [self.line((f"{heading:<{LABEL_WIDTH}}", "bold"), line) for heading, line in zip(labels, wrapped)]

    def _text(self, part: str | Phrase) -> Text:
        text, style = (part, "") if isinstance(part, str) else part
        return Text(text.encode("ascii", "backslashreplace").decode() if self.ascii_only else text, style)

    def bar(self, fraction: float, size: int) -> str:
        full, empty = "#." if self.ascii_only else "█░"
        num_full = min(size, round(fraction * size))
        return full * num_full + empty * (size - num_full)


def curve_value(label: str, row: Row) -> float | None:
    """Returns a row's value for a curve of CURVES, if there is one. A curve never has two metrics."""
    names = [[name for name in row if re.fullmatch(pattern, name)] for pattern in CURVES[label]]
    found = next(filter(None, names), [])
    return finite(row).get(found[0]) if len(found) == 1 else None


def header(canvas: Canvas, row: Row, run: RunConfig, state: str) -> list[Text]:
    """Returns the run's name, what it is doing, and how far it is."""
    name = printable(run.experiment)
    gap = max(1, canvas.width - len(name) - len(state))
    lines = [canvas.line((name, "bold cyan"), " " * gap, (state, "yellow"))]
    if row and min(run.train_for_env_steps, run.train_for_seconds) < ENDLESS:
        done = fraction_done(run, row.get("env_steps", 0), row.get("secs", 0))
        percent = f" {done:4.0%}"
        lines.append(canvas.line((canvas.bar(done, max(1, canvas.width - len(percent))), "cyan"), percent))
    return lines


def overview(canvas: Canvas, row: Row, run: RunConfig, curves: Mapping[str, Curve], template: Mapping) -> list[Text]:
    """Returns the sections of what a row holds, with a curve in the line of those that `curves` has."""
    lines = []
    for label, found in phrases(template, row, run).items():
        curve = curves.get(label, ())
        if not found:
            continue
        lines += canvas.section(label, found)
        used = lines[-1].cell_len
        if len(curve) > 1:
            points = curve.drawn(max(1, canvas.width - LABEL_WIDTH - VALUE_WIDTH - 20))
            low, high = curve.extremes()
            span = f"  {low:,.4g} to {high:,.4g}"
            gap = " " * max(1, LABEL_WIDTH + VALUE_WIDTH - used)
            lines[-1] = canvas.line(lines[-1], gap, (sparkline(points, canvas.ascii_only), "green"), span)
        if label == "labels by" and (problem := printable(str(row.get("annotation/problem", "")))):
            lines += canvas.section("", [(problem, "yellow")])
    return lines


def gauges(canvas: Canvas, row: Row, run: RunConfig, template: Mapping) -> list[Text]:
    """Returns who waits, as bars, and the gauges of the queues."""
    known = finite(row)
    width = max(map(len, WAITS.values()))
    lines = [
        canvas.line(
            (f"{'waits' if i == 0 else '':<{LABEL_WIDTH}}", "bold"),
            f"{WAITS[name]:<{width}} {known[name]:4.0%} ",
            (canvas.bar(known[name], BAR_WIDTH), "magenta"),
        )
        for i, name in enumerate(name for name in WAITS if name in known)
    ]
    for label, found in phrases(template, row, run).items():
        if found and label != "waits":
            lines += canvas.section(label, found)
    return lines


def charts(
    canvas: Canvas, curves: Mapping[str, Curve], titles: Mapping[str, str], height: int, beside: int
) -> list[Text]:
    """Returns charts of `height` rows, `beside` of them side by side, and an empty line after each row."""
    drawn = list(curves)
    width = canvas.width // beside - 2
    lines = []
    for i in range(0, len(drawn), beside):
        row_charts = [
            chart(curves[label], titles[label], width, height, canvas.ascii_only) for label in drawn[i : i + beside]
        ]
        for j, texts in enumerate(zip(*row_charts)):
            style = "bold" if j == 0 else "dim" if j == height - 1 else "green"
            lines.append(canvas.line(("".join(f"{text[:width]:<{width + 2}}" for text in texts), style)))
        lines.append(canvas.line(""))
    return lines


def charts_beside(canvas: Canvas, number: int) -> int:
    """Returns how many charts of a number fit side by side, evenly."""
    return 3 if number % 3 == 0 and canvas.width >= 3 * MIN_CHART_WIDTH else 2


def answers(canvas: Canvas, given: Sequence[Answer], height: int) -> list[Text]:
    """Returns a heading and the newest answers, the newest first, none cut in half, in at most `height` lines."""
    if not given or height < 2:
        return []
    pairs = len(given[-1].item) > 1
    legend = "> better, = tie" if pairs else "+ helpful, - not helpful" if given[-1].said in MARKS else "caption, goals"
    lines = [canvas.line(("answers".ljust(LABEL_WIDTH), "bold"), (f"the newest first: {legend}, ? unreadable", "dim"))]
    for answer in reversed(given):
        marks, style = MARKS.get(answer.said, ("*", ""))
        captions = [printable(caption) or NO_MESSAGE for caption in answer.item]
        block = [canvas.line((f"{mark} {caption}", style)) for mark, caption in zip(marks, captions)]
        if answer.said not in MARKS:
            block.append(canvas.line(f"    {answer.said}: {_compact(answer.text)}"))
        if len(lines) + len(block) > height:
            break
        lines += block
    return lines


def _compact(text: str) -> str:
    """Returns an answer's bullets, or else all of it, in a line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    bullets = [line.lstrip("-* ") for line in lines if line.startswith(("-", "*"))]
    return printable(", ".join(bullets) if bullets else " ".join(lines))
