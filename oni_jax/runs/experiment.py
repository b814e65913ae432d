"""The folder of a run: its lock, its settings, and the check of changed settings on resume."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from oni_jax.envs.registry import env_spec
from oni_jax.host.files import write_atomically
from oni_jax.host.lock_files import STALE_SECS, lock_file, lock_holder
from oni_jax.host.run_files import LOCK, SETTINGS
from oni_jax.runs.plan import with_chosen_env
from oni_jax.runs.run import Run
from oni_jax.settings.config import (
    Config,
    changed,
    check_resume,
    config_to_json,
    of_all_processes,
)
from oni_jax.settings.fields import UserError

LOOK_SECS = 0.1  # longer than `is_running` holds a lock


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
    with ExitStack() as stack:
        try:
            os.makedirs(folder, exist_ok=True)
            descriptor = os.open(_lock_path(folder), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UserError(f"--train_dir: {folder} can't be written ({error.strerror}); choose another") from None
        stack.callback(os.close, descriptor)
        _lock(descriptor, folder, stack)
        if differences := check_unchanged(config):
            print(f"settings changed since this run was last started: {'; '.join(differences)}", flush=True)
        yield folder


def is_running(folder: str) -> bool:
    """Returns whether a process trains the run in a folder."""
    try:
        descriptor = os.open(_lock_path(folder), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a disk without locks
        return bool(lock_holder(_lock_path(folder)))
    finally:
        os.close(descriptor)
    return False


def write_settings(config: Config, folder: str) -> None:
    """Writes config.json atomically. Raises UserError when it can't be written."""
    try:
        write_atomically(_settings_path(folder), config_to_json(of_all_processes(config)).encode())
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
        old, config = map(with_chosen_env, (Run(folder).config, config))
    except UserError as error:
        raise UserError(f"{error}; move it away, or choose another --experiment") from None
    check_resume(old, config)
    if env_spec(old.env).num_actions != env_spec(config.env).num_actions:
        raise UserError(
            f"--root_env {config.env.root_env} has other actions than this run's {old.env.root_env}; "
            "choose another --experiment"
        )
    return changed(*map(of_all_processes, (old, config)))


def _lock(descriptor: int, folder: str, stack: ExitStack) -> None:
    # The kernel drops it however the process ends. Of a file, as NFS hands on no lock of a folder to other hosts.
    for last in (False, True):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if last:
                raise UserError(f"{folder} is in use by another run; choose another --experiment") from None
            time.sleep(LOOK_SECS)
        except OSError as error:
            _lock_by_file(folder, stack)
            print(
                f"{folder}: its disk has no locks ({error.strerror}): a file {LOCK}.* keeps other runs out", flush=True
            )
            return


def _lock_by_file(folder: str, stack: ExitStack) -> None:
    try:
        stack.enter_context(lock_file(_lock_path(folder)))
    except BlockingIOError as error:
        hint = f"choose another --experiment, or wait {STALE_SECS:.0f} s where its host is gone"
        raise UserError(f"{folder} is in use by another run ({error.strerror}); {hint}") from None
    except OSError as error:
        raise UserError(f"--train_dir: {folder} can't be locked ({error.strerror}); choose another disk") from None


def _lock_path(folder: str) -> str:
    return os.path.join(folder, LOCK)


def _settings_path(folder: str) -> str:
    return os.path.join(folder, SETTINGS)
