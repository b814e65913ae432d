"""The first states of Crafter's episodes, made on the host by its published generator from the same seeds."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.crafter import things
from oni_jax.envs.crafter.noise import Lattice, lattice_of, noise
from oni_jax.envs.crafter.things import COW, SIZE, SKELETON, ZOMBIE
from oni_jax.types import Array

CENTRE = SIZE // 2, SIZE // 2  # the player's start
MAX_BORN = 192  # objects that a map may start with
_MAX_DRAWS = 3 * SIZE**2 * 2  # draws of a cell: three for its material, and as many for what stands on it
_MAX_SEED = 2**31 - 1


class Map(NamedTuple):
    """A world before the first step, without its player."""

    materials: Array  # [64, 64] uint8, by x and y
    kinds: Array  # [MAX_BORN] uint8; creatures in the order of their birth, then zeros
    positions: Array  # [MAX_BORN, 2] uint8


class _Layer(NamedTuple):
    """Noise at (x * scale[0], y * scale[1], z): a weighted mean, or sum, over sizes."""

    z: int
    sizes: tuple[tuple[float, float], ...]  # (size, weight)
    is_mean: bool = True
    scale: tuple[float, float] = (1, 1)


_LAYERS = {
    "start": _Layer(8, ((3, 1),)),
    "water": _Layer(3, ((15, 1), (5, 0.15)), is_mean=False),
    "mountain": _Layer(0, ((15, 1), (5, 0.3))),
    "cave": _Layer(6, ((7, 1),)),
    "horizontal": _Layer(7, ((3, 1),), scale=(2, 1 / 5)),
    "vertical": _Layer(7, ((3, 1),), scale=(1 / 5, 2)),
    "coal": _Layer(1, ((8, 1),)),
    "iron": _Layer(2, ((6, 1),)),
    "lava": _Layer(6, ((5, 1),)),
    "sand": _Layer(4, ((9, 1),)),
    "tree": _Layer(5, ((7, 1),)),
}


def episode_seed(seed: int, number: int) -> int:
    """Returns the seed of the world of an environment's episode, from 1 on, as Crafter has it."""
    return hash((seed, number)) % _MAX_SEED


def make_map(seed: int) -> Map:
    """Makes the map that Crafter makes from this seed of a world."""
    random = np.random.RandomState(seed % _MAX_SEED)
    noises = _noises(int(random.randint(0, _MAX_SEED)))
    draws = iter(random.uniform(size=_MAX_DRAWS).tolist())
    materials, tunnels = _materials(noises, draws)
    return Map(materials, *_creatures(materials, tunnels, draws))


def _materials(noises: Mapping[str, np.ndarray], draws: Iterator[float]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the materials [64, 64] uint8 and where tunnels are [64, 64] bool; takes draws as cells need them."""
    start = _distance() * -1 + 4 + 2 * noises["start"]
    start = 1 / (1 + np.exp(-start))
    water = noises["water"] + 0.1 - 2 * start
    mountain = noises["mountain"] - (4 * start + 0.3 * water)
    is_mountain = (start <= 0.5) & (mountain > 0.15)
    cave = is_mountain & (noises["cave"] > 0.15) & (mountain > 0.3)
    tunnels = is_mountain & ~cave & ((noises["horizontal"] > 0.4) | (noises["vertical"] > 0.4))
    rock = is_mountain & ~cave & ~tunnels
    plain = (start <= 0.5) & ~is_mountain
    sand = plain & (0.25 < water) & (water <= 0.35) & (noises["sand"] > -0.2)
    lake = plain & ~sand & (water > 0.3)
    land = plain & ~sand & ~lake

    materials = np.full((SIZE, SIZE), things.GRASS, np.uint8)
    for chosen, material in ((cave | tunnels, things.PATH), (sand, things.SAND), (lake, things.WATER)):
        materials[chosen] = material
    materials[rock] = np.where((mountain > 0.3) & (noises["lava"] > 0.35), things.LAVA, things.STONE)[rock]

    # Possible outcomes of a cell's draw, in this order, and the value that the draw has to exceed
    chances = (
        (rock & (noises["coal"] > 0), 0.85, things.COAL),
        (rock & (noises["iron"] > 0.4), 0.75, things.IRON),
        (rock & (mountain > 0.18), 0.994, things.DIAMOND),
        (land & (noises["tree"] > 0), 0.8, things.TREE),
    )
    _draw(chances, draws, materials)
    return materials, tunnels


def _creatures(materials: np.ndarray, tunnels: np.ndarray, draws: Iterator[float]) -> tuple[np.ndarray, np.ndarray]:
    """Returns kinds [MAX_BORN] uint8 and positions [MAX_BORN, 2] uint8."""
    distance = _distance()
    walkable = things.IS_WALKABLE[materials]
    chances = (
        (walkable & (distance > 3) & (materials == things.GRASS), 0.985, COW),
        (walkable & (distance > 10), 0.993, ZOMBIE),
        (tunnels, 0.95, SKELETON),
    )
    born = np.zeros((SIZE, SIZE), np.uint8)
    _draw(chances, draws, born)
    found = np.argwhere(born)[:MAX_BORN]
    kinds, positions = np.zeros(MAX_BORN, np.uint8), np.zeros((MAX_BORN, 2), np.uint8)
    kinds[: len(found)], positions[: len(found)] = born[tuple(found.T)], found
    return kinds, positions


def _draw(chances: Sequence[tuple[np.ndarray, float, int]], draws: Iterator[float], cells: np.ndarray) -> None:
    """Goes through the cells by x, then y, and gives each the first of its chances whose draw succeeds."""
    possible = np.stack([chosen for chosen, _, _ in chances], axis=2).reshape(SIZE**2, -1)
    flat = cells.reshape(-1)
    for cell in np.flatnonzero(possible.any(1)).tolist():
        for i in np.flatnonzero(possible[cell]).tolist():
            if next(draws) > chances[i][1]:
                flat[cell] = chances[i][2]
                break


def _noises(seed: int) -> dict[str, np.ndarray]:
    """Returns each layer's noise [64, 64] float64."""
    lattice, parts = _lattice()
    values = noise(lattice, seed).reshape(-1, SIZE, SIZE)
    found: dict[str, np.ndarray] = {}
    for name, layer in _LAYERS.items():
        weights = [weight for _, weight in layer.sizes]
        total = sum(weight * values[part] for weight, part in zip(weights, parts[name]))
        found[name] = total / sum(weights) if layer.is_mean else total  # type: ignore
    return found


@functools.cache
def _lattice() -> tuple[Lattice, dict[str, list[int]]]:
    """Returns the lattice points of all layers and sizes, and the indices of each layer's parts in what they give."""
    x, y = np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij")
    points, parts = [], {}
    for name, layer in _LAYERS.items():
        parts[name] = []
        for size, _ in layer.sizes:
            parts[name].append(len(points))
            scaled = [x * layer.scale[0] / size, y * layer.scale[1] / size, np.full(x.shape, layer.z)]
            points.append(np.stack(scaled, axis=-1).reshape(-1, 3))
    return lattice_of(np.concatenate(points)), parts


def _distance() -> np.ndarray:
    """Returns each cell's distance [64, 64] from the player."""
    x, y = np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij")
    return np.sqrt((x - CENTRE[0]) ** 2 + (y - CENTRE[1]) ** 2)
