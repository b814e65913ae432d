"""Downstream tasks in Crafter by name, as lists of goals: those of ELLM, arXiv 2302.06692."""

import dataclasses

from oni_jax.envs.crafter.rules import EVENTS
from oni_jax.envs.crafter.things import PLANT, TABLE
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import CrafterConfig

HIDDEN, SHOWN, PAID = "hidden", "shown", "paid"  # values of --crafter_subgoals


@dataclasses.dataclass(frozen=True)
class Task:
    """Goals that are to be reached in their order.

    Attributes:
      goals: in their order; the last one solves the task.
      beside: the last puts something down beside another of its kind: its number; 0: anywhere.
      owned: item that one has at the last; empty: any.
      each_step: what every step pays.
    """

    goals: tuple[str, ...]
    beside: int = 0
    owned: str = ""
    each_step: float = 0.0


_PICKAXE = ("chop tree", "chop tree", "place crafting table", "make wood pickaxe")
_STONE = (*_PICKAXE, "mine stone")
_FURNACE = (*_STONE, "make stone pickaxe", "mine stone", "place furnace", "mine coal", "mine iron")
_PLANT = ("chop grass", "place plant")
_WORKSHOP = ("chop tree", "place crafting table")

# The task's last goal names it -> the goals before it; other goals have none
COMPOSED = {
    "eat plant": (*_PLANT, "eat plant"),
    "place plant": _PLANT,
    "place crafting table": _WORKSHOP,
    "make wood pickaxe": _PICKAXE,
    "make wood sword": (*_PICKAXE[:3], "make wood sword"),
    **{name: (*_PICKAXE, name) for name in ("mine stone", "mine coal")},
    **{name: (*_STONE, name) for name in ("place stone", "make stone pickaxe", "make stone sword")},
    "mine iron": (*_STONE, "make stone pickaxe", "mine iron"),
    "place furnace": (*_PICKAXE, *["mine stone"] * 4, "place furnace"),
    **{name: (*_FURNACE, name) for name in ("make iron pickaxe", "make iron sword")},
    "mine diamond": (*_FURNACE, "make iron pickaxe", "mine diamond"),
}

# Tasks that no single action's words name
NAMED = {
    "plant row": Task((*_PLANT, *_PLANT), beside=PLANT),
    "make workshop": Task((*_WORKSHOP, *_WORKSHOP), beside=TABLE),
    "chop grass with wood pickaxe": Task((*_PICKAXE, "chop grass"), owned="wood_pickaxe"),
    "vegetarianism": Task(("drink water", "chop grass")),
    "deforestation": Task(("chop tree",) * 5),
    "work and sleep": Task(("chop tree", "sleep", "place crafting table")),
    "gardening": Task(("chop grass", "chop tree", "place plant")),
    "wilderness survival": Task(("sleep", "chop grass", "attack zombie")),
    "survival": Task((), each_step=0.05),
}


def find_task(settings: CrafterConfig, goals: tuple[str, ...]) -> Task:
    """Returns the task of --crafter_task, in a world with these goals.

    With hidden subgoals a task whose last goal says all of it is that goal alone, however one comes to it.

    Raises:
        UserError: there is no such task, or the world lacks one of its goals.
    """
    name, hidden = settings.task, settings.subgoals == HIDDEN
    if name not in NAMED and name not in goals:
        tasks = ", ".join(sorted({*COMPOSED, *NAMED, *(set(goals) & set(EVENTS))}))
        raise UserError(f"--crafter_task {name}: is no goal of this world; use one of {tasks}")
    task = NAMED.get(name) or Task(COMPOSED.get(name, (name,)))
    if hidden and (name in goals or task.beside or task.owned):
        task = dataclasses.replace(task, goals=task.goals[-1:])
    for goal in task.goals:
        if goal not in goals:
            raise UserError(f"--crafter_task {name}: this world has no goal {goal!r}; use another --crafter_actions")
    return task
