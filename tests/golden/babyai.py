"""Recorded rows and captions of BabyAI-Text, computed again by our environment from each recorded start.

A file holds streams of rows, `s<stream>/<array>`, or views; its texts are in the .json of the same name beside it.
"""

import functools
import json
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.babyai import captions, view
from oni_jax.envs.babyai.cells import COLOURS, TYPES, pack
from oni_jax.envs.babyai.env import BabyAI
from oni_jax.envs.babyai.levels import LEVELS
from oni_jax.envs.babyai.rules import State

Npz = Mapping[str, np.ndarray]
Result = tuple[str, float, float]
"""(output, rows that differ, those allowed)"""

ROWS = ("grid", "agent_pos", "agent_dir", "carrying", "step_count", "image", "mission", "caption")
OUTCOMES = ("reward", "terminated", "truncated")


def recognises(npz: Npz) -> bool:
    return {"name", "texts"} <= set(npz) and str(npz["name"]).startswith("minigrid_")


def check(npz: Npz) -> list[Result]:
    """Plays the recorded actions and compares every row, or makes the captions of recorded views."""
    texts = json.loads(str(npz["texts"]))
    if isinstance(texts, list):
        return [("captions", float(np.sum(np.array(texts) != captions_of(npz["image"]))), 0.0)]
    env, results = env_of(npz), []
    for stream in texts:
        recorded = stream_of(npz, stream)
        played = play(env, recorded)
        results += [
            (f"s{stream}/{name}", float(np.sum(rows_that_differ(recorded[name], played[name]))), 0.0)
            for name in (*ROWS, *OUTCOMES)
        ]
    return results


def env_of(npz: Npz) -> BabyAI:
    return BabyAI(LEVELS[str(npz["name"]).removeprefix("minigrid_")])


def stream_of(npz: Npz, stream: str) -> dict[str, np.ndarray]:
    """Returns the arrays of a recorded stream, its texts among them."""
    prefix = f"s{stream}/"
    recorded = {name.removeprefix(prefix): x for name, x in npz.items() if name.startswith(prefix)}
    rows = json.loads(str(npz["texts"]))[stream]["mission_and_description"]
    recorded["mission"], recorded["caption"] = np.array(rows).T
    return recorded


def captions_of(images: np.ndarray) -> np.ndarray:
    """Returns the captions [N] of views [N, 7, 7, 3] uint8, any that MiniGrid can show."""
    keys = np.asarray(jax.jit(jax.vmap(view.caption_key))(pack(images)))
    return np.array([captions.caption(key).decode() for key in keys])


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
    state, reward, terminated, _ = env.step(state, action, jax.random.key(0))
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
        event=jnp.zeros(3, jnp.uint8),
    )


def _image(grid: np.ndarray) -> np.ndarray:
    """Returns MiniGrid's channels [S, S, 3] of a grid; cells that an object left are empty."""
    shown = np.where(grid >= 192, 1, grid)
    return np.stack([shown & 7, shown >> 3 & 7, shown >> 6], axis=-1)


def _carried(cell: int) -> tuple[int, int]:
    return (cell & 7, cell >> 3) if cell else (-1, -1)
