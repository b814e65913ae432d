"""What stands beside a game's screen, in words."""

from collections.abc import Sequence
from typing import NamedTuple

from oni_jax.viewing.screen import CYAN, DARK_GRAY, GRAY, GREEN, RED, WHITE, YELLOW, Screen, Text, joined, text_screen

COLUMNS = 36
GAP = 3  # columns between a screen and what is beside it


class EpisodeStatus(NamedTuple):
    """Where an episode is after some of its steps."""

    step: int
    num_steps: int
    turn: int | None  # of game time, where there is one
    action: str  # the last one; "" at the beginning
    reward: float  # the environment's, since what was shown before
    returned: float  # all of it
    end: str  # why it is over; "" while it is not


def heading(title: str, lines: Sequence[str]) -> list[Text]:
    return [Text(title, WHITE), *map(Text, lines), Text("")]


def status_lines(of: EpisodeStatus) -> list[Text]:
    return [
        *([Text(f"end       {of.end}", YELLOW)] if of.end else []),  # first: what is last may find no room
        Text(f"step      {of.step:,} of {of.num_steps:,}"),
        *([] if of.turn is None else [Text(f"turn      {of.turn:,}")]),
        Text(f"action    {of.action}", CYAN),
        Text(f"reward    {number(of.reward)}", sign_color(of.reward)),
        Text(f"return    {number(of.returned)}"),
    ]


def intrinsic_lines(reward: float, total: float) -> list[Text]:
    """Of the messages since what was shown before, and of all so far; counts discounted."""
    return [Text(f"intrinsic {number(reward)}", sign_color(reward)), Text(f"total     {number(total)}")]


def beside(screen: Screen, texts: Sequence[Text]) -> Screen:
    """The screen with the texts on its right."""
    rows = len(screen.chars)
    line = text_screen([Text(" |", DARK_GRAY)] * rows, rows, GAP)
    return joined([screen, line, text_screen(texts, rows, COLUMNS)])


def sign_color(value: float) -> int:
    return GREEN if value > 0 else RED if value < 0 else GRAY


def number(value: float) -> str:
    """Four digits or so: 0, 0.03704, -0.01, 50, 1,234."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
