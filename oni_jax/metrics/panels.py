"""Sections of the live view; rich breaks their lines."""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.columns import Columns
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from oni_jax.config import RunConfig
from oni_jax.metrics.phrases import WAITS, finite, phrases
from oni_jax.metrics.rows import Row, printable
from oni_jax.types import NO_MESSAGE, Answer

LABEL_WIDTH = 10
CURVE_WIDTH = 60
BAR_WIDTH = 8  # two fit side by side into 80 columns
WAIT_WIDTH = max(map(len, WAITS.values()))
# Answer -> a mark for each caption of its item, and their style.
MARKS = {"helpful": ("+", "green"), "not helpful": ("-", "")}
MARKS |= {"first": ("> ", ""), "second": (" >", ""), "tie": ("==", "dim")}


def overview(row: Row, run: RunConfig, returns: np.ndarray, width: int, ascii_only: bool) -> dict[str, RenderableType]:
    """Returns the content of each section by label, without the newest answers. What a row lacks is left out."""
    room = max(1, width - LABEL_WIDTH)
    sections: dict[str, RenderableType] = {}
    for label, found in phrases(row, run).items():
        if not found:
            continue
        line = Text(", ").join(Text(encoded(text, ascii_only), style) for text, style in found)
        sections[label] = line
        if label == "return" and len(returns) > 1:
            span = f" {returns.min():,.3g} to {returns.max():,.3g}"
            size = max(1, min(CURVE_WIDTH, room - line.cell_len - 1 - len(span)))
            line.append(" ").append(sparkline(returns, size, ascii_only), "green").append(span)
        elif label == "waits":
            sections[label] = _bars(finite(row), room, ascii_only)
        elif label == "LLM" and (problem := printable(str(row.get("annotation/problem", "")))):
            sections["problem"] = Text(encoded(problem, ascii_only), "yellow")
    return sections


def labelled(label: str, content: RenderableType) -> Table:
    """Puts a section's label in front of it."""
    table = Table.grid()
    table.add_column(width=LABEL_WIDTH, style="bold")
    table.add_column()
    table.add_row("" if label == "problem" else label, content)
    return table


def answer_lines(answers: Sequence[Answer], ascii_only: bool) -> list[Text]:
    """Renders a heading and the answers, the newest first: each caption on a line, after its mark."""
    single = len(answers[0].item) == 1
    legend = "+ helpful, - not" if single else "> better, = tie"
    lines = [Text("answers".ljust(LABEL_WIDTH), "bold").append(f"{legend}, ? unreadable", "not bold dim")]
    for answer in reversed(answers):
        marks, style = MARKS.get(answer.said, ("?" * len(answer.item), "yellow"))
        for mark, caption in zip(marks, answer.item):
            lines.append(Text(f"{mark} {encoded(printable(caption), ascii_only) or NO_MESSAGE}", style))
    for line in lines:  # rich's ellipsis is not in ASCII
        line.no_wrap, line.overflow = True, "crop" if ascii_only else "ellipsis"
    return lines


def sparkline(points: np.ndarray, width: int, ascii_only: bool) -> str:
    """Draws a curve in a line of text of at most `width` characters, each the mean of about as many points."""
    levels = "_.-=+*#" if ascii_only else "▁▂▃▄▅▆▇█"
    means = np.array([part.mean() for part in np.array_split(points, min(width, len(points)))])
    heights = (means - means.min()) / (np.ptp(means) or 1.0)
    return "".join(levels[round(height * (len(levels) - 1))] for height in heights)


def encoded(text: str, ascii_only: bool) -> str:
    """Escapes what an ASCII terminal can't show."""
    return text.encode("ascii", "backslashreplace").decode() if ascii_only else text


def _bars(known: Mapping[str, float], room: int, ascii_only: bool) -> Columns:
    """Draws a bar for each of WAITS, side by side where there is room."""
    full, empty = "#." if ascii_only else "█░"
    size = max(1, min(BAR_WIDTH, room - WAIT_WIDTH - len(" 100% ")))
    bars = []
    for name, words in WAITS.items():
        if name in known:
            num_full = min(size, round(known[name] * size))
            bar = full * num_full + empty * (size - num_full)
            bars.append(Text.assemble(f"{words:<{WAIT_WIDTH}} {known[name]:4.0%} ", (bar, "magenta")))
    return Columns(bars, padding=(0, 2))
