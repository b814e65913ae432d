"""A reward model that was trained on ranked pairs, on disk."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from oni_jax.rewards.trained import holds_trained, load_trained, reason, save_trained
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.fields import settings as settings_of
from oni_jax.settings.learning import NetworkConfig, TorchbeastConfig
from oni_jax.types import PyTree

KIND = "reward model of ranked sub-episodes"
QUANTILES = tuple(round(0.05 * i, 2) for i in range(1, 20))


class RewardModel(NamedTuple):
    """Trained by `launch.train_reward`, for a run. Rewards are normalised: (r - mean) / sqrt(variance + 1e-8)."""

    network: NetworkConfig  # settings of the encoder; only `torchbeast` is set
    params: PyTree  # parameters of a RankingNetwork around a TorchbeastEncoder
    mean: float  # mean reward over all steps of the training split's pairs
    variance: float
    quantiles: Mapping[float, float]  # 0.05 ... 0.95 -> of the normalised reward over the unique training messages


def save_reward_model(folder: str, epoch: int, model: RewardModel, notes: Mapping[str, Any]) -> None:
    """Saves a model, atomically, in place of those of earlier epochs.

    Args:
        folder: <train_dir>/<experiment>.
        epoch: passes over the training split so far.
        model: the one to save.
        notes: JSON about its training, for display.

    Raises:
        UserError: it can't be written.
    """
    settings = {
        "kind": KIND,
        "network": {field.name: value for field, value in settings_of(model.network.torchbeast)},
        "quantiles": {f"{fraction:.2f}": float(value) for fraction, value in model.quantiles.items()},
        "notes": dict(notes),
    }
    arrays = {
        "params": jax.tree.map(np.asarray, model.params),
        "mean": np.float32(model.mean),
        "variance": np.float32(model.variance),
    }
    save_trained(folder, epoch, arrays, settings)


def load_reward_model(folder: str) -> RewardModel:
    """Loads the model that `launch.train_reward` saved in <train_dir>/<experiment>.

    Raises:
        UserError: it is missing, damaged, or something else.
    """
    hint = "name the <train_dir>/<experiment> of a finished launch.train_reward"
    if not holds_trained(folder):
        raise UserError(f"--reward_dir {folder}: holds no reward model; {hint}")
    try:
        return _read(*load_trained(folder))
    except Exception as error:  # orbax and tensorstore raise many types for damaged files
        raise UserError(f"--reward_dir {folder}: its reward model can't be read ({reason(error)}); {hint}") from None


def _read(arrays: Any, settings: Any) -> RewardModel:
    if settings["kind"] != KIND:
        raise ValueError(f"it is a {settings['kind']!r}")
    network = {field.name: settings["network"][field.name] for field, _ in settings_of(TorchbeastConfig())}
    for field, default in settings_of(TorchbeastConfig()):
        if type(value := network[field.name]) is not type(default):
            raise ValueError(f"{field.name} is {value!r}")
    quantiles = {float(fraction): float(value) for fraction, value in settings["quantiles"].items()}
    if set(quantiles) != set(QUANTILES):
        raise ValueError("its quantiles are not 0.05 ... 0.95")
    encoder = NetworkConfig(torchbeast=with_values(TorchbeastConfig(), network))
    model = RewardModel(encoder, arrays["params"], float(arrays["mean"]), float(arrays["variance"]), quantiles)
    numbers = [*jax.tree.leaves(model.params), model.mean, model.variance, *quantiles.values()]
    if not all(np.all(np.isfinite(number)) for number in numbers):
        raise ValueError("it holds NaN or inf")
    return model
