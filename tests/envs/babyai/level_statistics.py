"""Statistics of random BabyAI levels, by which two generators can be compared.

python -m tests.envs.babyai.level_statistics writes those of `minigrid`, which need not be installed for the tests.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.peers.minigrid_levels import make_env
from oni_jax.envs.babyai.cells import COLOURS, DOOR, TYPES, WALL, pack
from oni_jax.envs.babyai.levels import LEVELS, PREFIX, Level

FILE = pathlib.Path(__file__).with_name("minigrid_levels.json")
NUM_LEVELS = 10_000
NAMES = tuple(
    PREFIX + name
    for name in (
        "GoToLocal-Pretraining-S20",
        "GoToLocal-RedBall-S30",
        "GoTo-RedBallBlueBox-S20",
        "PickUp-PurpleKey-S20",
    )
)


class Starts(NamedTuple):
    """Starts of R episodes."""

    grids: np.ndarray  # [R, S, S] cells
    positions: np.ndarray  # [R, 2]
    directions: np.ndarray  # [R]
    targets: np.ndarray  # [R, G] cells
    is_named_later: np.ndarray  # [R] bool


def features(starts: Starts) -> dict[str, np.ndarray]:
    """Returns numbers [R] by which levels of two generators can differ."""
    grids, positions = starts.grids, starts.positions
    size = grids.shape[1]
    objects = (grids != 1) & (grids != WALL)
    x, y = np.indices((size, size))
    counts = objects.sum((1, 2))
    distances = np.abs(x - positions[:, 0, None, None]) + np.abs(y - positions[:, 1, None, None])
    at_edge = np.minimum(np.minimum(x, y), np.minimum(size - 1 - x, size - 1 - y)) == 1
    found = {
        "agent x": positions[:, 0],
        "agent y": positions[:, 1],
        "agent x squared": (positions[:, 0] - size / 2) ** 2,
        "agent in a corner": np.all((positions == 1) | (positions == size - 2), axis=1),
        "objects' x": (objects * x).sum((1, 2)) / counts,
        "objects' y": (objects * y).sum((1, 2)) / counts,
        "objects' distance": (objects * distances).sum((1, 2)) / counts,
        "nearest object": np.where(objects, distances, 99).min((1, 2)),
        "objects at distance 2": (objects & (distances == 2)).sum((1, 2)),
        "objects at the edge": (objects & at_edge).sum((1, 2)),
        "objects in the middle": objects[:, size // 2 - 2 : size // 2 + 3, size // 2 - 2 : size // 2 + 3].sum((1, 2)),
        "neighbours": (objects[:, 1:] & objects[:, :-1]).sum((1, 2))
        + (objects[:, :, 1:] & objects[:, :, :-1]).sum((1, 2)),
        "named later": starts.is_named_later,
    }
    found |= {f"direction {i}": starts.directions == i for i in range(4)}
    kinds = [(i | j << 3, f"{COLOURS[j]} {TYPES[i]}") for i in range(DOOR + 1, len(TYPES)) for j in range(len(COLOURS))]
    found |= {f"number of {name}": (grids == cell).sum((1, 2)) for cell, name in kinds}
    for i, targets in enumerate(starts.targets.T):
        is_target = grids == targets[:, None, None]
        found[f"target {i} alike"] = is_target.sum((1, 2))
        found[f"target {i} is the only one"] = is_target.sum((1, 2)) == 1
        found[f"target {i} distance"] = np.where(is_target, distances, 99).min((1, 2))
        found |= {f"target {i} is {name}": targets == cell for cell, name in kinds}
    return {name: values.astype(np.float64) for name, values in found.items()}


def summary(starts: Starts) -> dict[str, list[float]]:
    """Returns [mean, variance] of each feature."""
    return {name: [float(x.mean()), float(x.var())] for name, x in features(starts).items()}


def z_scores(
    one: Mapping[str, list[float]], other: Mapping[str, list[float]], num_one: int, num_other: int
) -> dict[str, float]:
    """Returns the difference of each two means in standard errors; infinite where constants differ."""
    scores = {}
    for name, (mean, variance) in one.items():
        difference = mean - other[name][0]
        error = np.sqrt(variance / num_one + other[name][1] / num_other)
        scores[name] = difference / error if error else np.inf if difference else 0.0
    return scores


def minigrid_starts(level: Level, num_levels: int, seed: int) -> Starts:
    env, starts = make_env(level), []
    env.gen_obs = lambda: {}  # it is slow, and not looked at
    for i in range(num_levels):
        env.reset(seed=seed if i == 0 else None)
        later, _, earlier = env.mission.partition(" after you ")
        parts = [part for text in ([earlier, later] if earlier else [later]) for part in text.split(", then ")]
        targets = [TYPES.index(part.split()[-1]) | COLOURS.index(part.split()[-2]) << 3 for part in parts]
        starts.append((pack(env.grid.encode()), env.agent_pos, env.agent_dir, targets, bool(earlier)))
    return Starts(*(np.array(column) for column in zip(*starts)))


if __name__ == "__main__":
    summaries = {name: summary(minigrid_starts(LEVELS[name], NUM_LEVELS, seed=0)) for name in NAMES}
    FILE.write_text(json.dumps({"num_levels": NUM_LEVELS, "levels": summaries}, indent=1) + "\n")
