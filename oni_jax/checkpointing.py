"""Checkpoints of a run: orbax writes arrays and JSON, nothing that could execute."""

import logging
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from oni_jax.config import UserError
from oni_jax.types import PyTree


class Saved(NamedTuple):
    """What a checkpoint holds."""

    state: PyTree  # the learner's TrainState
    reward: Mapping[str, np.ndarray]  # Reward.save()
    progress: Mapping[str, Any]  # counters, JSON


class Checkpoints:
    """The checkpoints in a folder, each named by its number of environment steps.

    Saving goes on in the background; a checkpoint that was not finished is not seen by `restore`.
    """

    def __init__(self, directory: str, keep: int = 3, milestone_secs: float = 0.0):
        logging.getLogger("absl").setLevel(logging.CRITICAL)  # orbax reports every step of every save
        self._directory = os.path.abspath(directory)
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                keep_time_interval=timedelta(seconds=milestone_secs) if milestone_secs else None,
                cleanup_tmp_directories=True,
            ),
            item_handlers={
                "state": ocp.StandardCheckpointHandler(),
                "reward": ocp.StandardCheckpointHandler(),
                "progress": ocp.JsonCheckpointHandler(),
            },
        )

    def save(self, step: int, saved: Saved) -> None:
        """Saves in the background; a step that is there already is left as it is.

        What fails is told in one line, and the checkpoints there are stay as they are: a full disk does not end a run.
        """
        if step in self._manager.all_steps():
            return
        items = {"state": ocp.args.StandardSave(saved.state), "progress": ocp.args.JsonSave(dict(saved.progress))}
        if saved.reward:
            items["reward"] = ocp.args.StandardSave(dict(saved.reward))
        try:
            self._manager.save(step, args=ocp.args.Composite(**items))
        except Exception as error:  # of this save, or of the one before that went on in the background
            self._warn(error)

    def restore(self, like: PyTree) -> Saved | None:
        """The newest readable checkpoint, in the structure, shapes and types of `like`; None when there is none.

        An unreadable one is set aside under another name, with a warning, as long as an older one can be read.

        Raises:
            UserError: there are checkpoints and none can be read into `like`.
        """
        errors = {}
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
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
                f"checkpoint {self._path(step)} can't be read ({text}): it is damaged or of another network; "
                "move it away, or choose another --experiment"
            )
        return None

    def _restore_step(self, step: int, like: PyTree) -> Saved:
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        self._check_shapes(step, abstract)
        items = {"state": ocp.args.StandardRestore(abstract), "progress": ocp.args.JsonRestore()}
        if os.path.isdir(os.path.join(self._path(step), "reward")):
            items["reward"] = ocp.args.StandardRestore()
        restored = self._manager.restore(step, args=ocp.args.Composite(**items))
        return Saved(restored["state"], restored.get("reward") or {}, restored["progress"])

    def _check_shapes(self, step: int, abstract: PyTree) -> None:
        """Tells a checkpoint of another network before any of it is read."""
        stored = _shapes(self._manager.item_metadata(step)["state"].tree)
        wanted = _shapes(abstract)
        for name in sorted(stored.keys() | wanted.keys()):
            if stored.get(name) != wanted.get(name):
                raise ValueError(f"{name} is {stored.get(name, 'absent')} there, {wanted.get(name, 'absent')} here")

    def _set_aside(self, step: int, text: str) -> None:
        aside = f"{self._path(step)}.unreadable"
        os.rename(self._path(step), aside)
        self._manager.reload()
        print(f"checkpoint {step} can't be read ({text}); moved to {aside}, going on from an older one", flush=True)

    def _path(self, step: int) -> str:
        return os.path.join(self._directory, str(step))

    def close(self) -> None:
        """Waits for the save under way."""
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            self._warn(error)
        self._manager.close()

    def _warn(self, error: Exception) -> None:
        print(f"warning: a checkpoint in {self._directory} can't be written ({_reason(error)})", flush=True)


def restore_params(directory: str, like: PyTree) -> tuple[int, PyTree]:
    """The environment steps and the policy's parameters of the newest readable checkpoint, in the structure of `like`.

    Raises:
        UserError: there is none that can be read into `like`.
    """
    return _newest(directory, lambda path: _restore_part(path, "params", like))


def restore_reward(directory: str, like: PyTree) -> tuple[int, tuple[PyTree, Mapping[str, np.ndarray]]]:
    """The environment steps of the newest readable checkpoint, and what it holds of the reward.

    Writes nothing: a run may be going on there.

    Args:
        directory: of the checkpoints.
        like: the structure, shapes and types of `Reward.init`'s state.

    Returns:
        The environment steps, and (the reward's state, what `Reward.save` gave).

    Raises:
        UserError: there is none that can be read into `like`.
    """

    def restore(path: str) -> tuple[PyTree, Mapping[str, np.ndarray]]:
        state = _restore_part(path, "reward_state", like) if jax.tree.leaves(like) else like
        host = os.path.join(path, "reward")
        arrays = ocp.Checkpointer(ocp.StandardCheckpointHandler()).restore(host) if os.path.isdir(host) else {}
        return state, jax.tree.map(np.asarray, arrays)

    return _newest(directory, restore)


def _newest(directory: str, restore: Callable[[str], PyTree]) -> tuple[int, PyTree]:
    """The newest step for which `restore(path)` works, and what that gives."""
    steps = sorted(int(name) for name in os.listdir(directory) if name.isdigit()) if os.path.isdir(directory) else []
    if not steps:
        raise UserError(f"{directory}: holds no checkpoint")
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    problem = ""
    for step in reversed(steps):
        path = os.path.join(os.path.abspath(directory), str(step))
        try:
            return step, restore(path)
        except Exception as error:  # orbax and tensorstore raise many types for damaged files
            problem = problem or f"checkpoint {path} can't be read ({_reason(error)})"
    raise UserError(problem)


def _restore_part(path: str, name: str, like: PyTree) -> PyTree:
    """One part of the learner's state alone."""
    tree = {name: jax.tree.map(ocp.utils.to_shape_dtype_struct, like)}
    args = ocp.args.PyTreeRestore(
        tree, restore_args=ocp.checkpoint_utils.construct_restore_args(tree), partial_restore=True
    )
    part = ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(os.path.join(path, "state"), args=args)[name]
    stored, wanted = _shapes(part), _shapes(tree[name])
    for leaf, shape in wanted.items():  # which orbax does not compare here
        if stored.get(leaf) != shape:
            raise ValueError(f"{leaf} is {stored.get(leaf, 'absent')} there, {shape} here")
    return part


def _shapes(tree: PyTree) -> dict[str, tuple[int, ...]]:
    """{path: shape} of every leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape) for path, leaf in leaves}


def _reason(error: Exception) -> str:
    """An error in a few words; tensorstore appends pages to its own."""
    lines = str(error).split("See full TensorStore details")[0].splitlines()
    return " ".join(lines[0].split())[:200] if lines else type(error).__name__
