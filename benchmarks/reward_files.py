"""Random stand-ins for the files that some reward types need, as costly as real ones."""

import functools
import pathlib
import tempfile
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.rewards import registry
from oni_jax.rewards.oni.reward_model import QUANTILES, RewardModel, save_reward_model
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.rewards import PotentialConfig

# Types that read NetHack's messages, or nothing.
REWARD_TYPES = [name for name, kind in registry.REWARD_TYPES.items() if PotentialConfig not in kind.settings]
WORD_VECTOR_SIZE = 300
WORDS = (  # words of the default goal, and of many messages
    "you the a an it is hit miss kill see here door gold pieces collect collecting score monster monsters killing "
    "deeper levels going down experience highest possible player wants progress newt rat jackal kobold food dark wall"
).split()


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="oni_jax_reward_files_")  # removed when the process ends


@functools.cache
def reward_settings(reward_type: str) -> Mapping[str, str]:
    """Returns settings that a type needs besides name and coefficient; their files exist until the process ends."""
    folder = pathlib.Path(_folder().name)
    if reward_type == "motif":
        network = NetworkConfig()
        params = jax.jit(make_ranking_network(network).init)(
            jax.random.key(0), {"message": jnp.zeros((1, 256), jnp.uint8)}
        )
        quantiles = {level: level - 0.5 for level in QUANTILES}
        save_reward_model(str(folder / "model"), 1, RewardModel(network, params, 0.0, 1e-3, quantiles), {})
        return {"reward_dir": str(folder / "model")}
    if reward_type == "cosine-bow":
        vectors = np.random.default_rng(0).normal(size=(len(WORDS), WORD_VECTOR_SIZE)).round(4)
        lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in zip(WORDS, vectors)]
        (folder / "words.vec").write_text("\n".join([f"{len(WORDS)} {WORD_VECTOR_SIZE}", *lines, ""]))
        return {"word_vectors": str(folder / "words.vec")}
    return {}
