"""Small data sets, written as others would write them."""

import pathlib

import numpy as np

MESSAGES = (b"You kill the newt!", b"", b"It's a wall.", b"$ - 12 gold pieces.", b"You see here a rock.")


def padded(texts: list, num_bytes: int = 256) -> np.ndarray:
    """Nested lists of messages -> [..., 256] uint8."""
    array = np.array(texts, f"S{num_bytes}")
    return np.frombuffer(array.tobytes(), np.uint8).reshape(*array.shape, num_bytes).copy()


def write_dataset(directory: pathlib.Path, arrays: dict[str, np.ndarray]) -> pathlib.Path:
    for key, array in arrays.items():
        path = directory / f"{key}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
    return directory


def random_dataset(directory: pathlib.Path, num_pairs: int = 20, num_steps: int = 2, seed: int = 0) -> pathlib.Path:
    """Pairs of messages with different numbers in them, so that each pair is asked about."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(MESSAGES), size=(num_pairs, 2, num_steps))
    texts = [[[MESSAGES[k] for k in side] for side in pair] for pair in chosen.tolist()]
    for row, pair in enumerate(texts):
        for side in (0, 1):
            pair[side][0] += b" (%d, %d)" % (row, side)
    arrays = {
        "data/message": padded(texts),
        "data/blstats": rng.integers(0, 5, (num_pairs, 2, num_steps, 27)),
        "data/rewards": rng.normal(size=(num_pairs, 2, num_steps)).astype(np.float32),
        "info/score": rng.integers(0, 9, (num_pairs, 2)),
    }
    return write_dataset(directory, arrays)
