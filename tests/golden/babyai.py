"""Recorded rows and captions of BabyAI-Text, computed again by our environment from each recorded start.

A file holds streams of rows, `<stream>/<array>`; its texts are in the .json of the same name beside it.
"""

import functools
import json
import pathlib
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.device.babyai import captions, view
from oni_jax.envs.device.babyai.cells import COLOURS, TYPES, pack
from oni_jax.envs.device.babyai.env import BabyAI
from oni_jax.envs.device.babyai.levels import LEVELS, PREFIX
from oni_jax.envs.device.babyai.rules import State

Npz = Mapping[str, np.ndarray]
Result = tuple[str, float, float]
"""(output, rows that differ, those allowed)"""

ROWS = ("grid", "agent_pos", "agent_dir", "carrying", "step_count", "image", "mission", "caption")
OUTCOMES = ("reward", "terminated", "truncated")


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a recording, or of the caption cases, and its texts as arrays of strings."""
    texts = json.loads(path.with_suffix(".json").read_text())
    with np.load(path) as npz:
        arrays = {name: npz[name] for name in npz.files}
    if isinstance(texts, list):
        return {**arrays, "caption": np.array(texts)}
    arrays["level"] = np.array(PREFIX + path.stem.split(PREFIX)[-1])
    for stream, recorded in texts.items():
        arrays[f"{stream}/mission"], arrays[f"{stream}/caption"] = np.array(recorded["mission_and_description"]).T
    return arrays


def recognises(npz: Npz) -> bool:
    return {"level", "42/caption"} <= set(npz)


def check(npz: Npz) -> list[Result]:
    """Plays the recorded actions and compares every row."""
    env = BabyAI(LEVELS[str(npz["level"])])
    streams = sorted({name.split("/")[0].removeprefix("s") for name in npz if "/" in name})
    results = []
    for stream in streams:
        recorded = {name.split("/")[1]: npz[name] for name in npz if name.split("/")[0] in (stream, f"s{stream}")}
        played = play(env, recorded)
        results += [
            (f"{stream}/{name}", float(np.sum(rows_that_differ(recorded[name], played[name]))), 0.0)
            for name in (*ROWS, *OUTCOMES)
        ]
    return results


def check_captions(npz: Npz) -> int:
    """Returns the number of made-up views [N, 7, 7, 3] that get another caption than the recorded one."""
    keys = np.asarray(jax.jit(jax.vmap(view.caption_key))(pack(npz["image"])))
    return sum(captions.caption(key).decode() != text for key, text in zip(keys, npz["caption"], strict=True))


def rows_that_differ(recorded: np.ndarray, played: np.ndarray) -> np.ndarray:
    """Returns [R] bool. Rewards are compared as float32, exactly."""
    recorded = recorded.astype(np.float32) if recorded.dtype == np.float64 else recorded
    return np.any((recorded != played).reshape(len(recorded), -1), axis=1)


def play(env: BabyAI, recorded: Npz) -> dict[str, np.ndarray]:
    """Returns what our environment makes of the recorded starts and actions, under the recording's names."""
    step = jax.jit(functools.partial(_step, env))
    show = jax.jit(lambda state: (env.observe(state)["image"], env.caption_key(state)))
    rows: dict[str, list] = {name: [] for name in (*ROWS, *OUTCOMES)}
    state = None
    for row, (is_first, action) in enumerate(zip(recorded["is_first"], recorded["action"].tolist())):
        state = start(env, recorded, row) if is_first else state
        assert state is not None
        image, key = jax.device_get(show(state))
        values = {
            "grid": _image(np.asarray(state.grid)),
            "agent_pos": state.position,
            "agent_dir": state.direction,
            "carrying": _carried(int(state.carried)),
            "step_count": state.num_steps,
            "image": image,
            "mission": env.mission(state),
            "caption": captions.caption(key).decode(),
        }
        if action < 0:  # the state after an episode's end, or the last one
            outcome = (0.0, False, False)
        else:
            state, *outcome = step(state, action)
        for name, value in {**values, **dict(zip(OUTCOMES, outcome))}.items():
            rows[name].append(np.asarray(value))
    return {name: np.array(values) for name, values in rows.items()}


def _step(env: BabyAI, state: State, action: jax.Array) -> tuple[State, jax.Array, jax.Array, jax.Array]:
    state, reward, terminated = env.step(state, action, jax.random.key(0))
    # As recorded: a success at the last step is truncated too
    return state, reward, terminated, state.num_steps >= env.max_episode_steps


def start(env: BabyAI, recorded: Npz, row: int) -> State:
    """Returns the state of a recorded first row. What the grid does not show is read from the mission."""
    grid = pack(recorded["grid"][row])
    later, _, earlier = str(recorded["mission"][row]).partition(" after you ")
    named = [later] if not earlier else [earlier, later]
    named = [part for text in named for part in text.split(", then ")]
    targets = [TYPES.index(words[-1]) | COLOURS.index(words[-2]) << 3 for words in (text.split() for text in named)]
    assert [target in cells for target, cells in zip(targets, env.level.targets, strict=True)] == [True] * len(targets)
    return State(
        grid=jnp.asarray(grid),
        position=jnp.asarray(recorded["agent_pos"][row], jnp.int32),
        direction=jnp.int32(recorded["agent_dir"][row]),
        carried=jnp.uint8(0),
        targets=jnp.array(targets, jnp.uint8),
        num_alike=jnp.array([np.sum(grid == target) for target in targets], jnp.int32),
        is_named_later=jnp.bool(bool(earlier)),
        num_reached=jnp.int32(0),
        num_steps=jnp.int32(0),
    )


def _image(grid: np.ndarray) -> np.ndarray:
    """Returns MiniGrid's channels [S, S, 3] of a grid; cells that an object left are empty."""
    shown = np.where(grid >= 192, 1, grid)
    return np.stack([shown & 7, shown >> 3 & 7, shown >> 6], axis=-1)


def _carried(cell: int) -> tuple[int, int]:
    return (cell & 7, cell >> 3) if cell else (-1, -1)
