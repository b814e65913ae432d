"""A trained reward model on disk: orbax writes arrays and JSON, nothing that could execute."""

import logging
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from oni_jax.config import NetworkConfig, UserError
from oni_jax.preferences.config import ENCODER_SETTINGS
from oni_jax.types import PyTree

KIND = "reward model of ranked sub-episodes"
QUANTILES = tuple(round(0.05 * i, 2) for i in range(1, 20))


class RewardModel(NamedTuple):
    """Trained by `launch.train_reward`, for a run. Rewards are normalised: (r - mean) / sqrt(variance + 1e-8)."""

    network: NetworkConfig  # of the encoder; only ENCODER_SETTINGS are set
    params: PyTree  # of a RankingNetwork around a TorchbeastEncoder
    mean: float  # of the reward over all steps of the training split's pairs
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
        "network": {name: getattr(model.network, name) for name in ENCODER_SETTINGS},
        "quantiles": {f"{fraction:.2f}": float(value) for fraction, value in model.quantiles.items()},
        "notes": dict(notes),
    }
    arrays = {
        "params": jax.tree.map(np.asarray, model.params),
        "mean": np.float32(model.mean),
        "variance": np.float32(model.variance),
    }
    try:
        with _manager(folder) as manager:
            items = ocp.args.Composite(model=ocp.args.StandardSave(arrays), settings=ocp.args.JsonSave(settings))
            manager.save(epoch, args=items)
            manager.wait_until_finished()
    except Exception as error:  # orbax and tensorstore raise many types for a full disk
        raise UserError(f"{folder} can't be written ({_reason(error)}); choose another --train_dir") from None


def holds_reward_model(folder: str) -> bool:
    """Returns whether a complete model is saved there."""
    path = os.path.join(folder, "reward_model")
    return os.path.isdir(path) and any(name.isdecimal() for name in os.listdir(path))


def load_reward_model(folder: str) -> RewardModel:
    """Loads the model that `launch.train_reward` saved in <train_dir>/<experiment>.

    Raises:
        UserError: it is missing, damaged, or something else.
    """
    hint = "name the <train_dir>/<experiment> of a finished launch.train_reward"
    if not holds_reward_model(folder):
        raise UserError(f"--reward_dir {folder}: holds no reward model; {hint}")
    try:
        with _manager(folder, read_only=True) as manager:
            epoch = manager.latest_step()
            items = ocp.args.Composite(model=ocp.args.StandardRestore(), settings=ocp.args.JsonRestore())
            restored = manager.restore(epoch, args=items)
        return _read(restored["model"], restored["settings"])
    except Exception as error:  # orbax and tensorstore raise many types for damaged files
        raise UserError(f"--reward_dir {folder}: its reward model can't be read ({_reason(error)}); {hint}") from None


def _read(arrays: Any, settings: Any) -> RewardModel:
    if settings["kind"] != KIND:
        raise ValueError(f"it is a {settings['kind']!r}")
    network = {name: settings["network"][name] for name in ENCODER_SETTINGS}
    for name, value in network.items():
        if type(value) is not type(getattr(NetworkConfig(), name)):
            raise ValueError(f"{name} is {value!r}")
    quantiles = {float(fraction): float(value) for fraction, value in settings["quantiles"].items()}
    if set(quantiles) != set(QUANTILES):
        raise ValueError("its quantiles are not 0.05 ... 0.95")
    model = RewardModel(
        NetworkConfig(**network), arrays["params"], float(arrays["mean"]), float(arrays["variance"]), quantiles
    )
    numbers = [*jax.tree.leaves(model.params), model.mean, model.variance, *quantiles.values()]
    if not all(np.all(np.isfinite(number)) for number in numbers):
        raise ValueError("it holds NaN or inf")
    return model


def _reason(error: Exception) -> str:
    """Shortens an error's text; tensorstore appends pages to its own."""
    return " ".join(str(error).split("See full TensorStore details")[0].split())[:200] or type(error).__name__


def _manager(folder: str, read_only: bool = False) -> ocp.CheckpointManager:
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # orbax reports every step of every save
    return ocp.CheckpointManager(
        os.path.abspath(os.path.join(folder, "reward_model")),
        options=ocp.CheckpointManagerOptions(max_to_keep=1, cleanup_tmp_directories=True, read_only=read_only),
        item_handlers={"model": ocp.StandardCheckpointHandler(), "settings": ocp.JsonCheckpointHandler()},
    )
