"""Goals in Crafter, and when one can pursue them: the table of ELLM's oracle, arXiv 2302.06692."""

from typing import NamedTuple

from oni_jax.envs.crafter.rules import MADE, MAKE_TABLE, SLEEP
from oni_jax.envs.crafter.things import NAMES

SAME = (("eat cow", "attack cow"), ("place crafting table", MAKE_TABLE.words))


class Prerequisite(NamedTuple):
    """Conditions of a goal, as a player sees them."""

    uses: tuple[tuple[str, int], ...] = ()  # items that one has
    seen: tuple[str, ...] = ()  # things in view


PREREQUISITES = {
    **{words: Prerequisite(seen=(words.split()[1],)) for words in ("eat plant", "attack zombie", "attack skeleton")},
    **{words: Prerequisite(seen=(words.split()[1],)) for words in ("attack cow", "eat cow", "chop tree")},
    "mine stone": Prerequisite((("wood_pickaxe", 1),), ("stone",)),
    "mine coal": Prerequisite((("wood_pickaxe", 1),), ("coal",)),
    "mine iron": Prerequisite((("stone_pickaxe", 1),), ("iron",)),
    "mine diamond": Prerequisite((("iron_pickaxe", 1),), ("diamond",)),
    "drink water": Prerequisite(seen=("water",)),
    "chop grass": Prerequisite(seen=("grass",)),
    SLEEP.words: Prerequisite(),  # and one is tired
    "place stone": Prerequisite((("stone", 1),)),
    "place crafting table": Prerequisite((("wood", 1),)),  # and there is none in view
    MAKE_TABLE.words: Prerequisite((("wood", 1),)),
    "place furnace": Prerequisite((("stone", 4),)),
    "place plant": Prerequisite((("sapling", 1),)),
    **{
        f"make {made.item.replace('_', ' ')}": Prerequisite(made.uses, tuple(NAMES[i] for i in made.nearby))
        for made in MADE
    },
}
