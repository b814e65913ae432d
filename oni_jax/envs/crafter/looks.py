"""Characters and colours of Crafter's cells, for terminals and plain pictures."""

from typing import NamedTuple

from oni_jax.envs.crafter.levels import TILES
from oni_jax.envs.crafter.things import ITEMS, MATERIALS, PLAYER

_RED, _GREEN, _BROWN, _BLUE, _MAGENTA, _CYAN, _GRAY, _DARK_GRAY = range(1, 9)
_ORANGE, _LIME, _YELLOW, _LIGHT_BLUE, _PINK, _LIGHT_CYAN, _WHITE = range(9, 16)


class Look(NamedTuple):
    char: str
    color: int


MATERIAL_LOOKS = dict(
    zip(
        MATERIALS,
        (
            Look(" ", 0),  # outside the map
            Look("~", _LIGHT_BLUE),
            Look(".", _GREEN),
            Look("#", _GRAY),
            Look("_", _DARK_GRAY),
            Look(":", _YELLOW),
            Look("T", _LIME),
            Look("~", _ORANGE),
            Look("c", _DARK_GRAY),
            Look("i", _BROWN),
            Look("*", _LIGHT_CYAN),
            Look("=", _BROWN),
            Look("n", _RED),
        ),
        strict=True,
    )
)
# Looks on a cell: the player as it faces left, right, up, down and asleep, and tiles of creatures
PLAYER_LOOKS = (*(Look(char, _WHITE) for char in "<>^v"), Look("z", _CYAN))
CREATURE_LOOKS = {
    "cow": Look("C", _PINK),
    "zombie": Look("Z", _LIME),
    "skeleton": Look("S", _GRAY),
    "arrow": Look("(", _YELLOW),
    "plant": Look("p", _GREEN),
    "ripe plant": Look("P", _PINK),
    "arrow to the right": Look(")", _YELLOW),
    "arrow upwards": Look("'", _YELLOW),
    "arrow downwards": Look(",", _YELLOW),
}
_TOOL_COLORS = (_BROWN, _GRAY, _ORANGE)
ITEM_COLORS = (_RED, _BROWN, _LIGHT_BLUE, _YELLOW, _GREEN, _BROWN, _GRAY, _DARK_GRAY, _ORANGE, _LIGHT_CYAN)
ITEM_COLORS += 2 * _TOOL_COLORS
assert len(ITEM_COLORS) == len(ITEMS)
# Looks of what can stand on a cell: the tiles after MATERIALS, of which the first is the player, facing left; then its
# others
STANDING = (PLAYER_LOOKS[0], *(CREATURE_LOOKS[name] for name in TILES[PLAYER + 1 :]), *PLAYER_LOOKS[1:])
