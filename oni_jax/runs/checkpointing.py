"""Checkpoints of a run, written by orbax: arrays and JSON, no executable code."""

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from oni_jax.host.files import check_regular
from oni_jax.host.npz import from_npz, to_npz
from oni_jax.host.orbax_failures import end_waiting_threads, quieten
from oni_jax.host.reporting import report, report_once
from oni_jax.host.run_files import SETTINGS, check_run_id, checkpoint_steps, kept_run_id, run_id
from oni_jax.host.slow_disk import reported_if_slow
from oni_jax.ops.checksums import check_arrays, check_finite, named_leaves, opened, sealed
from oni_jax.settings.fields import UserError
from oni_jax.settings.json_text import RUN_ID
from oni_jax.types import PyTree

ARRAYS = ("state", "reward", "acting")  # the parts of a checkpoint that orbax writes as arrays
PARTS = "parts"  # key of a checkpoint's JSON: the folders it must have
MAX_FAILURES = 10  # bound for one save
UNFINISHED = ".orbax-checkpoint-tmp"  # mark in the names of orbax's unfinished files
# The primary process alone saves and restores: the state is replicated in all processes.
PRIMARY_ONLY = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})


class Saved(NamedTuple):
    state: PyTree  # the learner's TrainState
    reward: Mapping[str, np.ndarray]  # Reward.save()
    progress: Mapping[str, Any]  # counters, JSON
    acting: Mapping[str, np.ndarray] = {}  # World.save(), where environments can be saved


