"""A trained Preference Transformer on disk, and its network."""

from collections.abc import Collection
from typing import Any, NamedTuple

import jax
import numpy as np

from oni_jax.networks.preference_transformer import PreferenceTransformer
from oni_jax.networks.registry import find_encoder
from oni_jax.rewards.trained import holds_trained, load_trained, reason, save_trained
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import as_network
from oni_jax.types import EVERYTHING, EnvSpec, PyTree

KIND = "Preference Transformer"


class PreferenceSettings(NamedTuple):
    encoder_custom: str
    hidden_size: int
    num_actions: int
    horizon: int  # steps of the segments that it was trained on
    width: int = 128
    feed_forward: int = 2048
    max_time: int = 1000
    is_scaled: bool = True


class PreferenceModel(NamedTuple):
    """Trained by `launch.train_potential`, or imported, for a run."""

    settings: PreferenceSettings
    params: PyTree


def make_network(settings: PreferenceSettings, spec: EnvSpec) -> PreferenceTransformer:
    """Makes the network. Raises UserError: the encoder does not fit the environment's observations."""
    network = as_network(settings.encoder_custom, settings.hidden_size)
    return PreferenceTransformer(
        find_encoder(network).make(network, spec),  # type: ignore
        settings.num_actions,
        settings.width,
        settings.feed_forward,
        settings.max_time,
        settings.is_scaled,
    )


def names_read(settings: PreferenceSettings, spec: EnvSpec) -> Collection[str]:
    """Returns the names of the observations of a state that the network reads; `spec`: with all that there are."""
    network = as_network(settings.encoder_custom, settings.hidden_size)
    names = find_encoder(network).observations(network)
    missing = [name for name in names if name not in (EVERYTHING, *spec.observations)]
    if missing:
        raise UserError(f"--encoder_custom {settings.encoder_custom}: this environment does not show {missing[0]}")
    return sorted(spec.observations) if EVERYTHING in names else list(names)


def save_preference_model(folder: str, epoch: int, model: PreferenceModel, notes: dict[str, Any]) -> None:
    """Saves a model in place of earlier epochs'. Raises UserError: it can't be written."""
    settings = {"kind": KIND, "settings": model.settings._asdict(), "notes": notes}
    save_trained(folder, epoch, jax.tree.map(np.asarray, model.params), settings)


def load_preference_model(folder: str) -> PreferenceModel:
    """Loads the model of a folder. Raises UserError: it is missing, damaged, or something else."""
    hint = "launch.train_potential writes one"
    if not holds_trained(folder):
        raise UserError(f"--reward_dir {folder}: holds no {KIND}; {hint}")
    try:
        params, saved = load_trained(folder)
        if saved["kind"] != KIND:
            raise ValueError(f"it is a {saved['kind']!r}")
        settings = PreferenceSettings(**saved["settings"])
        for value, wanted in zip(settings, PreferenceSettings.__annotations__.values()):
            if type(value) is not wanted:
                raise ValueError(f"a setting is {value!r}")
        if not all(np.all(np.isfinite(x)) for x in jax.tree.leaves(params)):
            raise ValueError("it holds NaN or inf")
    except Exception as error:  # orbax and tensorstore raise many types for damaged files
        raise UserError(f"--reward_dir {folder}: its {KIND} can't be read ({reason(error)}); {hint}") from None
    return PreferenceModel(settings, params)
