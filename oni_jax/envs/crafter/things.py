"""Materials, creatures, items and achievements of Crafter: their numbers and names.

Numbers are those of Crafter's semantic view: materials from 1, then what stands on them. Source: Crafter 1.8.3.
"""

import numpy as np

MATERIALS = (
    "",  # outside the map
    "water",
    "grass",
    "stone",
    "path",
    "sand",
    "tree",
    "lava",
    "coal",
    "iron",
    "diamond",
    "table",
    "furnace",
)
CREATURES = ("player", "cow", "zombie", "skeleton", "arrow", "plant")
NAMES = MATERIALS + CREATURES
OUTSIDE, WATER, GRASS, STONE, PATH, SAND, TREE, LAVA, COAL, IRON, DIAMOND, TABLE, FURNACE = range(len(MATERIALS))
PLAYER, COW, ZOMBIE, SKELETON, ARROW, PLANT = range(len(MATERIALS), len(NAMES))

WALKABLE = (GRASS, PATH, SAND)
IS_WALKABLE = np.isin(np.arange(len(MATERIALS)), WALKABLE)
IS_OPEN_TO_PLAYER = IS_WALKABLE | (np.arange(len(MATERIALS)) == LAVA)
IS_OPEN_TO_ARROWS = np.isin(np.arange(len(MATERIALS)), (*WALKABLE, WATER, LAVA))

VITALS = ("health", "food", "drink", "energy")
ITEMS = (
    *VITALS,
    "sapling",
    "wood",
    "stone",
    "coal",
    "iron",
    "diamond",
    "wood_pickaxe",
    "stone_pickaxe",
    "iron_pickaxe",
    "wood_sword",
    "stone_sword",
    "iron_sword",
)
ITEM = {name: i for i, name in enumerate(ITEMS)}
HEALTH, FOOD, DRINK, ENERGY = range(len(VITALS))
MAX_AMOUNT = 9  # most of each item

ACHIEVEMENTS = (
    "collect_coal",
    "collect_diamond",
    "collect_drink",
    "collect_iron",
    "collect_sapling",
    "collect_stone",
    "collect_wood",
    "defeat_skeleton",
    "defeat_zombie",
    "eat_cow",
    "eat_plant",
    "make_iron_pickaxe",
    "make_iron_sword",
    "make_stone_pickaxe",
    "make_stone_sword",
    "make_wood_pickaxe",
    "make_wood_sword",
    "place_furnace",
    "place_plant",
    "place_stone",
    "place_table",
    "wake_up",
)
ACHIEVEMENT = {name: i for i, name in enumerate(ACHIEVEMENTS)}

DIRECTIONS = np.array(
    [(-1, 0), (1, 0), (0, -1), (0, 1)], np.int32
)  # left, right, up, down, as (x, y); y grows downwards
LEFT, RIGHT, UP, DOWN = range(len(DIRECTIONS))

SIZE = 64  # side of a map, cells
CHUNK = 12  # side of a chunk, whose creatures are counted together
VIEW = (9, 7)  # cells that the player sees, by x and y; the player is in the middle
SIGHT = 18  # nothing happens to what is as far from the player, by x and y together