class Checkpoints:
    """Checkpoints in a folder, each named by its number of environment steps.

    Only the primary process has them; it waits for no other. Saving runs in the background; unfinished checkpoints are
    removed, and never restored.

    Raises:
        UserError: the folder can't be made or read.
    """

    def __init__(self, directory: str, keep: int = 3, milestone_secs: float = 0.0):
        quieten()
        self._directory = os.path.abspath(directory)
        self.run_id = kept_run_id(os.path.dirname(self._directory))
        self._problem = ""  # why the last save failed
        self._last_step = -1  # the last saved one
        self._left: list[tuple[str, int]] = []  # directories of before, and the last step saved there
        self._keep, self._milestone_secs = keep, milestone_secs
        try:
            os.makedirs(self._directory, exist_ok=True)
            self._manager = self._open()
        except OSError as error:
            raise UserError(f"{self._directory} can't be used ({error.strerror}); choose another --train_dir") from None
        except RecursionError:  # orbax raises it for deeply nested JSON
            raise UserError(
                f"{self._directory}: the _CHECKPOINT_METADATA of one is damaged; move that one away"
            ) from None

    def _open(self) -> ocp.CheckpointManager:
        _remove_unfinished(self._directory)
        return ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=self._keep,
                keep_time_interval=timedelta(seconds=self._milestone_secs) if self._milestone_secs else None,
                multiprocessing_options=PRIMARY_ONLY,
                create=False,
            ),
            item_handlers={
                **{name: ocp.StandardCheckpointHandler(multiprocessing_options=PRIMARY_ONLY) for name in ARRAYS},
                "progress": ocp.JsonCheckpointHandler(multiprocessing_options=PRIMARY_ONLY),
            },
        )

    def follow(self, directory: str) -> None:
        """Uses another folder from now on, or this one again where it was removed. Raises OSError: it can't be made.

        A save that goes on writes where the folder was, which then makes an unfinished checkpoint there.
        """
        if directory == self._directory and os.path.isdir(directory):
            return
        if directory != self._directory:
            self._left.append((self._directory, self._last_step))
        self._directory = directory
        self._close_manager()
        self._remove_remains()
        os.makedirs(directory, exist_ok=True)
        self._manager = self._open()

    def _remove_remains(self) -> None:
        """Removes what a save made again where a run's folder was, which has no settings then."""
        for directory, step in self._left:
            folder = os.path.dirname(directory)
            if not os.path.exists(os.path.join(folder, SETTINGS)):
                _remove_unfinished(directory)
                shutil.rmtree(os.path.join(directory, str(step)), ignore_errors=True)
                with contextlib.suppress(OSError):  # they hold something, or are not there
                    os.rmdir(directory)
                    os.rmdir(folder)

    def save(self, step: int, saved: Saved) -> None:
        """Saves in the background; an existing step is left as it is.

        A failure is logged in one line and leaves the earlier checkpoints: a full disk does not end a run.
        """
        self.finish()
        self._problem = ""
        _remove_unfinished(self._directory)  # leftovers of a failed save, to which orbax may go on writing for a while
        if step in self._manager.all_steps():
            return
        # Host arrays: orbax would expect a shard from each of several processes.
        arrays: dict[str, PyTree] = {"state": jax.device_get(saved.state)}
        if saved.reward:
            arrays["reward"] = {"npz": to_npz(saved.reward)}
        if saved.acting:
            arrays["acting"] = {"npz": to_npz(saved.acting)}
        parts: dict[str, Any] = {name: ocp.args.StandardSave(tree) for name, tree in arrays.items()}
        progress = {**saved.progress, PARTS: sorted(parts), **({RUN_ID: self.run_id} if self.run_id else {})}
        parts["progress"] = ocp.args.JsonSave(sealed(progress, arrays))
        self._last_step = step
        try:
            with reported_if_slow(f"saving a checkpoint in {self._directory}"):
                self._manager.save(step, args=ocp.args.Composite(**parts))
        except Exception as error:  # orbax and tensorstore raise many types
            self._failed(error)

    def restore(self, like: PyTree) -> Saved | None:
        """Restores the newest readable checkpoint in the structure, shapes and types of `like`; None: there is none.

        Unreadable ones are set aside under another name, with a warning, as long as an older one can be read.

        Raises:
            UserError: there are checkpoints and none can be read into `like`.
        """
        errors = {}
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                check_regular(self.path(step))
                saved = self._restore_step(step, like)
            except Exception as error:  # orbax and tensorstore raise many types for damaged files
                errors[step] = _reason(error)
                continue
            for broken, text in errors.items():
                self._set_aside(broken, text)
            return saved
        if errors:
            step, text = next(iter(errors.items()))
            raise UserError(
                f"checkpoint {self.path(step)} can't be read ({text}): it is damaged or of another network; "
                "move it away, or choose another --experiment"
            )
        return None

    def _restore_step(self, step: int, like: PyTree) -> Saved:
        # Rejects a checkpoint of another network before any of it is read.
        check_shapes(self._manager.item_metadata(step)["state"].tree, like)
        # As NumPy's arrays, else orbax looks for the devices on which it was saved.
        state = ocp.args.StandardRestore(jax.tree.map(np.asarray, like))
        parts = {"state": state, "progress": ocp.args.JsonRestore()}
        for name in ARRAYS[1:]:
            if os.path.isdir(os.path.join(self.path(step), name)):
                parts[name] = ocp.args.StandardRestore()
        restored = self._manager.restore(step, args=ocp.args.Composite(**parts))
        progress, sums = _opened_progress(step, restored["progress"], run_id(os.path.dirname(self._directory)))
        missing = set(progress.pop(PARTS, ())) - set(parts)
        if missing:
            raise ValueError(f"{', '.join(sorted(missing))} is missing")
        check_arrays({name: restored[name] for name in ARRAYS if name in parts}, sums)
        reward, acting = (_arrays(restored.get(name) or {}) for name in ARRAYS[1:])
        return Saved(restored["state"], reward, progress, acting)

    def _set_aside(self, step: int, text: str) -> None:
        aside = f"{self.path(step)}.unreadable"
        while os.path.exists(aside):  # leftovers of an earlier time
            aside += "~"
        os.rename(self.path(step), aside)
        self._manager.reload()
        report(f"checkpoint {step} can't be read ({text}); moved to {aside}, resuming from an older one")

    def path(self, step: int) -> str:
        return os.path.join(self._directory, str(step))

    def close(self) -> None:
        """Waits for the pending save."""
        self.finish()
        self._manager.close()
        _remove_unfinished(self._directory)
        self._remove_remains()

    def finish(self) -> str:
        """Waits for the pending save, and logs a failure. Returns why the last save failed; empty: it did not."""
        try:
            with reported_if_slow(f"the last save in {self._directory}"):
                self._manager.wait_until_finished()
        except Exception as error:  # orbax and tensorstore raise many types
            self._failed(error)
        return self._problem

    def _failed(self, error: Exception) -> None:
        """Logs the failure, removes the unfinished checkpoint, since a full disk needs the room, and reopens orbax.

        Orbax raises its background failures one at a time, the next ones at the next save.
        """
        self._problem = _reason(error)
        report(f"warning: a checkpoint in {self._directory} can't be written ({self._problem})")
        self._close_manager()
        end_waiting_threads()
        with contextlib.suppress(Exception):  # the storage is gone: the next save fails at the closed manager
            self._manager = self._open()

    def _close_manager(self) -> None:
        for _ in range(MAX_FAILURES):
            with contextlib.suppress(Exception):
                self._manager.close()
                break


def _remove_unfinished(directory: str) -> None:
    with contextlib.suppress(OSError):  # the next save reports what is wrong with the folder
        for name in os.listdir(directory):
            if UNFINISHED in name:
                shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


