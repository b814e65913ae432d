"""N games of NetHack, stepped by one call in C. The games, and all that is written, are NetHackVectorEnv's."""

import ctypes
import dataclasses
import functools
import os
import tempfile
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from oni_jax.envs.base import StepOutput
from oni_jax.envs.nethack import game as python_game
from oni_jax.envs.nethack.engine.built import find_engine
from oni_jax.envs.nethack.folder import OPTIONS, make_folder
from oni_jax.envs.nethack.game import CHARACTER
from oni_jax.envs.nethack.native.image import EngineImage, load_image
from oni_jax.envs.nethack.native.layout import CannotStepError
from oni_jax.envs.nethack.native.stepper import FAILURES, GROUP_FIELDS, GroupFields, Stepper, load_stepper
from oni_jax.envs.nethack.screens import VIEWS
from oni_jax.envs.nethack.shared_code import LIBC, CannotShareError, SharedCode, loaded_at
from oni_jax.envs.nethack.tasks import GOAL_REWARD, HALLUCINATING, ORACLE_GLYPH, DescentGoal, OracleGoal, Task, nethack
from oni_jax.envs.nethack.vector_env import (
    BLSTATS_SCALE,
    DEFAULT_OBSERVATIONS,
    DEFAULT_SETTINGS,
    TIME_PENALTY,
    VECTOR_OBS_BOUND,
    NetHackVectorEnv,
    Seeds,
)
from oni_jax.settings.worlds import NetHackConfig

SCORE_GOAL, DESCENT_GOAL, ORACLE_GOAL, SOBER_ORACLE_GOAL = range(4)  # numbers in group.c
NUM_DUNGEONS, NUM_LEVELS = 16, 64  # sizes of `levels_left` in group.c; NetHack has 16 and 32
NUM_STATS = 9  # number that group.c writes
OPTIONAL_FIELDS = ("chars", "colors", "vector_obs", "message", "glyphs", "hero_xy")  # optional fields of a record
FIELDS = (*OPTIONAL_FIELDS, "is_first", "reward", "terminated", "truncated")


WHEEL, BUILT = "wheel", "built"  # `--engine`


def check_native(task: Task) -> None:
    """Raises CannotStepError: this task can't be stepped in C here; see `load_stepper`."""
    load_stepper()
    if not (task.goal is None or isinstance(task.goal, DescentGoal | OracleGoal)):
        raise CannotStepError("the task's goal is tested in Python")


class NativeGame:
    """An engine that C steps; see `NetHackGame`. Row i of the group. Subclasses load it."""

    kill_count = 0  # the group has it
    follows_clock = False  # C sets the time of birth
    close: Callable[[], object]

    def __init__(self, stepper: Stepper, group: GroupFields, i: int):
        self._library, self._group, self._i = stepper.library, group, i

    def start(self, core_seed: int, display_seed: int) -> None:
        """Starts the episode of these seeds, and plays up to its first turn."""
        self._check(self._library.oni_start(self._group, self._i, core_seed, display_seed))

    def quit(self) -> None:
        self._check(self._library.oni_quit(self._group, self._i))

    def _check(self, failure: int) -> None:
        if failure:
            raise failure_error(failure, self._group)


class CopiedGame(NativeGame):
    """A game with a copy of NLE's library.

    Raises:
      CannotStepError: the engine can't be loaded.
    """

    def __init__(self, stepper: Stepper, group: GroupFields, i: int, shared_code: SharedCode | None):
        super().__init__(stepper, group, i)
        # Made for its folder and its copy of the library alone: it is never started.
        self._nethack = engine = nethack.Nethack(
            observation_keys=(), playername=CHARACTER, ttyrec=None, fix_moon_phase=True
        )
        path, options = engine.dlpath, engine._nethackoptions.encode()
        self.folder = engine._vardir
        # All symbols are resolved at once: they would have to be again after each restart.
        handle = LIBC.dlopen(path.encode(), os.RTLD_NOW)
        # Also without `close`: the path is used again, and the loader would return this game's library for the next.
        self.close = weakref.finalize(self, _unload_copy, stepper.library, group, i, handle, engine)
        try:
            if not handle:
                raise CannotStepError("the engine's symbols can't be resolved")
            folder = os.fsencode(self.folder)
            self._check(self._library.oni_load(group, i, stepper.layout, loaded_at(path), folder, options))
        except (CannotShareError, RuntimeError) as error:
            self.close()
            raise CannotStepError(str(error)) from None
        if shared_code:
            shared_code.share(path, compare=True)


