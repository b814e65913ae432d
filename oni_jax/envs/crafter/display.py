"""Crafter in a terminal, and its keys, for people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from oni_jax.envs.crafter.levels import TILES, find_variant, with_exact_maps
from oni_jax.envs.crafter.looks import CREATURE_LOOKS, MATERIAL_LOOKS, PLAYER_LOOKS, Look
from oni_jax.envs.crafter.rules import EVENTS, Action
from oni_jax.envs.crafter.things import ACHIEVEMENTS, ITEMS, PLAYER, VIEW, VITALS
from oni_jax.envs.display import COLUMNS, DARK_GRAY, INVERSE, WHITE, ActionKey, Canvas, Display, Terminal, WatchedEnv
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import Array, EnvSpec

if TYPE_CHECKING:
    from oni_jax.envs.crafter.env import Crafter

CELL_COLUMNS, CELL_ROWS = 4, 2
FIRST_ROW, WIDTH = 1, VIEW[0] * CELL_COLUMNS
TEXT_COLUMN = WIDTH + 2
KEYS = {
    "do nothing": ".",
    **dict(zip(("move left", "move right", "move up", "move down"), "hlkj")),
    "do": " ",
    "sleep": "z",
    "eat": "e",
    "drink": "d",
    "attack": "a",
    "collect": "c",
    **dict(zip(("place stone", "place crafting table", "place furnace", "place plant"), "stfp")),
    **dict(zip(("make wood pickaxe", "make stone pickaxe", "make iron pickaxe"), "123")),
    **dict(zip(("make wood sword", "make stone sword", "make iron sword"), "456")),
    **dict(zip(("attack zombie", "attack skeleton", "attack cow", "eat cow", "eat plant"), "ZSCEP")),
    **dict(zip(("chop tree", "mine stone", "mine coal", "mine iron", "mine diamond"), "TNOID")),
    **dict(zip(("drink water", "chop grass", "make crafting table"), "wgm")),
}
MOVES = "hjkl move (also arrows)"
_OTHER_KEYS = [ord(key) for key in map(chr, range(33, 127)) if key not in KEYS.values()]
_OTHER_KEYS += [key | 0x80 for key in range(33, 127)]  # keys with Meta


class Scene(NamedTuple):
    """The part of a state that is drawn."""

    tiles: Array  # [9, 7] uint8, see `view.tiles`
    direction: Array  # [] int32; that the player faces
    is_sleeping: Array  # [] bool
    inventory: Array  # [16] int32
    achievements: Array  # [22] int32
    event: Array  # [] uint8; index into EVENTS
    caption_key: Array


def draw(env: "Crafter", scene: Scene) -> Terminal:
    """Draws what the player sees and carries, and next to it the caption, the event and the achievements."""
    canvas, inventory = Canvas(), scene.inventory.tolist()
    for x, column in enumerate(scene.tiles.tolist()):
        for y, tile in enumerate(column):
            name = TILES[tile]
            look = _player(scene) if tile == PLAYER else (CREATURE_LOOKS.get(name) or MATERIAL_LOOKS[name])
            color = look.color + INVERSE * (tile >= PLAYER)
            for row in range(CELL_ROWS):
                canvas.write(FIRST_ROW + y * CELL_ROWS + row, x * CELL_COLUMNS, look.char * CELL_COLUMNS, color)
    row = FIRST_ROW + VIEW[1] * CELL_ROWS + 1
    owned = [f"{name.replace('_', ' ')} {amount}" for name, amount in zip(ITEMS, inventory) if amount]
    vitals = [f"{name} {amount}" for name, amount in zip(VITALS, inventory)]
    row = canvas.write_wrapped(row, 0, ", ".join(vitals), WIDTH + 1, WHITE)
    canvas.write_wrapped(row, 0, ", ".join(text for text in owned if text not in vitals), WIDTH + 1)
    width = COLUMNS - TEXT_COLUMN
    row = canvas.write_wrapped(FIRST_ROW, TEXT_COLUMN, env.caption(scene.caption_key).decode(), width)
    row = canvas.write_wrapped(row + 1, TEXT_COLUMN, f"Done: {EVENTS[int(scene.event)] or 'nothing'}", width, WHITE)
    unlocked = [name.replace("_", " ") for name, count in zip(ACHIEVEMENTS, scene.achievements) if count]
    heading = f"Unlocked {len(unlocked)} of {len(ACHIEVEMENTS)}: "
    canvas.write_wrapped(row + 1, TEXT_COLUMN, heading + ", ".join(unlocked), width, DARK_GRAY)
    return canvas.terminal()


def _player(scene: Scene) -> Look:
    return PLAYER_LOOKS[-1 if scene.is_sleeping else int(scene.direction)]


def _watch(config: EnvConfig, spec: EnvSpec, seed: int, index: int, number: int, ttyrec: str) -> WatchedEnv:
    # Imported here: JAX is needed where environments run, not where they are named
    from oni_jax.envs.crafter.env import make_env
    from oni_jax.envs.crafter.tasks import with_task
    from oni_jax.envs.device.watched import WatchedDeviceEnv

    del ttyrec  # there is no real terminal
    env = with_task(make_env(with_exact_maps(config)), config.crafter)
    return WatchedDeviceEnv(env, seed, index, config.max_episode_steps, spec, number)


def _keys(config: EnvConfig) -> Sequence[ActionKey]:
    return action_keys(find_variant(config).rules.actions)


def action_keys(actions: Sequence[Action]) -> list[ActionKey]:
    """Returns a key for each action: a letter that suits it where it does something, any other where it never does."""
    others = iter(_OTHER_KEYS)
    keys = [ord(KEYS[action.words]) if action.words in KEYS else next(others) for action in actions]
    return [
        ActionKey(key, action.words, action.words in KEYS and chr(key) not in "hjkl")
        for key, action in zip(keys, actions)
    ]


DISPLAY = Display(_watch, _keys, MOVES)
