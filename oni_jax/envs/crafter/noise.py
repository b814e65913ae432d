"""Three-dimensional OpenSimplex noise of many points at once, on the host, in double precision.

Source: Kurt Spencer's OpenSimplex noise of 2014, as the Python package `opensimplex` computes it. A value is a sum over
near points of a stretched cubic lattice. The algorithm looks at 6 or 8 of them, and sometimes leaves out one that is in
reach: so does this.
"""

import functools
from typing import NamedTuple

import numpy as np

_STRETCH, _SQUISH, _NORM = -1 / 6, 1 / 3, 103
_REACH = 2  # squared
_MULTIPLIER, _INCREMENT, _WORD = 6364136223846793005, 1442695040888963407, 2**64
_NUM_NEAR = 8
_AXES = np.eye(3, dtype=np.int64)
_ALL = np.ones(3, np.int64)


class Lattice(NamedTuple):
    """Contributions to noise at P points, but for the gradients, which depend on the seed."""

    points: np.ndarray  # [M, 3] int64, of the lattice, modulo 256
    weights: np.ndarray  # [M, 3] float64; a gradient's inner product with one is a contribution
    starts: np.ndarray  # [P] int64; of each point's contributions


def lattice_of(points: np.ndarray) -> Lattice:
    """Finds the lattice points that contribute at points [P, 3] float64."""
    stretched = points + _STRETCH * points.sum(1, keepdims=True)
    base = np.floor(stretched).astype(np.int64)
    near = _near(stretched - base)  # [P, 8, 3]
    # Rounding alone remains where lattice points are just out of reach, and its sign decides what a cell is. So these
    # operations keep the original's order.
    origin = points - (base + _SQUISH * base.sum(1, keepdims=True))
    offsets = origin[:, None] - near - _SQUISH * near.sum(2, keepdims=True)
    x, y, z = np.moveaxis(offsets, 2, 0)
    attenuation = np.maximum(0, _REACH - x * x - y * y - z * z) ** 4
    near += base[:, None]
    # The first of the 8 stays, whatever it contributes, so that no point is without
    is_used = (attenuation > 0) | (np.arange(_NUM_NEAR) == 0)
    starts = np.concatenate([[0], np.cumsum(is_used.sum(1))[:-1]])
    return Lattice(near[is_used] & 255, (offsets * attenuation[..., None] / _NORM)[is_used], starts)


def noise(lattice: Lattice, seed: int) -> np.ndarray:
    """Returns the noise [P] float64 at the points."""
    permutation, gradients = _permutation(seed), _gradients()
    x, y, z = lattice.points.T
    index = permutation[permutation[permutation[x] + y & 255] + z & 255]
    contributions = np.einsum("ij,ij->i", gradients[index % len(gradients)], lattice.weights)
    return np.add.reduceat(contributions, lattice.starts)


def _near(inside: np.ndarray) -> np.ndarray:
    """Returns the lattice points [P, 8, 3], relative to a cell's origin, of points [P, 3] inside the cell.

    A cell is a tetrahedron at its origin, one at the opposite corner, and an octahedron in between.
    """
    total = inside.sum(1)
    near = _octahedron(inside)
    low, high = total <= 1, total >= 2
    near[low] = _tetrahedron(inside[low])
    near[high] = _ALL - _tetrahedron(1 - inside[high])  # the same, seen from the other corner
    return near


def _tetrahedron(inside: np.ndarray) -> np.ndarray:
    """Returns the corners 000, 100, 010, 001, and two more by the two nearest of them (and two again, far away)."""
    x, y, z = inside.T
    # The two axes with the largest coordinates; x before y where equal
    drops_y = (x >= y) & (z > y)
    drops_x = (x < y) & (z > x)
    first, second = np.where(drops_x, 2, 0), np.where(drops_y, 2, 1)
    rows = np.arange(len(inside))
    a, b = inside[rows, first], inside[rows, second]
    at_origin = 1 - inside.sum(1)
    is_origin_near = (at_origin > a) | (at_origin > b)
    nearest = np.where(b > a, second, first)
    others = _AXES[(nearest + 1) % 3], _AXES[(nearest + 2) % 3]
    both, third = _AXES[first] + _AXES[second], _AXES[3 - first - second]
    extra = [
        np.where(is_origin_near[:, None], _AXES[nearest] - others[0], both),
        np.where(is_origin_near[:, None], _AXES[nearest] - others[1], both - third),
    ]
    return _stack([0 * _ALL, *_AXES, *extra], len(inside), fill=_FAR)


def _octahedron(inside: np.ndarray) -> np.ndarray:
    """Returns the six corners, and two more by the two nearest of them."""
    # A corner is an axis, or all but an axis: of each such pair the nearer one
    sums = inside.sum(1, keepdims=True) - inside  # [P, 3], without each axis
    is_far, score = sums > 1, np.abs(sums - 1)
    first, second = np.full(len(inside), 2), np.full(len(inside), 1)  # the axes of the two nearest pairs
    x, y, z = score.T
    first, second = np.where((z <= y) & (z < x), 0, first), np.where((z > y) & (y < x), 0, second)
    rows = np.arange(len(inside))
    first_far, second_far = is_far[rows, first], is_far[rows, second]
    third = _AXES[3 - first - second]
    far, near = np.where(first_far, first, second), np.where(first_far, second, first)
    both_far, both_near = (first_far & second_far)[:, None], ~(first_far | second_far)[:, None]
    extra = [
        np.where(both_far, _ALL, np.where(both_near, 0 * _ALL, _ALL - 2 * _AXES[far])),
        np.where(both_far, 2 * third, np.where(both_near, _ALL - 2 * third, 2 * _AXES[near])),
    ]
    return _stack([*_AXES, *(_ALL - _AXES), *extra], len(inside), fill=_FAR)


_FAR = 9 * _ALL  # out of reach


def _stack(corners: list[np.ndarray], count: int, fill: np.ndarray) -> np.ndarray:
    padded = [*corners, *[fill] * (_NUM_NEAR - len(corners))]
    return np.stack([np.broadcast_to(corner, (count, 3)) for corner in padded], axis=1)


def _permutation(seed: int) -> np.ndarray:
    """Returns the bytes 0 to 255 as shuffled by a linear congruential generator."""
    for _ in range(3):
        seed = (seed * _MULTIPLIER + _INCREMENT) % _WORD
    left, permutation = list(range(256)), np.zeros(256, np.int64)
    for i in reversed(range(256)):
        seed = (seed * _MULTIPLIER + _INCREMENT) % _WORD
        signed = seed - _WORD if seed >= _WORD // 2 else seed
        chosen = (signed + 31) % (i + 1)
        permutation[i] = left[chosen]
        left[chosen] = left[i]
    return permutation


@functools.cache
def _gradients() -> np.ndarray:
    """Returns the 24 gradients [24, 3]: the directions of a rhombicuboctahedron's corners, by signs, then long axis."""
    signs = [(x, y, z) for z in (1, -1) for y in (1, -1) for x in (-1, 1)]
    return np.array([np.where(_AXES[long] == 1, 11, 4) * sign for sign in signs for long in range(3)])
