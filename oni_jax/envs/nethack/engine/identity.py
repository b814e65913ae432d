"""Comparison of a library with NLE's: every array that an engine writes, after every key of the same games."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from oni_jax.envs.nethack.birthday import birthday_of
from oni_jax.envs.nethack.folder import OPTIONS, make_folder
from oni_jax.envs.nethack.game import CHARACTER, ESCAPE, IN_LINE_INPUT, SPACE
from oni_jax.envs.nethack.native.image import load_image
from oni_jax.envs.nethack.native.stepper import EngineBuffers, GroupFields, load_stepper
from oni_jax.envs.nethack.tasks import nethack

ARRAYS = tuple(nethack.OBSERVATION_DESC)
IN_MOVE_LOOP = 3  # index in `program_state`
MOVES = [(int(key),) for key in nethack.CompassDirection]
COMMANDS = [(int(key),) for key in nethack.ACTIONS if key != nethack.Command.SAVE]  # NLE has no saved games
LETTERS = [(key,) for key in range(ord("a"), ord("z") + 1)]
ANSWERS = [(ESCAPE,), (ord("\r"),), (SPACE,), (ord("y"),)]  # answers without which games wait in prompts
TRAVELS = [tuple(map(ord, keys)) for keys in ("_>.", "_<.", "_>.>", "20s")]  # ways to stairs, and down; waiting
KINDS_OF_KEYS = ((0.45, MOVES), (0.25, COMMANDS), (0.1, LETTERS), (0.15, ANSWERS), (0.05, TRAVELS))  # probability, keys
LEVELS = [tuple(map(ord, f"\x16{level}\r")) for level in (*range(1, 51, 3), -5)]  # keys to a level
CREATIONS = [tuple(map(ord, f"\x07{name}\r")) for name in ("lich", "mimic", "cockatrice", "shopkeeper", "owlbear")]
WISHES = [tuple(map(ord, f"\x17{name}\r")) for name in ("blessed speed boots", "7 cursed scrolls of fire", "figurine")]
POWERS = [(ord("\x06"),), (ord("\x05"),), (ord("\x14"), SPACE), *CREATIONS, *WISHES]  # a map; a search; a jump
KINDS_FOR_WIZARDS = (*((0.8 * chance, kind) for chance, kind in KINDS_OF_KEYS), (0.1, LEVELS), (0.1, POWERS))
MAX_EPISODE_KEYS = 2000  # then a game is cut off, and the next begins


class Difference(Exception):
    """The engines differ; the text says where."""


class Observed(NamedTuple):
    """All arrays that an engine writes, one after the other in memory."""

    memory: np.ndarray  # uint8
    arrays: dict[str, np.ndarray]

    @classmethod
    def zeros(cls) -> "Observed":
        shapes = {
            name: (np.dtype(description["dtype"]), description["shape"])
            for name, description in nethack.OBSERVATION_DESC.items()
        }
        ends = np.cumsum([dtype.itemsize * int(np.prod(shape)) + 63 & ~63 for dtype, shape in shapes.values()])
        memory = np.zeros(ends[-1], np.uint8)
        arrays = {
            name: np.ndarray(shape, dtype, memory.data, start)
            for (name, (dtype, shape)), start in zip(shapes.items(), [0, *ends[:-1].tolist()], strict=True)
        }
        return cls(memory, arrays)


class InstalledGame:
    """A game of NLE's library, as NLE steps it, which writes these of ARRAYS."""

    def __init__(self, arrays: Mapping[str, np.ndarray], wizard: bool = False):
        self._nethack = nethack.Nethack(
            observation_keys=(), playername=CHARACTER, ttyrec=None, fix_moon_phase=True, wizard=wizard
        )
        self._engine = self._nethack._pynethack
        self._engine.set_buffers(**arrays)
        self.path = self._nethack.dlpath
        self.press: Callable[[int], None] = self._engine.step
        self.is_done: Callable[[], bool] = self._engine.done

    def start(self, core_seed: int, display_seed: int) -> None:
        self._engine.set_initial_seeds(core_seed, display_seed, False, None)
        self._engine.reset()
        birthday = birthday_of(self.path)
        assert birthday is not None
        birthday.value = core_seed % 2**31

    def close(self) -> None:
        self._nethack.close()


