"""The parts of the live view, as lines that fit a width."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

from oni_jax.config import RunConfig
from oni_jax.metrics.phrases import WAITS, Phrase, finite, phrases, waits
from oni_jax.metrics.rows import Row, printable
from oni_jax.types import NO_MESSAGE, Answer

LABEL_WIDTH = 10
CURVE_WIDTH = 60
MIN_PAIR_WIDTH = 64  # for two messages side by side
MAX_PROBLEM_LINES = 3
LEAST_FIRST = ("memory", "labels", "episodes", "queues")
_WAIT_WIDTH = max(map(len, WAITS.values())) + len(" 100% ")


class Pens(NamedTuple):
    """Characters to draw with."""

    levels: str  # of a curve, from low to high
    full: str
    empty: str
    cut: str  # where a text was cut off
    encoding: str  # that texts have to fit into


UNICODE = Pens("▁▂▃▄▅▆▇█", "█", "░", "…", "utf-8")
ASCII = Pens("_.-=+*#", "#", ".", "~", "ascii")


def overview(row: Row, run: RunConfig, returns: Sequence[float], width: int, pens: Pens) -> dict[str, list[Text]]:
    """The lines under each label, without the newest answers. What a row lacks is left out."""
    sections: dict[str, list[Text]] = {}
    for label, found in phrases(row, run).items():
        sections[label] = flow(label, found, width, pens)
        if label == "return" and found:
            _append_curve(sections[label][0], returns, width, pens)
        elif label == "waits":
            sections[label] = _bars(waits(finite(row)), width, pens)
        elif label == "LLM":
            problem = _encoded(printable(str(row.get("annotation/problem", ""))), pens)
            wrapped = textwrap.wrap(problem, max(1, width - LABEL_WIDTH))[:MAX_PROBLEM_LINES]
            sections["problem"] = [_line("", text, "yellow") for text in wrapped]
    return sections


def fitting(sections: Mapping[str, list[Text]], height: int) -> list[Text]:
    """The sections' lines; where they don't fit, without what matters least."""
    kept = dict(sections)
    for label in LEAST_FIRST:
        if sum(map(len, kept.values())) > height:
            del kept[label]
    return [line for lines in kept.values() for line in lines][:height]


def flow(label: str, parts: Sequence[Phrase], width: int, pens: Pens) -> list[Text]:
    """The parts, with commas between them, behind a label; as many lines as it takes. None is broken."""
    lines: list[Text] = []
    for i, (part, style) in enumerate(parts):
        text = _cut(_encoded(part, pens), max(1, width - LABEL_WIDTH), pens)
        comma = "," if i + 1 < len(parts) else ""
        if not lines or lines[-1].cell_len + 1 + len(text + comma) > width:
            lines.append(_line("" if lines else label, text, style))
        else:
            lines[-1].append(" ").append(text, style)
        lines[-1].append(comma)
    return lines


def _line(label: str, text: str = "", style: str = "") -> Text:
    """A text behind a label. The whole line has no style, so that none spreads to its parts."""
    return _text("").append(label.ljust(LABEL_WIDTH), "bold").append(text, style)


def _text(text: str, style: str = "") -> Text:
    """A line that is cut off where it is too long."""
    return Text(text, style, no_wrap=True, overflow="crop")


def newest_answers(answers: Sequence[Answer], width: int, height: int, pens: Pens) -> list[Text]:
    """A heading and the answers, the newest first; nothing where not even one fits."""
    if not answers:
        return []
    narrow = width < MIN_PAIR_WIDTH
    of_pairs = "> better, = tie" if narrow else "> first wins, < second, = tie"
    legend = "+ helpful, - not" if len(answers[0].item) == 1 else of_pairs
    lines = [_line("answers", f"{legend}, ? unreadable", "dim")]
    for answer in reversed(answers):
        shown = _answer(answer, width, narrow, pens)
        if len(lines) + len(shown) > height:
            break
        lines += shown
    return lines if len(lines) > 1 else []


def sparkline(points: Sequence[float], width: int, levels: str) -> str:
    """A curve in a line of text of at most `width` characters, each the mean of as many points."""
    size = min(width, len(points))
    ends = [i * len(points) // size for i in range(size + 1)] if size > 0 else []
    means = [sum(points[a:b]) / (b - a) for a, b in zip(ends, ends[1:])]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(levels) - 1) / (high - low) if high > low else 0.0
    return "".join(levels[round((mean - low) * scale)] for mean in means)


def _append_curve(line: Text, returns: Sequence[float], width: int, pens: Pens) -> None:
    """All that the number was, and from where to where that goes."""
    if len(returns) > 1:
        span = f" {min(returns):,.3g} to {max(returns):,.3g}"
        room = width - line.cell_len - 1 - len(span)
        line.append(" ").append(sparkline(returns, max(1, min(CURVE_WIDTH, room)), pens.levels), "green").append(span)


def _bars(shares: Sequence[tuple[str, float]], width: int, pens: Pens) -> list[Text]:
    """A bar for each, side by side where there is room."""
    room = width - LABEL_WIDTH
    num_columns = 2 if room >= 2 * (_WAIT_WIDTH + 5) + 2 else 1
    bar = max(1, min(10, (room - 2 * (num_columns - 1)) // num_columns - _WAIT_WIDTH))
    lines = []
    for start in range(0, len(shares), num_columns):
        line = _line("" if start else "waits")
        for i, (text, share) in enumerate(shares[start : start + num_columns]):
            full = min(bar, round(share * bar))
            line.append(f"{'  ' if i else ''}{text.ljust(_WAIT_WIDTH - 6)} {share:4.0%} ")
            line.append(pens.full * full + pens.empty * (bar - full), "magenta")
        lines.append(line)
    return lines


def _answer(answer: Answer, width: int, narrow: bool, pens: Pens) -> list[Text]:
    """A message with its label before it; two with it between them, or, where it is narrow, below each other."""
    said = answer.said
    if len(answer.item) == 1:
        marks, style = {"helpful": ("+", "green"), "not helpful": ("-", "")}.get(said, ("?", "yellow"))
    else:
        marks, style = {"first": (">", ""), "second": ("<", ""), "tie": ("=", "dim")}.get(said, ("?", "yellow"))
        if not narrow:
            text = f" {marks} ".join(_message(message, (width - 3) // 2, pens) for message in answer.item)
            return [_text(text, style)]
        marks = {"first": "> ", "second": " >"}.get(said, 2 * marks)
    lines = (f"{mark} {_message(message, width - 2, pens)}" for mark, message in zip(marks, answer.item, strict=True))
    return [_text(line, style) for line in lines]


def _message(message: bytes, width: int, pens: Pens) -> str:
    return _cut(_encoded(printable(message), pens) or NO_MESSAGE, width, pens)


def _cut(text: str, width: int, pens: Pens) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + pens.cut


def _encoded(text: str, pens: Pens) -> str:
    return text.encode(pens.encoding, "backslashreplace").decode(pens.encoding)
