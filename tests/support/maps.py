"""A stock of Crafter's maps that is soon made, where tests train with as many as users do."""

import os
import pathlib

import numpy as np

from oni_jax.envs.crafter.maps import Map
from oni_jax.envs.crafter.stock import load_stock
from oni_jax.settings.worlds import CrafterConfig

NUM_MAPS = 16


def write_repeated_stock() -> None:
    """Writes the stock of the settings' size, of few maps repeated: as many others take two minutes of a core."""
    size = CrafterConfig().map_stock
    folder = pathlib.Path(os.environ["ONI_JAX_CACHE"])
    few = load_stock(NUM_MAPS)
    (made,) = folder.glob(f"crafter_maps_*_{NUM_MAPS}.npz")
    maps = Map(*(np.concatenate([field] * (size // NUM_MAPS)) for field in few))
    np.savez(made.with_stem(made.stem.removesuffix(str(NUM_MAPS)) + str(size)), **maps._asdict())