class BuiltGame:
    """A game of the library that was built, which writes these of ARRAYS."""

    def __init__(self, library: str, arrays: Mapping[str, np.ndarray], wizard: bool = False):
        self._c, self._group, self._folder = load_stepper().library, GroupFields(num_games=1), make_folder()
        self._games = np.zeros(1, np.uintp)
        self._group.games = self._games.ctypes.data
        folder, options = os.fsencode(self._folder.name), OPTIONS + ",playmode:debug" * wizard
        self._check(self._c.oni_load_built(self._group, 0, load_image(library), folder, options.encode()))
        self._buffers: EngineBuffers = self._c.oni_buffers(self._group, 0).contents
        for name in ARRAYS:
            setattr(self._buffers, name, arrays[name].ctypes.data if name in arrays else None)
        self._arrays = arrays  # arrays that live as long

    def start(self, core_seed: int, display_seed: int) -> None:
        self._check(self._c.oni_start_engine(self._group, 0, core_seed, display_seed))

    def press(self, key: int) -> None:
        self._check(self._c.oni_press(self._group, 0, key))

    def is_done(self) -> bool:
        return bool(self._buffers.done)

    def close(self) -> None:
        self._c.oni_unload(self._group, 0)
        self._folder.cleanup()

    def _check(self, failure: int) -> None:
        if failure:
            raise Difference(f"the built engine failed: {failure}")


class Pair:
    """The same game on both engines.

    Args:
      library: that was built.
      index: the game's index, for its seeds and keys.
      names: arrays to observe; those that are not bound are not written.
      wizard: whether the hero has powers, as to be on any level and to make any monster.
    """

    def __init__(self, library: str, index: int, names: Collection[str] = ARRAYS, wizard: bool = False):
        self._kinds = KINDS_FOR_WIZARDS if wizard else KINDS_OF_KEYS
        self._rng = np.random.default_rng([17, index])
        self._sides = Observed.zeros(), Observed.zeros()
        self._index, self._num_keys, self._num_all_keys = index, 0, 0
        one, other = ({name: side.arrays[name] for name in names} for side in self._sides)
        self._installed, self._built = InstalledGame(one, wizard), BuiltGame(library, other, wizard)
        self._state, self._waits = (self._sides[0].arrays[name] for name in ("program_state", "internal"))
        self.num_episodes = self.num_turns = self._turn = 0
        self._restart()

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """The arrays after the last key."""
        return self._sides[0].arrays

    def play(self, keys: Iterable[int]) -> None:
        """Presses keys in both. Raises Difference at the first."""
        for key in keys:
            if self._installed.is_done() or self._num_keys >= MAX_EPISODE_KEYS:
                self._restart()
            self._press(key)

    def close(self) -> None:
        self._installed.close()
        self._built.close()

    def _restart(self) -> None:
        core, display = self._rng.integers(2**63, size=2, dtype=np.uint64).tolist()
        self._installed.start(core, display)
        self._built.start(core, display)
        self._num_keys = self._turn = 0
        self.num_episodes += 1
        self._compare("its start")
        while not self._state[IN_MOVE_LOOP] and not self._installed.is_done():
            self._press(ESCAPE if self._waits[IN_LINE_INPUT] else SPACE)

    def _press(self, key: int) -> None:
        self._installed.press(key)
        self._built.press(key)
        self._num_keys += 1
        turn = int(self._sides[0].arrays["blstats"][nethack.NLE_BL_TIME])
        self.num_turns += max(0, turn - self._turn)
        self._turn = turn
        self._num_all_keys += 1
        self._compare(f"key {key}")

    def random_keys(self, num_keys: int) -> Iterator[int]:
        chances = [chance for chance, _ in self._kinds]
        pressed = 0
        while pressed < num_keys:
            _, kind = self._kinds[int(self._rng.choice(len(chances), p=chances))]
            for key in kind[int(self._rng.integers(len(kind)))][: num_keys - pressed]:
                yield key
                pressed += 1

    def _compare(self, what: str) -> None:
        one, other = self._sides
        if self._installed.is_done() == self._built.is_done() and np.array_equal(one.memory, other.memory):
            return
        names = [name for name in ARRAYS if not np.array_equal(one.arrays[name], other.arrays[name])]
        where = f"game {self._index}, key press {self._num_all_keys} ({what}), episode {self.num_episodes}"
        raise Difference(f"{where}: {', '.join(names) or 'the end'} differ")


def compare(library: str, num_games: int, num_keys: int, names: Collection[str] = ARRAYS, wizard: bool = False) -> int:
    """Plays random games on the library that was built and on NLE's; see `Pair`.

    Returns the turns of game time that passed.

    Raises:
      Difference: an array differs after some key.
    """
    turns = 0
    for index in range(num_games):
        pair = Pair(library, index, names, wizard)
        try:
            pair.play(pair.random_keys(num_keys))
            turns += pair.num_turns
        finally:
            pair.close()
    return turns