def _arrays(restored: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Reads the archive that `Checkpoints` writes, or the single arrays of its earlier format."""
    return from_npz(restored["npz"]) if restored.keys() == {"npz"} else jax.tree.map(np.asarray, dict(restored))


def restore_params(directory: str, like: PyTree, env_steps: int | None = None) -> tuple[int, PyTree]:
    """Restores a policy's parameters. Returns the checkpoint's environment steps, and the parameters.

    Args:
        directory: directory of the checkpoints.
        like: the structure, shapes and types of the parameters.
        env_steps: steps of the checkpoint; None: the newest readable one.

    Raises:
        UserError: no checkpoint can be read into `like`.
    """

    def restore(path: str) -> PyTree:
        params = _restore_part(path, "params", like)
        check_finite(params)
        return params

    return _newest(directory, restore, env_steps)


def restore_reward(
    directory: str, like: PyTree, env_steps: int | None = None
) -> tuple[int, tuple[PyTree, Mapping[str, np.ndarray]]]:
    """Restores a reward from a checkpoint. Writes nothing: the run may be going on.

    Args:
        directory: directory of the checkpoints.
        like: the structure, shapes and types of `Reward.init`'s state.
        env_steps: steps of the checkpoint; None: the newest readable one.

    Returns:
        The environment steps, and (the reward's state, the arrays of `Reward.save`).

    Raises:
        UserError: no checkpoint can be read into `like`.
    """

    def restore(path: str) -> tuple[PyTree, Mapping[str, np.ndarray]]:
        state = _restore_part(path, "reward_state", like) if jax.tree.leaves(like) else like
        host = os.path.join(path, "reward")
        arrays = _reader(ocp.StandardCheckpointHandler).restore(host) if os.path.isdir(host) else {}
        check_arrays({"reward": arrays}, _sums(path))
        return state, _arrays(arrays)

    return _newest(directory, restore, env_steps)


def _newest(directory: str, restore: Callable[[str], PyTree], only: int | None = None) -> tuple[int, PyTree]:
    """Returns the newest step (or `only`) for which `restore(path)` works, and its result."""
    steps = checkpoint_steps(directory)
    if not steps:
        raise UserError(f"{directory}: holds no checkpoint")
    if only is not None:
        if only not in steps:
            raise UserError(f"{directory}: holds no checkpoint of {only} steps, but of {', '.join(map(str, steps))}")
        steps = [only]
    quieten()
    problem = ""
    for step in reversed(steps):
        path = os.path.join(os.path.abspath(directory), str(step))
        try:
            check_regular(path)
            found = restore(path)
        except Exception as error:  # orbax and tensorstore raise many types for damaged files
            problem = problem or f"checkpoint {path} can't be read ({_reason(error)})"
            continue
        if problem:
            report_once(f"{problem}; {step} is read in its place")
        return step, found
    raise UserError(problem)


def _reader(make_handler: Callable[..., Any]) -> ocp.Checkpointer:
    """Returns a checkpointer that waits for no other process: it may be that this one alone reads."""
    index = jax.process_index()
    options = ocp.options.MultiprocessingOptions(primary_host=index, active_processes={index})
    return ocp.Checkpointer(make_handler(multiprocessing_options=options), multiprocessing_options=options)


def _restore_part(path: str, name: str, like: PyTree) -> PyTree:
    tree = {name: jax.tree.map(ocp.utils.to_shape_dtype_struct, like)}
    # Host arrays: the devices on which it was saved need not be here.
    on_host = jax.tree.map(lambda x: ocp.RestoreArgs(restore_type=np.ndarray, dtype=x.dtype), tree)
    args = ocp.args.PyTreeRestore(tree, restore_args=on_host, partial_restore=True)
    part = _reader(ocp.PyTreeCheckpointHandler).restore(os.path.join(path, "state"), args=args)[name]
    check_shapes(part, tree[name])  # orbax does not compare shapes here
    check_arrays({"state": {name: part}}, _sums(path))
    return jax.device_put(part)


def _sums(path: str) -> Mapping[str, int]:
    """Reads the checksums of a checkpoint's arrays. Raises ValueError: they are damaged."""
    found = _reader(ocp.JsonCheckpointHandler).restore(os.path.join(path, "progress"))
    directory, step = os.path.split(path)
    return _opened_progress(int(step), found, run_id(os.path.dirname(directory)))[1]


def _opened_progress(step: int, found: Any, run: str) -> tuple[dict[str, Any], Mapping[str, int]]:
    """Returns the progress of a checkpoint, and the checksums of its arrays.

    Raises:
        ValueError: they are damaged, or of another run than that of this id.
    """
    progress, sums = opened(found)
    check_run_id(progress, run)
    progress.pop(RUN_ID, None)
    if progress.get("env_steps", step if sums else None) != step:
        raise ValueError(f"its progress is of {progress.get('env_steps')!r:.40} steps")
    return progress, sums


def check_shapes(stored: PyTree, wanted: PyTree, where: str = "there") -> None:
    """Raises ValueError, naming the first leaf that is missing, or of another shape, in one of the trees."""
    there, here = _shapes(stored), _shapes(wanted)
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            raise ValueError(f"{name} is {there.get(name, 'absent')} {where}, {here.get(name, 'absent')} here")


def _shapes(tree: PyTree) -> dict[str, tuple[int, ...]]:
    """Returns {path: shape} of every leaf."""
    return {path: tuple(leaf.shape) for path, leaf in named_leaves(tree).items()}


def _reason(error: Exception) -> str:
    """Shortens an error to a few words; tensorstore appends pages to it."""
    lines = str(error).split("See full TensorStore details")[0].splitlines()
    return " ".join(lines[0].split())[:200] if lines else type(error).__name__
