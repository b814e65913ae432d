"""Texts of BabyAI-Text, made on the host. Source: the captions of GLAM (arXiv 2302.02662), as BK uses them."""

import functools
from collections.abc import Sequence

import numpy as np

from oni_jax.envs.babyai.cells import COLOURS, DOOR, DOOR_STATES, KEY, TYPES, colour_of, state_of, type_of
from oni_jax.envs.babyai.levels import EFFECTS, VIEW_SIZE, Family

_NOTHING_SEEN = "You see nothing in front."
_COLUMN, _ROW = VIEW_SIZE // 2, VIEW_SIZE - 1  # cell of the agent
_AGENT = _COLUMN * VIEW_SIZE + _ROW  # index of its cell


def caption(key: np.ndarray) -> bytes:
    """Returns the text of a `view.caption_key` [V * V + 3] uint8."""
    values = key.tolist()
    cells, walls = values[: VIEW_SIZE**2], values[VIEW_SIZE**2 :]
    sentences = [f"You carry a {_object(cells[_AGENT])}"] if cells[_AGENT] else []
    sentences += [
        f"You see a wall {_steps(num_steps, where)}"
        for num_steps, where in zip(walls, ("forward", "left", "right"))
        if num_steps
    ]
    sentences += [_seen(i, cell) for i, cell in enumerate(cells) if cell and i != _AGENT]
    return (". ".join(sentences) or _NOTHING_SEEN).encode()


def event(key: np.ndarray) -> bytes:
    """Returns the text of a `State.event` [3] uint8: what the last action did, and what lies ahead after a move."""
    effect, done_to, ahead = key.tolist()
    text = EFFECTS[effect].format(_object(done_to) if type_of(done_to) >= KEY else TYPES[type_of(done_to)])
    return (f"{text}. A {_object(ahead)} lies right ahead" if ahead else text).encode()


@functools.cache  # a run makes hundreds of thousands of captions
def _seen(index: int, cell: int) -> str:
    return f"You see a {_object(cell)} {_position(*divmod(index, VIEW_SIZE))}"


def mission(family: Family, targets: Sequence[int], num_alike: Sequence[int], is_named_later: bool) -> str:
    """Returns the instruction of an episode; see `rules.State`. No method of BK sees it."""
    verb = "pick up" if family is Family.PICK_UP else "go to"
    parts = [f"{verb} {'a' if count > 1 else 'the'} {_object(cell)}" for cell, count in zip(targets, num_alike)]
    if is_named_later:
        return f"{parts[1]} after you {parts[0]}"
    return ", then ".join(parts)


def _object(cell: int) -> str:
    words = [COLOURS[colour_of(cell)], TYPES[type_of(cell)]]
    return " ".join([DOOR_STATES[state_of(cell)], *words] if type_of(cell) == DOOR else words)


def _position(x: int, y: int) -> str:
    sideways, forward = x - _COLUMN, _ROW - y
    parts = [_steps(abs(sideways), "left" if sideways < 0 else "right"), _steps(forward, "forward")]
    return " and ".join(part for part, size in zip(parts, (sideways, forward)) if size)


def _steps(count: int, where: str) -> str:
    return f"{count} {'step' if count == 1 else 'steps'} {where}"
