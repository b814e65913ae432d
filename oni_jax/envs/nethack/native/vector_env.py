"""N games of NetHack, stepped by one call in C. The games, and all that is written, are NetHackVectorEnv's."""

import ctypes
import functools
import os
import weakref
from typing import Any

import numpy as np

from oni_jax.envs.base import StepOutput
from oni_jax.envs.nethack import game as python_game
from oni_jax.envs.nethack.game import CHARACTER
from oni_jax.envs.nethack.native.layout import CannotStepError
from oni_jax.envs.nethack.native.stepper import FAILURES, GROUP_FIELDS, GroupFields, Stepper, load_stepper
from oni_jax.envs.nethack.screens import VIEWS
from oni_jax.envs.nethack.shared_code import LIBC, CannotShareError, SharedCode, loaded_at
from oni_jax.envs.nethack.tasks import GOAL_REWARD, HALLUCINATING, ORACLE_GLYPH, DescentGoal, OracleGoal, Task, nethack
from oni_jax.envs.nethack.vector_env import (
    BLSTATS_SCALE,
    TIME_PENALTY,
    VECTOR_OBS_BOUND,
    NetHackVectorEnv,
)

SCORE_GOAL, DESCENT_GOAL, ORACLE_GOAL, SOBER_ORACLE_GOAL = range(4)  # in group.c
NUM_DUNGEONS, NUM_LEVELS = 16, 64  # of `levels_left` in group.c; NetHack has 16 and 32
NUM_STATS = 9  # that group.c writes
OPTIONAL_FIELDS = ("chars", "colors", "vector_obs", "message", "glyphs", "hero_xy")  # of a record
FIELDS = (*OPTIONAL_FIELDS, "is_first", "reward", "terminated", "truncated")


def check_native(task: Task) -> None:
    """Raises CannotStepError: this task can't be stepped in C here; see `load_stepper`."""
    load_stepper()
    if not (task.goal is None or isinstance(task.goal, DescentGoal | OracleGoal)):
        raise CannotStepError("the task's goal is tested in Python")


class NativeGame:
    """An engine that C steps; see `NetHackGame`. Row i of the group.

    Raises:
      CannotStepError: the engine can't be loaded.
    """

    kill_count = 0  # the group has it
    follows_clock = False  # C sets the time of birth

    def __init__(self, stepper: Stepper, group: GroupFields, i: int, shared_code: SharedCode | None):
        self._library, self._group, self._i = stepper.library, group, i
        # Made for its folder and its copy of the library alone: it is never started.
        self._nethack = engine = nethack.Nethack(
            observation_keys=(), playername=CHARACTER, ttyrec=None, fix_moon_phase=True
        )
        path, options = engine.dlpath, engine._nethackoptions.encode()
        # All symbols are resolved at once: they would have to be again after each restart.
        handle = LIBC.dlopen(path.encode(), os.RTLD_NOW)
        # Also without `close`: the path is used again, and the loader would return this game's library for the next.
        self.close = weakref.finalize(self, _unload, stepper.library, group, i, handle, engine)
        try:
            if not handle:
                raise CannotStepError("the engine's symbols can't be resolved")
            folder = os.fsencode(engine._vardir)
            self._check(self._library.oni_load(group, i, stepper.layout, loaded_at(path), folder, options))
        except (CannotShareError, RuntimeError) as error:
            self.close()
            raise CannotStepError(str(error)) from None
        if shared_code:
            shared_code.share(path, compare=True)

    def start(self, core_seed: int, display_seed: int) -> None:
        """Starts the episode of these seeds, and plays up to its first turn."""
        self._check(self._library.oni_start(self._group, self._i, core_seed, display_seed))

    def quit(self) -> None:
        self._check(self._library.oni_quit(self._group, self._i))

    def _check(self, failure: int) -> None:
        if failure:
            raise failure_error(failure, self._group)


def _unload(library: ctypes.CDLL, group: GroupFields, i: int, handle: int | None, engine: Any) -> None:
    library.oni_unload(group, i)
    if handle:
        LIBC.dlclose(handle)
    engine.close()


def failure_error(failure: int, group: GroupFields) -> RuntimeError:
    """Returns the error of a failure that C has returned."""
    limits = {name: getattr(group, name) for name in ("max_opening_presses", "max_automatic_presses")}
    return RuntimeError(FAILURES[failure].format(**limits))


class NativeVectorEnv(NetHackVectorEnv):
    """As NetHackVectorEnv, stepped in C.

    Raises:
      CannotStepError: see `check_native`.
    """

    _games: list[Any]

    def __init__(self, task: Task, num_envs: int, *arguments: Any, **named: Any):
        check_native(task)
        self._stepper = load_stepper()
        self._kills, self._failures = np.zeros((2, num_envs), np.int64)
        self._keys = np.array(task.keys, np.int64)
        self._records_dtype: np.dtype | None = None  # of the records that C is set to write
        self._buffer_sizes: list[int] = []  # in bytes; see `step`
        try:
            super().__init__(task, num_envs, *arguments, **named)
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
        group.arrays = addresses  # which live as long as it
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
        if num_ended:
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

    def _new_game(self, i: int) -> Any:
        return NativeGame(self._stepper, self._group, i, self._shared_code)

    def _observe(self, rows: slice, records: np.ndarray) -> None:
        self._set_layout(records)
        address, size = records.ctypes.data, records.itemsize
        for i in range(*rows.indices(self.num_envs)):
            self._stepper.library.oni_observe(self._group, i, address + i * size)

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
        self._buffer_sizes = [self.num_envs * own for own in (4, size, size, 4 * NUM_STATS)]
        self._records_dtype = dtype
