"""The folder of a run: its lock, its settings, and the check of changed settings on resume."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from oni_jax.config import (
    Config,
    UserError,
    changed,
    check_resume,
    check_values,
    config_from_json,
    config_to_json,
    of_all_processes,
)
from oni_jax.envs.registry import env_spec, with_chosen_env
from oni_jax.files import write_atomically


def experiment_folder(config: Config) -> str:
    """Returns the path of <train_dir>/<experiment>."""
    return os.path.abspath(os.path.join(config.run.train_dir, config.run.experiment))


@contextmanager
def open_experiment(config: Config) -> Iterator[str]:
    """Makes <train_dir>/<experiment>, locks it for this process, and yields its path.

    Raises:
        UserError: it can't be written, another run has locked it, or a fixed setting has changed.
    """
    folder = experiment_folder(config)
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"--train_dir: {folder} can't be made ({error.strerror}); choose another") from None
    try:
        _lock(descriptor, folder)
        _check_settings(config, folder)
        yield folder
    finally:
        os.close(descriptor)


def write_settings(config: Config, folder: str) -> None:
    """Writes config.json atomically. Raises UserError when it can't be written."""
    try:
        write_atomically(_settings_path(folder), config_to_json(of_all_processes(config)).encode())
    except OSError as error:
        path = _settings_path(folder)
        raise UserError(f"--train_dir: {path} can't be written ({error.strerror}); choose another") from None


def read_settings(folder: str) -> Config:
    """Reads the settings of the run in a folder. Raises UserError when it holds none."""
    path = _settings_path(folder)
    try:
        with open(path, "rb") as file:
            config = config_from_json(file.read())
        check_values(config)  # the file may be a stranger's
        return config
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}); name a training run") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _lock(descriptor: int, folder: str) -> None:
    # A lock on the folder itself: the kernel drops it however the process ends, and no file stays behind.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{folder} is in use by another run; choose another --experiment") from None
    except OSError as error:
        raise UserError(f"--train_dir: {folder} can't be locked ({error.strerror}); choose another disk") from None


def _settings_path(folder: str) -> str:
    return os.path.join(folder, "config.json")


def _check_settings(config: Config, folder: str) -> None:
    if not os.access(folder, os.W_OK):
        raise UserError(f"--train_dir: {folder} can't be written; choose another")
    if not os.path.exists(_settings_path(folder)):
        return
    try:
        # A run from before there was a choice has none, and one that is built by hand may have none yet
        old, config = map(with_chosen_env, (read_settings(folder), config))
    except UserError as error:
        raise UserError(f"{error}; move it away, or choose another --experiment") from None
    check_resume(old, config)
    if env_spec(old.env).num_actions != env_spec(config.env).num_actions:
        raise UserError(
            f"--root_env {config.env.root_env} has other actions than this run's {old.env.root_env}; "
            "choose another --experiment"
        )
    differences = changed(*map(of_all_processes, (old, config)))
    if differences:
        print(f"settings changed since this run was last started: {'; '.join(differences)}", flush=True)
