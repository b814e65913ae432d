"""Trained models on disk: orbax writes arrays and JSON, nothing that could execute."""

import os
from collections.abc import Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp

from oni_jax.host.orbax_failures import quieten
from oni_jax.host.run_files import TRAINED
from oni_jax.ops.checksums import check_arrays, check_finite, opened, sealed
from oni_jax.settings.fields import UserError
from oni_jax.types import PyTree


def save_trained(folder: str, epoch: int, arrays: PyTree, settings: Mapping[str, Any]) -> None:
    """Saves a model's arrays and settings, atomically, in place of those of earlier epochs.

    Raises:
        UserError: it can't be written.
    """
    try:
        with _manager(folder) as manager:
            about = ocp.args.JsonSave(sealed(settings, {"model": arrays}))
            items = ocp.args.Composite(model=ocp.args.StandardSave(arrays), settings=about)
            manager.save(epoch, args=items)
            manager.wait_until_finished()
    except Exception as error:  # orbax and tensorstore raise many types for a full disk
        raise UserError(f"{folder} can't be written ({reason(error)}); choose another folder") from None


def holds_trained(folder: str) -> bool:
    """Returns whether a complete model is saved there."""
    path = os.path.join(folder, TRAINED)
    return os.path.isdir(path) and any(name.isdecimal() for name in os.listdir(path))


def load_trained(folder: str) -> tuple[Any, Any]:
    """Returns the arrays and the settings of the newest epoch.

    Raises whatever orbax does for damaged files, and ValueError: an array is damaged, or holds NaN or inf.
    """
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])  # a model may be saved on other devices
    model = ocp.args.StandardRestore(fallback_sharding=here)
    with _manager(folder, read_only=True) as manager:
        items = ocp.args.Composite(model=model, settings=ocp.args.JsonRestore())
        restored = manager.restore(manager.latest_step(), args=items)
    settings, sums = opened(restored["settings"])
    check_arrays({"model": restored["model"]}, sums)
    check_finite(restored["model"])
    return restored["model"], settings


def reason(error: Exception) -> str:
    """Shortens an error's text; tensorstore appends pages to it."""
    return " ".join(str(error).split("See full TensorStore details")[0].split())[:200] or type(error).__name__


def _manager(folder: str, read_only: bool = False) -> ocp.CheckpointManager:
    quieten()
    return ocp.CheckpointManager(
        os.path.abspath(os.path.join(folder, TRAINED)),
        options=ocp.CheckpointManagerOptions(max_to_keep=1, cleanup_tmp_directories=True, read_only=read_only),
        item_handlers={"model": ocp.StandardCheckpointHandler(), "settings": ocp.JsonCheckpointHandler()},
    )
