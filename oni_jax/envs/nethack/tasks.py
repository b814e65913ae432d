"""The NetHack tasks: the agent's keys, and its reward.

A goal is tested on a group of N games at once; a task without one is the score task.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import nle.nethack
import numpy as np

nethack: Any = nle.nethack  # written in C and by star imports: type checkers can't see into it

Goal = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(blstats [N, 27], messages [N, 256], glyphs [N, 21, 79]) -> reached [N] bool."""

DESCENT_MESSAGE = b"You descend the stairs"
GOAL_REWARD = 50.0
HALLUCINATING = 512  # bit of the hero's conditions
ORACLE_GLYPH = next(
    glyph
    for glyph in range(nethack.GLYPH_MON_OFF, nethack.GLYPH_MON_OFF + nethack.NUMMONS)
    if nethack.permonst(nethack.glyph_to_mon(glyph)).mname == "Oracle"
)

BASE_KEYS = tuple(
    int(key)
    for key in (
        nethack.MiscAction.MORE,
        *nethack.CompassDirection,
        *nethack.CompassDirectionLonger,
        *nethack.MiscDirection,
        nethack.Command.KICK,
        nethack.Command.EAT,
        nethack.Command.SEARCH,
    )
)
EXTENDED_KEYS = BASE_KEYS + tuple(
    int(getattr(nethack.Command, name)) for name in ("CAST", "QUAFF", "PRAY", "PICKUP", "PAY")
)


class Task(NamedTuple):
    goal: Goal | None = None  # None: the reward is the gain in score
    keys: tuple[int, ...] = BASE_KEYS  # an action is an index into these
    extended: bool = False  # casting, quaffing and enhancing are partly automatic
    continual: bool = False  # reaching the goal is rewarded once an episode, and doesn't end it


@dataclasses.dataclass(frozen=True)
class DescentGoal:
    """The goal of taking stairs down to level number `level` of a dungeon."""

    level: int

    def __call__(self, blstats: np.ndarray, messages: np.ndarray, glyphs: np.ndarray) -> np.ndarray:
        result = blstats[:, nethack.NLE_BL_DLEVEL] == self.level
        for i in np.flatnonzero(result):
            result[i] = DESCENT_MESSAGE in messages[i].tobytes()
        return result


@dataclasses.dataclass(frozen=True)
class OracleGoal:
    """The goal of standing beside the Oracle, or beside something that looks like it.

    sober: not while hallucinating; see HALLUCINATING.
    """

    sober: bool = False

    def __call__(self, blstats: np.ndarray, messages: np.ndarray, glyphs: np.ndarray) -> np.ndarray:
        result = (glyphs == ORACLE_GLYPH).any(axis=(1, 2))
        for i in np.flatnonzero(result):
            x, y = blstats[i, :2].tolist()
            result[i] = (glyphs[i, max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2] == ORACLE_GLYPH).any()
        if self.sober:
            # ONI: `!= HALLUCINATING`, so that a hero who hallucinates and is stunned counts as sober.
            result &= blstats[:, nethack.NLE_BL_CONDITION] & HALLUCINATING == 0
        return result


def _task_table() -> dict[str, Task]:
    stairs = {f"Staircase{suffix}": Task(DescentGoal(level)) for suffix, level in (("", 2), ("Lvl3", 3), ("Lvl4", 4))}
    base = {"Score": Task(), **stairs, "Oracle": Task(OracleGoal()), "OracleSober": Task(OracleGoal(sober=True))}
    continual = {f"{name}Continual": task._replace(continual=True) for name, task in stairs.items()}
    extended = {
        f"{name}ExtendedActions": task._replace(keys=EXTENDED_KEYS, extended=True) for name, task in base.items()
    }
    return {f"NetHack{name}-v1": task for name, task in {**base, **continual, **extended}.items()}


TASKS: Mapping[str, Task] = _task_table()
