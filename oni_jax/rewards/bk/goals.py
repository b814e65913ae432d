"""Goals for segments, as files, and which of them a step came near to. Source: BK-Goal."""

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from oni_jax.envs.history import CAPTION
from oni_jax.host.files import write_atomically
from oni_jax.host.json_files import read_json
from oni_jax.rewards.bk.segment_captions import action_name, segment_caption
from oni_jax.settings.fields import UserError
from oni_jax.settings.json_text import is_sealed, sealed

GOALS = "goals.json"
PUBLISHED = ("trajectory_text.json", "goal_library.json", "goal_index.json")  # captions, index lists, goals
HORIZON = 4  # steps before the present one that are read
NAMES = (CAPTION,)  # observations that windows hold
NUM_NEAREST = 3  # segments, whose goals are compared with a step
MAX_FILE_BYTES = 1 << 28
BLOCK = 64  # vectors that are compared at once


class GoalLibrary(NamedTuple):
    """Goals for N segments."""

    goals: Sequence[str]  # G
    keys: Sequence[str]  # N; captions of the segments
    indices: Sequence[Sequence[int]]  # N; of the goals of each segment

    @classmethod
    def of(cls, found: Iterable[tuple[str, Sequence[str]]]) -> "GoalLibrary":
        """Returns the library of segments' captions with their goals, of which each is kept once."""
        index: dict[str, int] = {}
        rounds = [(key, [*dict.fromkeys(index.setdefault(goal, len(index)) for goal in goals)]) for key, goals in found]
        return cls([*index], [key for key, _ in rounds], [goals for _, goals in rounds])


def write_library(folder: str, library: GoalLibrary) -> None:
    """Writes the library's file. Raises UserError: it can't be written."""
    path = os.path.join(folder, GOALS)
    try:
        write_atomically(path, json.dumps(sealed(library._asdict()), indent=1).encode())
    except OSError as error:
        raise UserError(f"--reward_dir {folder}: can't be written ({error})") from None


def read_library(folder: str) -> GoalLibrary:
    """Reads the library of a folder, ours or as published. Raises UserError: it holds none."""
    names = [GOALS] if os.path.exists(os.path.join(folder, GOALS)) else PUBLISHED
    if not all(os.path.isfile(os.path.join(folder, name)) for name in names):
        raise UserError(
            f"--reward_dir {folder}: holds neither {GOALS}, which launch.write_goals writes, nor {', '.join(PUBLISHED)}"
        )
    contents = [_read_json(os.path.join(folder, name)) for name in names]
    try:
        if len(contents) == 1:
            library = GoalLibrary(*(contents[0][name] for name in GoalLibrary._fields))
        else:
            keys, indices, goals = contents
            goals = sorted(goals, key=lambda goal: goals[goal]) if isinstance(goals, dict) else goals
            library = GoalLibrary(goals, keys, indices)
        _check(library)
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"--reward_dir {folder}: {', '.join(names)}: holds no library of goals ({error})") from None
    return library


def _read_json(path: str) -> Any:
    try:
        found = read_json(path, MAX_FILE_BYTES, follows_links=True)
        if isinstance(found, dict) and not is_sealed(found):
            raise ValueError("it is damaged: its checksum is another")
        return found
    except (OSError, ValueError) as error:
        raise UserError(f"--reward_dir: {path}: can't be read ({error})") from None


def _check(library: GoalLibrary) -> None:
    """Raises ValueError, or another error, where something is not as it should be."""
    if not all(isinstance(text, str) for texts in (library.goals, library.keys) for text in texts):
        raise ValueError("goals and captions must be texts")
    if not library.goals or not library.keys or len(library.keys) != len(library.indices):
        raise ValueError(
            f"{len(library.goals)} goals, {len(library.keys)} captions, {len(library.indices)} lists of indices"
        )
    for index in (index for indices in library.indices for index in indices):
        if type(index) is not int or not 0 <= index < len(library.goals):
            raise ValueError(f"{index!r} is no index of a goal")


def texts_of_window(captions: Sequence[str], actions: Sequence[int], words: Sequence[str]) -> tuple[str, str] | None:
    """Returns what is compared with segments, and with goals: the steps before the last one, and the last one.

    Args:
        captions: [HORIZON + 1], the present one is the last.
        actions: [HORIZON]; NO_ACTION before the episode's start, from which on nothing is read.
        words: the actions' names.

    Returns:
        None at an episode's first state: there was no step.
    """
    taken = [action_name(words, action) for action in actions if action >= 0]
    if not taken:
        return None
    states = captions[-1 - len(taken) :]
    return segment_caption(states[:-1], taken[:-1]).strip(), segment_caption(states[-2:], taken[-1:]).strip()


class GoalVectors(NamedTuple):
    """Vectors of length 1 of a library's texts."""

    keys: np.ndarray  # [N, D] float32
    goals: np.ndarray  # [G, D] float32
    indices: Sequence[Sequence[int]]  # N; of the goals of each key

    def nearest(self, queries: np.ndarray) -> np.ndarray:
        """Returns the keys nearest to vectors [R, D] by cosine, [R, NUM_NEAREST] or fewer, the nearest last."""
        # Whole blocks: a row's cosines must not depend on the number of rows.
        padded = np.pad(queries, ((0, -len(queries) % BLOCK), (0, 0)))
        cosines = (padded @ self.keys.T)[: len(queries)]
        return np.argsort(cosines, axis=1, kind="stable")[:, -NUM_NEAREST:]

    def similarities(self, queries: np.ndarray, transitions: np.ndarray) -> list[float]:
        """Returns the largest cosine of steps [R, D] to a goal of the keys nearest to the steps before them [R, D]."""
        near = [sorted({goal for key in keys for goal in self.indices[key]}) for keys in self.nearest(queries).tolist()]
        return [float(np.max(self.goals[indices] @ x)) if indices else 0.0 for indices, x in zip(near, transitions)]
