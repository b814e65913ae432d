"""Records the calls of NetHack's engine under a stepper, and replays them alone: the engine's part of the work."""

import contextlib
import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import nle._pynethack
import numpy as np

from oni_jax.envs.nethack.engine.identity import BuiltGame, InstalledGame
from oni_jax.envs.nethack.shared_code import SharedCode
from oni_jax.envs.nethack.tasks import nethack
from oni_jax.envs.nethack.vector_env import engine_array

_pynethack: Any = nle._pynethack  # written in C: type checkers can't see into it

RESET = -1


class Mark(NamedTuple):
    """A point of a recording."""

    num_calls: int  # before it
    turns: int  # of game time before it, over all games and episodes
    digest: str  # of all engines' buffers


class Recording:
    """Calls of many engines in order; plain values, sent to other processes."""

    def __init__(self) -> None:
        self.num_engines = 0
        self.buffer_names: tuple[str, ...] = ()
        self.engines = array("i")  # of each call
        self.keys = array("i")  # of each call: the key, or RESET
        self.seeds: list[tuple] = []  # of each reset
        self.marks: list[Mark] = []


class _RecordedEngine:
    """An engine that records its calls."""

    def __init__(self, recording: Recording, *args: Any):
        self._engine = _ENGINE(*args)
        self._recording = recording
        self._index = recording.num_engines
        self._seeds: tuple = ()
        self._turns_of_episodes = self._turns = 0
        self.buffers: Mapping[str, np.ndarray] = {}
        recording.num_engines += 1

    def set_buffers(self, **buffers: np.ndarray) -> None:
        self.buffers = buffers
        self._recording.buffer_names = tuple(buffers)
        self._engine.set_buffers(**buffers)

    def set_initial_seeds(self, *seeds: Any) -> None:
        self._seeds = seeds
        self._engine.set_initial_seeds(*seeds)

    def reset(self) -> None:
        self._log(RESET)
        self._recording.seeds.append(self._seeds)
        self._turns_of_episodes = self.turns()
        self._turns = 0
        self._engine.reset()

    def step(self, key: int) -> None:
        self._log(key)
        self._engine.step(key)
        self._turns = max(self._turns, int(self.buffers["blstats"][nethack.NLE_BL_TIME]))  # 0 once the game is over

    def turns(self) -> int:
        return self._turns_of_episodes + self._turns

    def _log(self, key: int) -> None:
        self._recording.engines.append(self._index)
        self._recording.keys.append(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


_ENGINE = _pynethack.Nethack


@contextlib.contextmanager
def recorded() -> Iterator[tuple[Recording, Callable[[], None]]]:
    """Records the engines made inside. Yields the recording, and a function that marks a point of it."""
    recording, engines = Recording(), []

    def make(*args: Any) -> _RecordedEngine:
        engines.append(_RecordedEngine(recording, *args))
        return engines[-1]

    def mark() -> None:
        turns = sum(engine.turns() for engine in engines)
        buffers = {name: np.stack([engine.buffers[name] for engine in engines]) for name in recording.buffer_names}
        recording.marks.append(Mark(len(recording.keys), turns, _digest(buffers)))

    _pynethack.Nethack = make
    try:
        yield recording, mark
    finally:
        _pynethack.Nethack = _ENGINE


def _digest(buffers: Mapping[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(buffers[name].tobytes() for name in sorted(buffers))).hexdigest()


class Replay:
    """Fresh engines that repeat a recording's calls, with the same buffers, and nothing else.

    Args:
      recording: the calls.
      share_code: whether copies of NLE's library share its code.
      library: that was built, in place of NLE's; "": NLE's.
    """

    def __init__(self, recording: Recording, share_code: bool, library: str = ""):
        count = recording.num_engines
        self._shared_code = SharedCode() if share_code and not library else None
        self._started: set[int] = set()
        self._buffers = {name: engine_array(name, count) for name in recording.buffer_names}
        self._games: list[InstalledGame | BuiltGame] = []
        for i in range(count):
            arrays = {name: buffer[i] for name, buffer in self._buffers.items()}
            self._games.append(BuiltGame(library, arrays) if library else InstalledGame(arrays))
        seeds = iter(recording.seeds)
        steps = [game.press for game in self._games]
        self._calls: list[tuple[Callable[[Any], None], Any]] = [
            (steps[i], key) if key != RESET else (self._reset, (i, next(seeds)))
            for i, key in zip(recording.engines, recording.keys, strict=True)
        ]

    def run(self, start: int, end: int) -> None:
        """Makes the calls of this range."""
        for call, argument in self._calls[start:end]:
            call(argument)

    def digest(self) -> str:
        """Returns the digest of the engines' buffers."""
        return _digest(self._buffers)

    def _reset(self, argument: tuple[int, tuple]) -> None:
        i, seeds = argument
        game = self._games[i]
        game.start(*seeds[:2])
        if self._shared_code and isinstance(game, InstalledGame):
            self._shared_code.share(game.path, compare=i not in self._started)
        self._started.add(i)

    def close(self) -> None:
        for game in self._games:
            game.close()
        if self._shared_code:
            self._shared_code.close()
