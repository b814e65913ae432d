"""Text beside a game's screen."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.screen import CYAN, DARK_GRAY, GRAY, GREEN, RED, WHITE, YELLOW, Screen, Text, joined, text_screen
from oni_jax.evaluation.intrinsic import Scorer

COLUMNS = 36
GAP = 3  # columns between a screen and what is beside it


class EpisodeStatus(NamedTuple):
    """Status of an episode after some of its steps."""

    step: int
    num_steps: int
    turn: int | None  # game time, where there is one
    action: str  # the last one; "" at the beginning
    reward: float  # the environment's, since the previous screen
    returned: float  # the return so far
    end: str  # reason; "" while the episode runs


def heading(title: str, lines: Sequence[str]) -> list[Text]:
    return [Text(title, WHITE), *map(Text, lines), Text("")]


def goal_lines(goal: str, chosen: str = "") -> list[Text]:
    """Returns a line with the episode's goal, and the one chosen for the next step; none for an agent of one goal."""
    text = f"{goal}, then {chosen}" if chosen else goal
    return [Text(f"goal      {text}"[:COLUMNS], YELLOW)] if goal else []


def status_lines(of: EpisodeStatus) -> list[Text]:
    return [
        *([Text(f"end       {of.end}", YELLOW)] if of.end else []),  # first: the last lines may be cut off
        Text(f"step      {of.step:,} of {of.num_steps:,}"),
        *([] if of.turn is None else [Text(f"turn      {of.turn:,}")]),
        Text(f"action    {of.action}", CYAN),
        Text(f"reward    {number(of.reward)}", sign_color(of.reward)),
        Text(f"return    {number(of.returned)}"),
    ]


def intrinsic_lines(scorer: Scorer, rewards: np.ndarray, totals: np.ndarray, goal: str = "") -> list[Text]:
    """Returns the intrinsic reward since the previous screen, and in total, as training adds it up, then each reward.

    Args:
        scorer: scorer of K rewards.
        rewards: [K], since the previous screen, before the coefficients.
        totals: [K], over the episode.
        goal: goal of the episode, for an agent of several: rewards for other goals are left out.
    """
    reward, total = float(scorer.coeffs @ rewards), float(scorer.coeffs @ totals)
    lines = [Text(f"intrinsic {number(reward)}", sign_color(reward)), Text(f"total     {number(total)}")]
    for label, coeff, value, total in zip(scorer.labels, scorer.coeffs.tolist(), rewards.tolist(), totals.tolist()):
        if not is_of_goal(label, goal):
            continue
        values = f"{number(value)}, total {number(total)}"
        if len(label) + len(values) < COLUMNS - 8:
            lines.append(Text(f"  {label} {values} x {number(coeff)}", sign_color(value)))
        else:
            lines += [Text(f"  {label}", sign_color(value)), Text(f"    {values} x {number(coeff)}", sign_color(value))]
    return lines


def is_of_goal(label: str, goal: str) -> bool:
    """Returns whether a reward with this label pays under a goal, see `registry.term_labels`; goal "": there is one."""
    return not goal or label.endswith(f"_{goal}")


def beside(screen: Screen, texts: Sequence[Text], rows: int = 0) -> Screen:
    """Returns the screen with the texts on its right, which have so many rows at least."""
    rows = max(rows, len(screen.chars))
    line = text_screen([Text(" |", DARK_GRAY)] * rows, rows, GAP)
    return joined([screen, line, text_screen(texts, rows, COLUMNS)])


def sign_color(value: float) -> int:
    return GREEN if value > 0 else RED if value < 0 else GRAY


def number(value: float) -> str:
    """Formats with about four digits: 0, 0.03704, -0.01, 50, 1,234."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