def _unload_copy(library: ctypes.CDLL, group: GroupFields, i: int, handle: int | None, engine: Any) -> None:
    library.oni_unload(group, i)
    if handle:
        LIBC.dlclose(handle)
    engine.close()


class BuiltGame(NativeGame):
    """A game of the built engine.

    Raises:
      CannotStepError: there is no memory for it, or this system doesn't let a process choose a game.
    """

    def __init__(self, stepper: Stepper, group: GroupFields, i: int, image: EngineImage):
        super().__init__(stepper, group, i)
        folder = make_folder()
        self.folder = folder.name
        self.close = weakref.finalize(self, _unload_built, stepper.library, group, i, folder)
        try:
            self._check(self._library.oni_load_built(group, i, image, os.fsencode(self.folder), OPTIONS.encode()))
        except RuntimeError as error:
            self.close()
            raise CannotStepError(str(error)) from None


def _unload_built(library: ctypes.CDLL, group: GroupFields, i: int, folder: tempfile.TemporaryDirectory) -> None:
    library.oni_unload(group, i)
    folder.cleanup()


def failure_error(failure: int, group: GroupFields) -> RuntimeError:
    """Returns the error of a failure that C has returned."""
    limits = {name: getattr(group, name) for name in ("max_opening_presses", "max_automatic_presses")}
    return RuntimeError(FAILURES[failure].format(**limits))


def _chosen_engine(engine: str) -> tuple[EngineImage | None, str]:
    """Returns the built engine and "", or None and the reason why it doesn't play."""
    if engine == WHEEL:
        return None, ""
    try:
        if not load_stepper().library.oni_has_segment():
            raise CannotStepError("a faster engine can't play: this system doesn't let a process set its GS register")
        return load_image(find_engine()), ""
    except CannotStepError as reason:
        if engine == BUILT:
            raise
        return None, str(reason)


def why_not_built() -> str:
    """Returns the reason why the built engine can't play; "" where it can."""
    try:
        return _chosen_engine("auto")[1]
    except CannotStepError as reason:  # there is no stepper
        return str(reason)


