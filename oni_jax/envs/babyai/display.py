"""BabyAI-Text's rooms in a terminal, and its keys, for people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from oni_jax.envs.babyai.cells import BALL, BOX, COLOURS, EMPTY, KEY, TYPES, VACATED, colour_of, type_of
from oni_jax.envs.babyai.levels import ACTION_WORDS, Action
from oni_jax.envs.display import (
    COLUMNS,
    DARK_GRAY,
    GRAY,
    INVERSE,
    WHITE,
    ActionKey,
    Canvas,
    Display,
    Terminal,
    WatchedEnv,
)
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import Array, EnvSpec

if TYPE_CHECKING:
    from oni_jax.envs.babyai.env import BabyAI
    from oni_jax.envs.babyai.rules import State

FIRST_ROW, SIDE = 2, 21  # room's first row, and its cells in a row or column; of a larger room, those around the agent
CAPTION_COLUMN = 2 * SIDE + 2
COLOUR_NUMBERS = {"red": 9, "green": 10, "blue": 12, "purple": 13, "yellow": 11, "grey": GRAY}  # a terminal's numbers
GLYPHS = {TYPES.index("wall"): "#", KEY: "K", BALL: "o", BOX: "B"}
AGENTS = ">v<^"  # characters by direction
KEYS = {
    Action.LEFT: "h",
    Action.RIGHT: "l",
    Action.FORWARD: "k",
    Action.PICKUP: "p",
    Action.DROP: "d",
    Action.TOGGLE: "t",
    Action.DONE: ".",
}


class Scene(NamedTuple):
    """The part of a state that is drawn."""

    state: "State"
    seen: Array  # [V, V, 2] int32; positions of the view's cells
    caption_key: Array


def draw(env: "BabyAI", scene: Scene) -> Terminal:
    """Draws mission, room and caption, which says what the agent carries.

    A dot is an empty cell that the agent sees. Of two columns to a cell the second is empty.
    """
    canvas, size, state = Canvas(), env.level.size, scene.state
    canvas.write(0, 0, env.mission(state), WHITE)
    grid, (agent_x, agent_y) = state.grid.tolist(), state.position.tolist()
    first_x, first_y = (max(0, min(at - SIDE // 2, size - SIDE)) for at in (agent_x, agent_y))
    seen = {tuple(position) for position in scene.seen.reshape(-1, 2).tolist()}
    for x in range(first_x, min(size, first_x + SIDE)):
        for y in range(first_y, min(size, first_y + SIDE)):
            glyph, color = _cell(grid[x][y], (x, y) in seen)
            if (x, y) == (agent_x, agent_y):
                glyph, color = AGENTS[int(state.direction)], WHITE + INVERSE
            if glyph != " ":
                canvas.write(FIRST_ROW + y - first_y, 2 * (x - first_x), glyph, color)
    row = FIRST_ROW
    for sentence in env.caption(scene.caption_key).decode().split(". "):
        row = canvas.write_wrapped(row, CAPTION_COLUMN, sentence, COLUMNS - CAPTION_COLUMN)
    return canvas.terminal()


def _cell(cell: int, is_seen: bool) -> tuple[str, int]:
    """Returns a cell's glyph and colour."""
    if cell >= VACATED or type_of(cell) == EMPTY:
        return ("." if is_seen else " "), DARK_GRAY
    return GLYPHS.get(type_of(cell), "?"), COLOUR_NUMBERS[COLOURS[colour_of(cell)]]


def _watch(config: EnvConfig, spec: EnvSpec, seed: int, index: int, number: int, ttyrec: str) -> WatchedEnv:
    # Imported here: JAX is needed where environments run, not where they are named
    from oni_jax.envs.babyai.env import make_env
    from oni_jax.envs.device.watched import WatchedDeviceEnv

    del ttyrec  # there is no real terminal
    return WatchedDeviceEnv(make_env(config), seed, index, config.max_episode_steps, spec, number)


def _keys(config: EnvConfig) -> Sequence[ActionKey]:
    return [ActionKey(ord(KEYS[action]), ACTION_WORDS[action], KEYS[action] not in "hkl") for action in Action]


DISPLAY = Display(_watch, _keys, "h, l turn left, right, k goes forward (also arrows)")
