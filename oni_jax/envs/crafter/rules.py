"""Crafter's rules as tables, and the published variants of them: what differs is a field, and each variant a row.

Sources: Crafter 1.8.3; the forks of it in "ELLM", arXiv 2302.06692, and "BK", arXiv 2407.03964.
"""

import enum
from typing import NamedTuple

import numpy as np

from oni_jax.envs.crafter.things import (
    ACHIEVEMENTS,
    COW,
    FURNACE,
    GRASS,
    IS_WALKABLE,
    ITEM,
    ITEMS,
    LAVA,
    MATERIALS,
    NAMES,
    PATH,
    PLANT,
    SKELETON,
    STONE,
    TABLE,
    WATER,
    ZOMBIE,
)

NO_LIMIT = 255


class Operation(enum.IntEnum):
    """Effects of actions; the argument of each follows."""

    NOTHING = 0
    MOVE = 1  # direction
    DO = 2  # whatever fits what is faced
    SLEEP = 3
    PLACE = 4  # index into `placements`
    MAKE = 5  # index into MADE
    COLLECT = 6  # material, which has to be faced
    STRIKE = 7  # creature, which has to be faced


class Action(NamedTuple):
    """An action as people say it, and what it does."""

    words: str
    operation: Operation = Operation.NOTHING
    argument: int = 0
    noun: str = ""  # noun in the words


class Collected(NamedTuple):
    """A material that can be collected: what it takes and gives."""

    item: str
    leaves: int  # the material that stays
    needs: str = ""  # an item that one has to have
    probability: float = 1.0


class Placement(NamedTuple):
    """A thing that can be put on the cell that is faced."""

    name: str
    becomes: int  # a material, or the plant
    uses: tuple[tuple[str, int], ...]
    where: tuple[int, ...]  # materials


class Made(NamedTuple):
    """A tool that is made beside a table, or a table and a furnace."""

    item: str
    uses: tuple[tuple[str, int], ...]
    nearby: tuple[int, ...] = (TABLE,)


_LAND = tuple(np.flatnonzero(IS_WALKABLE).tolist())

COLLECTED = {
    MATERIALS.index("tree"): Collected("wood", GRASS),
    STONE: Collected("stone", PATH, needs="wood_pickaxe"),
    MATERIALS.index("coal"): Collected("coal", PATH, needs="wood_pickaxe"),
    MATERIALS.index("iron"): Collected("iron", PATH, needs="stone_pickaxe"),
    MATERIALS.index("diamond"): Collected("diamond", PATH, needs="iron_pickaxe"),
    WATER: Collected("drink", WATER),
    GRASS: Collected("sapling", GRASS, probability=0.1),
}
MADE = (
    Made("wood_pickaxe", (("wood", 1),)),
    Made("stone_pickaxe", (("wood", 1), ("stone", 1))),
    Made("iron_pickaxe", (("wood", 1), ("coal", 1), ("iron", 1)), (TABLE, FURNACE)),
    Made("wood_sword", (("wood", 1),)),
    Made("stone_sword", (("wood", 1), ("stone", 1))),
    Made("iron_sword", (("wood", 1), ("coal", 1), ("iron", 1)), (TABLE, FURNACE)),
)
STRUCK = {  # creature: (achievement, food that it gives)
    COW: ("eat_cow", 6),
    ZOMBIE: ("defeat_zombie", 0),
    SKELETON: ("defeat_skeleton", 0),
    PLANT: ("eat_plant", 4),
}
RIPE = 300  # steps beside the player after which a plant can be eaten
SWORDS = ("wood_sword", "stone_sword", "iron_sword")


def placements(wood_for_table: int) -> tuple[Placement, ...]:
    """Returns what can be put somewhere, in the order of the actions."""
    return (
        Placement("stone", STONE, (("stone", 1),), (*_LAND, WATER, LAVA)),
        Placement("table", TABLE, (("wood", wood_for_table),), _LAND),
        Placement("furnace", FURNACE, (("stone", 4),), _LAND),
        Placement("plant", PLANT, (("sapling", 1),), (GRASS,)),
    )


def amounts(uses: tuple[tuple[str, int], ...]) -> np.ndarray:
    """Returns the amounts of all items [16] int32."""
    needed = np.zeros(len(ITEMS), np.int32)
    for name, amount in uses:
        needed[ITEM[name]] = amount
    return needed


# Words of what succeeds, by the face of it: what `DO` did to what was faced
_STRIKES = {COW: "eat cow", ZOMBIE: "attack zombie", SKELETON: "attack skeleton", PLANT: "eat plant"}
_COLLECTS = {
    MATERIALS.index("tree"): "chop tree",
    STONE: "mine stone",
    MATERIALS.index("coal"): "mine coal",
    MATERIALS.index("iron"): "mine iron",
    MATERIALS.index("diamond"): "mine diamond",
    WATER: "drink water",
    GRASS: "chop grass",
}
_MOVES = ("left", "right", "up", "down")
_PLACES = ("stone", "crafting table", "furnace", "plant")