class NativeVectorEnv(NetHackVectorEnv):
    """As NetHackVectorEnv, stepped in C. `settings.engine` chooses the engine.

    Raises:
      CannotStepError: see `check_native`; or the built engine is asked for, and can't be used.
    """

    _games: list[Any]

    def __init__(
        self,
        task: Task,
        num_envs: int,
        seeds: Seeds,
        first_index: int = 0,
        max_episode_steps: int = 5000,
        observations: Collection[str] = DEFAULT_OBSERVATIONS,
        settings: NetHackConfig = DEFAULT_SETTINGS,
    ):
        check_native(task)
        self._stepper = load_stepper()
        self._image, self._why_wheel = _chosen_engine(settings.engine)
        if self._image:
            settings = dataclasses.replace(settings, share_code=False)  # there is one copy of it
        self._kills, self._failures = np.zeros((2, num_envs), np.int64)
        self._keys = np.array(task.keys, np.int64)
        self._records_dtype: np.dtype | None = None  # type of the records that C is set to write
        self._buffer_sizes: list[int] = []  # bytes; see `step`
        try:
            super().__init__(task, num_envs, seeds, first_index, max_episode_steps, observations, settings)
        except CannotStepError:
            self.close()
            raise

    @functools.cached_property
    def _group(self) -> GroupFields:
        """The group as C sees it."""
        task, goal, arrays = self._task, self._task.goal, self.arrays
        kind = SCORE_GOAL
        if isinstance(goal, DescentGoal):
            kind = DESCENT_GOAL
        elif isinstance(goal, OracleGoal):
            kind = SOBER_ORACLE_GOAL if goal.sober else ORACLE_GOAL
        chars, colors = arrays.screen.values()
        addresses = {
            **{name: getattr(arrays, name) for name in ("blstats", "message", "glyphs", "internal", "program_state")},
            **dict(chars=chars, colors=colors, keys=self._keys, games=np.zeros(self.num_envs, np.uintp)),
            "blstats_scale": np.ascontiguousarray(BLSTATS_SCALE, np.float64),
            **dict(previous_blstats=self.previous_blstats, end_status=self.end_status, lengths=self._lengths),
            **dict(kills=self._kills, failures=self._failures, returns=self._returns, paid=self._paid),
            "levels_left": np.zeros((self.num_envs, NUM_DUNGEONS, NUM_LEVELS), np.int16),
        }
        values = {name: array.ctypes.data for name, array in addresses.items()}
        values |= dict(num_games=self.num_envs, num_keys=len(task.keys), max_episode_steps=self._max_episode_steps)
        values |= dict(extended=task.extended, continual=task.continual)
        values |= dict(max_opening_presses=python_game.MAX_OPENING_PRESSES)
        values |= dict(max_automatic_presses=python_game.MAX_AUTOMATIC_PRESSES)
        values |= dict(goal=kind, goal_level=goal.level if isinstance(goal, DescentGoal) else 0)
        values |= dict(oracle_glyph=ORACLE_GLYPH, unknown_glyph=nethack.GLYPH_CMAP_OFF, hallucinating=HALLUCINATING)
        values |= dict(goal_reward=GOAL_REWARD, time_penalty=TIME_PENALTY, vector_bound=VECTOR_OBS_BOUND)
        rows, columns = chars.shape[1:]
        values |= dict(screen_stride=chars.strides[0], screen_rows=rows, screen_columns=columns)
        values |= dict(first_row=self._view.first_row, is_terminal=self._view == VIEWS["terminal"])
        assert {*values} == {name for name in GROUP_FIELDS if not name.startswith(("record", "at_"))}
        group = GroupFields(**values)
        group.arrays = addresses  # arrays that live as long as it
        return group

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        self._failed.clear()
        records, library = out.records, self._stepper.library
        self._set_layout(records)
        actions = np.ascontiguousarray(actions, np.int32)
        buffers = actions, records, out.finals, out.episode_stats
        if [buffer.nbytes for buffer in buffers] != self._buffer_sizes:  # C would write elsewhere
            raise ValueError(f"actions or buffers are not those of {self.num_envs} games")
        num_ended = library.oni_step(self._group, *[buffer.ctypes.data for buffer in buffers])
        if num_ended < 0:
            raise IndexError(f"an action is not in [0, {len(self._keys)}), or the games are closed")
        out.texts.captions[:] = self._messages(slice(None))
        self._write_blstats(range(self.num_envs), records)
        if num_ended:
            self._write_blstats(self.end_status.nonzero()[0].tolist(), out.finals)
            self._failed.update(
                (i, failure_error(int(self._failures[i]), self._group)) for i in self._failures.nonzero()[0].tolist()
            )
            self._begin_episodes(out)

    def scout(self, i: int) -> int:
        return self._stepper.library.oni_scout(self._group, i)

    def kill_count(self, i: int) -> int:
        return int(self._kills[i])

    def _stepper_note(self) -> str:
        return "games are stepped in C; "

    def _code_note(self) -> str:
        if self._image:
            return "games share the code of the engine that was built here"
        return super()._code_note() + (f"; {self._why_wheel}" if self._why_wheel else "")

    def _new_game(self, i: int) -> Any:
        if self._image:
            return BuiltGame(self._stepper, self._group, i, self._image)
        return CopiedGame(self._stepper, self._group, i, self._shared_code)

    def _observe(self, rows: slice, records: np.ndarray) -> None:
        self._set_layout(records)
        address, size = records.ctypes.data, records.itemsize
        indices = range(*rows.indices(self.num_envs))
        for i in indices:
            self._stepper.library.oni_observe(self._group, i, address + i * size)
        self._write_blstats(indices, records)

    def _write_blstats(self, indices: Sequence[int], records: np.ndarray) -> None:
        """Writes the only observation that C does not: it is shown to generated code alone."""
        if "blstats" in self.spec.observations:
            records["blstats"][indices] = self.arrays.blstats[indices]

    def _set_layout(self, records: np.ndarray) -> None:
        """Has C write records of this type."""
        dtype = records.dtype
        if dtype is self._records_dtype:  # as from one step to the next
            return
        assert records.flags.c_contiguous
        shown = self.spec.observations
        for name in FIELDS:
            is_written = name in shown or name not in OPTIONAL_FIELDS
            setattr(self._group, f"at_{name}", dtype.fields[name][1] if is_written and dtype.fields else -1)
        self._group.record_size = size = dtype.itemsize
        self._buffer_sizes = [self.num_envs * num_bytes for num_bytes in (4, size, size, 4 * NUM_STATS)]
        self._records_dtype = dtype
