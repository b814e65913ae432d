"""A player of NetHack that follows simple rules."""

import numpy as np

from oni_jax.envs.nethack.game import IN_QUESTION
from oni_jax.envs.nethack.tasks import BASE_KEYS, nethack
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv

DIRECTIONS = ((0, -1), (1, 0), (0, 1), (-1, 0), (1, -1), (1, 1), (-1, 1), (-1, -1))  # (dx, dy)
STEPS = dict(zip(DIRECTIONS, map(int, nethack.CompassDirection)))
RUNS = dict(zip(DIRECTIONS, map(int, nethack.CompassDirectionLonger)))
DOWN, SEARCH = int(nethack.MiscDirection.DOWN), int(nethack.Command.SEARCH)
NO = ord("n")  # also a direction's key
CMAP = nethack.GLYPH_CMAP_OFF
WALLS = frozenset([*range(CMAP, CMAP + 12), CMAP + 17, CMAP + 18])  # rock, walls, bars, trees
CLOSED_DOORS = frozenset((CMAP + 15, CMAP + 16))
WAYS_DOWN = (CMAP + 24, CMAP + 26)  # staircase, ladder
GOLD_GLYPH = nethack.GLYPH_OBJ_OFF + next(
    i for i in range(nethack.NUM_OBJECTS) if nethack.OBJ_NAME(nethack.objclass(i)) == "gold piece"
)
BLOCKED = (b"You can't move", b"This door", b"You try to move", b"It's")
TURN_FRACTION, SEARCH_FRACTION = 0.1, 0.05  # fractions of the scripted steps without an aim
WANDER_FRACTION = 0.3  # fraction of the scripted steps with an aim: an obstacle may block the way
PEACEFUL_STEPS = 10  # steps without attacks, after the game asked to confirm one


class ScriptedPlayer:
    """Attacks adjacent monsters, walks to gold and stairs in sight, descends, and otherwise wanders."""

    def __init__(self, env: NetHackVectorEnv, rng: np.random.Generator):
        self._arrays, self._rng = env.arrays, rng
        self._stairs: list[tuple[int, ...]] = [()] * env.num_envs  # depth, x, y where last seen
        self._heading = [DIRECTIONS[0]] * env.num_envs
        self._peaceful = [0] * env.num_envs  # steps left

    def act(self, group: int, records: np.ndarray, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Returns the next actions [N] int32, from the newest observations; see `evaluation.playing.Agent`."""
        return np.array([BASE_KEYS.index(self._key(i)) for i in range(len(self._stairs))], np.int32)

    def _key(self, i: int) -> int:
        blstats, glyphs = self._arrays.blstats[i], self._arrays.glyphs[i]
        x, y, depth = (int(blstats[k]) for k in (nethack.NLE_BL_X, nethack.NLE_BL_Y, nethack.NLE_BL_DEPTH))
        message = self._arrays.message[i].tobytes()
        if self._arrays.internal[i, IN_QUESTION]:  # such as "Really attack?"
            self._peaceful[i] = PEACEFUL_STEPS
            return NO
        self._peaceful[i] = max(0, self._peaceful[i] - 1)
        if message.startswith(b"You can't go down"):
            self._stairs[i] = ()  # another episode's, or a mimic
        beside = {
            (dx, dy): int(glyphs[y + dy, x + dx])
            for dx, dy in DIRECTIONS
            if 0 <= y + dy < glyphs.shape[0] and 0 <= x + dx < glyphs.shape[1]
        }
        enemies = [way for way, g in beside.items() if nethack.glyph_is_monster(g) and not nethack.glyph_is_pet(g)]
        if enemies and not self._peaceful[i]:
            return STEPS[enemies[0]]
        self._look_for_stairs(i, glyphs, depth)
        if self._stairs[i] == (depth, x, y):
            return DOWN
        ways = [way for way, glyph in beside.items() if glyph not in WALLS and way not in enemies]
        aim = self._aim(i, glyphs, depth, x, y)
        if aim in ways and self._rng.random() >= WANDER_FRACTION:
            return STEPS[aim]
        return self._wander(i, beside, ways, turn=message.startswith(BLOCKED) or self._rng.random() < TURN_FRACTION)

    def _look_for_stairs(self, i: int, glyphs: np.ndarray, depth: int) -> None:
        stairs = np.argwhere(np.isin(glyphs, WAYS_DOWN))
        if len(stairs):
            self._stairs[i] = (depth, int(stairs[0, 1]), int(stairs[0, 0]))

    def _aim(self, i: int, glyphs: np.ndarray, depth: int, x: int, y: int) -> tuple[int, int] | None:
        """The direction of gold, else of stairs."""
        gold = np.argwhere(glyphs == GOLD_GLYPH)
        if len(gold):
            row, column = gold[np.abs(gold - (y, x)).max(1).argmin()].tolist()
        elif self._stairs[i][:1] == (depth,):
            _, column, row = self._stairs[i]
        else:
            return None
        return int(np.sign(column - x)), int(np.sign(row - y))

    def _wander(self, i: int, beside: dict[tuple[int, int], int], ways: list[tuple[int, int]], turn: bool) -> int:
        """Keeps the direction until blocked or `turn`; sometimes searches."""
        if not ways or self._rng.random() < SEARCH_FRACTION:
            return SEARCH
        if turn or self._heading[i] not in ways:
            self._heading[i] = ways[self._rng.integers(len(ways))]
        way = self._heading[i]
        return STEPS[way] if beside[way] in CLOSED_DOORS else RUNS[way]
