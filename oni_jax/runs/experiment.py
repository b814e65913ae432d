"""The folder of a run: its lock, its settings, and the check of changed settings on resume."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from oni_jax.envs.registry import env_spec
from oni_jax.host.files import write_atomically
from oni_jax.host.held_folders import held_folder, is_held
from oni_jax.host.reporting import report
from oni_jax.host.run_files import SETTINGS, kept_run_id
from oni_jax.host.runtime import StopRequest
from oni_jax.networks.registry import AUTO
from oni_jax.runs.plan import with_chosen_encoder, with_chosen_env
from oni_jax.runs.run import Run
from oni_jax.settings.config import (
    Config,
    changed,
    check_resume,
    config_to_json,
    of_all_processes,
)
from oni_jax.settings.fields import UserError, with_values


def experiment_folder(config: Config) -> str:
    """Returns the path of <train_dir>/<experiment>."""
    return os.path.abspath(os.path.join(config.run.train_dir, config.run.experiment))


@contextmanager
def open_experiment(config: Config, stop: StopRequest | None = None) -> Iterator[str]:
    """Makes <train_dir>/<experiment>, keeps other programs out, and yields its path. `stop`: see `held_folder`.

    Raises:
        UserError: it can't be written, another run has locked it, or a fixed setting has changed.
        FolderGoneError: it was renamed or removed meanwhile.
    """
    with held_folder(experiment_folder(config), "experiment", stop, above="train_dir") as held:
        if differences := check_unchanged(config):
            report(f"settings changed since this run was last started: {'; '.join(differences)}")
        yield held.path


def is_running(folder: str) -> bool:
    """Returns whether a process trains the run in a folder."""
    return is_held(folder)


def write_settings(config: Config, folder: str, run_id: str = "") -> None:
    """Writes config.json atomically. Raises UserError when it can't be written.

    run_id: id of the run; empty: that which its folder holds, see `kept_run_id`.
    """
    text = config_to_json(of_all_processes(config), with_sum=True, run_id=run_id or kept_run_id(folder))
    try:
        write_atomically(_settings_path(folder), text.encode())
    except OSError as error:
        path = _settings_path(folder)
        raise UserError(f"--train_dir: {path} can't be written ({error.strerror}); choose another") from None


def check_unchanged(config: Config) -> list[str]:
    """Checks the fixed settings against those of the run in its folder, if there is one. Returns all differences.

    Raises:
        UserError: a fixed setting has changed, or those of the run can't be read.
    """
    folder = experiment_folder(config)
    if not os.path.exists(_settings_path(folder)):
        return []
    try:
        # A run from before there was a choice has none, and one that is built by hand may have none yet
        both = map(with_chosen_env, (Run(folder).config, with_kept_encoder(config)))
        old, config = map(with_chosen_encoder, both)
    except UserError as error:
        raise UserError(f"{error}; move it away, or choose another --experiment") from None
    check_resume(old, config)
    if env_spec(old.env).num_actions != env_spec(config.env).num_actions:
        raise UserError(
            f"--root_env {config.env.root_env} has other actions than this run's {old.env.root_env}; "
            "choose another --experiment"
        )
    return changed(*map(of_all_processes, (old, config)))


def with_kept_encoder(config: Config) -> Config:
    """Returns the settings with the encoder and the image scale of the run in their folder, where they leave them open.

    Raises:
        UserError: the run's settings can't be read.
    """
    folder = experiment_folder(config)
    open_ones = [name for name in ("encoder_custom", "image_scale") if getattr(config.network, name) == AUTO]
    if not open_ones or not os.path.exists(_settings_path(folder)):
        return config
    kept = Run(folder).config.network
    return with_values(config, {name: getattr(kept, name) for name in open_ones})


def _settings_path(folder: str) -> str:
    return os.path.join(folder, SETTINGS)