NOOP = Action("do nothing")
SLEEP = Action("sleep", Operation.SLEEP)
DO = Action("do", Operation.DO)
MOVES = tuple(Action(f"move {word}", Operation.MOVE, i) for i, word in enumerate(_MOVES))
PLACE = tuple(Action(f"place {noun}", Operation.PLACE, i, noun) for i, noun in enumerate(_PLACES))
MAKE = tuple(
    Action(f"make {(noun := made.item.replace('_', ' '))}", Operation.MAKE, i, noun) for i, made in enumerate(MADE)
)
COLLECT = tuple(Action(words, Operation.COLLECT, material, words.split()[1]) for material, words in _COLLECTS.items())
STRIKE = tuple(
    Action(words, Operation.STRIKE, NAMES.index(words.split()[1]), words.split()[1])
    for words in ("attack zombie", "attack skeleton", "attack cow", "eat cow", "eat plant")
)
MAKE_TABLE = Action("make crafting table", Operation.PLACE, 1, "crafting table")

# All words that an event can have; DO has those of what it did
EVENTS = ("", *(a.words for a in (NOOP, *MOVES, SLEEP, *COLLECT, *STRIKE, *PLACE, *MAKE, MAKE_TABLE)))
EVENT_OF_FACED = np.zeros(len(NAMES), np.uint8)  # event of DO
for _thing, _words in {**_STRIKES, **_COLLECTS}.items():
    EVENT_OF_FACED[_thing] = EVENTS.index(_words)

PUBLISHED_ACTIONS = (NOOP, *MOVES, DO, SLEEP, *PLACE, *MAKE)


def _ellm_harder() -> tuple[Action, ...]:
    """Returns ELLM's 139 actions: 6 without a noun, then 7 verbs with each of 19 nouns."""
    nouns = ("zombie", "skeleton", "cow", "tree", "stone", "coal", "iron", "diamond", "water", "grass")
    nouns += ("crafting table", "furnace", "plant", *(made.item.replace("_", " ") for made in MADE))
    useful = {action.words: action for action in (*COLLECT, *STRIKE, *PLACE, *MAKE, MAKE_TABLE)}
    verbs = ("mine", "eat", "attack", "chop", "drink", "place", "make")
    phrases = [(f"{verb} {noun}", noun) for verb in verbs for noun in nouns]
    typed = (useful.get(words, Action(words, noun=noun)) for words, noun in phrases)
    return (NOOP, *MOVES, SLEEP, *typed)


def _ellm_easier() -> tuple[Action, ...]:
    """Returns the 27 actions of ELLM that do something, without synonyms."""
    by_words = {action.words: action for action in (*COLLECT, *STRIKE)}
    first = ("eat plant", "attack zombie", "attack skeleton", "attack cow", "chop tree", "mine stone", "mine coal")
    rest = ("mine iron", "mine diamond", "drink water", "chop grass")
    return (NOOP, *MOVES, *(by_words[words] for words in (*first, *rest)), SLEEP, *PLACE, *MAKE)


ELLM_ACTIONS = {"harder": _ellm_harder(), "easier": _ellm_easier()}
BK_ACTIONS = (
    NOOP,
    *MOVES,
    *(DO._replace(words=words) for words in ("eat", "drink", "attack", "collect")),
    SLEEP,
    *PLACE,
    *MAKE,
)


class Rules(NamedTuple):
    """A variant of Crafter, in all that variants differ in; by default Crafter 1.8.3.

    Attributes:
      actions: in their order.
      damages: of a bare hand and each sword.
      wood_for_table: wood that a table takes.
      most_collected: amount of an item at which collecting it fails, though what is collected is gone.
      length: steps of an episode.
      spent_steps: steps of doing nothing that a reset takes, of `length`.
      can_die: an episode ends without health; else it goes on.
      health_reward: paid for each point of health gained, and taken for each lost.
      rewarded: indices of the achievements that pay 1 together at the step that brings new ones of them.
      ends_when_done: an episode is truncated when it has all rewarded achievements.
    """

    actions: tuple[Action, ...] = PUBLISHED_ACTIONS
    damages: tuple[int, int, int, int] = (1, 2, 3, 5)
    wood_for_table: int = 2
    most_collected: int = NO_LIMIT
    length: int = 10_000
    spent_steps: int = 0
    can_die: bool = True
    health_reward: float = 0.1
    rewarded: tuple[int, ...] = tuple(range(len(ACHIEVEMENTS)))
    ends_when_done: bool = False

    @property
    def has_goal(self) -> bool:
        """An episode has one achievement for its goal, and ends with it."""
        return self.ends_when_done and len(self.rewarded) == 1

    @property
    def goals(self) -> tuple[str, ...]:
        """The actions in words; where one action does several things, what these are."""
        is_typed = all(action.words in EVENTS or action.noun for action in self.actions)
        return tuple(action.words for action in self.actions) if is_typed else EVENTS[1:]


ELLM_RULES = Rules(ELLM_ACTIONS["harder"], (5, 5, 5, 5), 1, 9, 400, health_reward=0.0)
BK_RULES = Rules(BK_ACTIONS, (5, 5, 5, 5), most_collected=9, spent_steps=1, ends_when_done=True)
