"""Settings that flags override: files in launch/configs for `--config`, and those of a run for `--resume`."""

import os
import pathlib
import shlex
from collections.abc import Mapping

from oni_jax.host.files import read_regular
from oni_jax.host.run_files import SETTINGS, saved_steps
from oni_jax.runs.experiment import experiment_folder
from oni_jax.runs.run import MAX_BYTES, Run, nearest_run
from oni_jax.settings.config import Config, check_values, config_from_json
from oni_jax.settings.fields import UserError, nearest_first, settings, with_values
from oni_jax.settings.json_text import RUN_ID, parsed, unsealed
from oni_jax.settings.run import RunConfig

FOLDER = pathlib.Path(__file__).with_name("configs")


def names() -> list[str]:
    """Returns the names of the settings in launch/configs."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> Config:
    """Loads the settings of this name, or of a .json file. Settings that it lacks have their defaults.

    Raises:
        UserError: there is no such name or file, or a setting is unknown or outside its range.
    """
    if not name.endswith(".json") and name not in names():
        hint = nearest_first(name, names(), "name a .json file; --help configs lists all", most=3)
        raise UserError(f"--config {name}: unknown{hint}")
    path = pathlib.Path(name) if name.endswith(".json") else FOLDER / f"{name}.json"
    try:
        text = read_regular(path, MAX_BYTES, follows_links=True)
        config = config_from_json(text)
        check_values(config)
    except OSError as error:
        raise UserError(f"--config {path}: can't be read ({error.strerror}); name another file") from None
    except UserError as error:
        raise UserError(f"--config {name}: {error}") from None
    known = {field.name for field, _ in settings(config)}
    sections = unsealed(parsed(text))
    others = [section for term in sections.pop("others", ()) for section in term.values()]
    unknown = {key for section in (*sections.values(), *others) for key in section} - known - {RUN_ID}
    if unknown:
        raise UserError(f"--config {name}: there is no setting {', '.join(sorted(unknown))}; correct the file")
    return config


def chosen(given: Mapping[str, str], defaults: Config) -> Config:
    """Returns the settings that the flag `config` or `resume` of a command line names; `defaults` without one.

    Raises:
        UserError: they can't be read, or a flag beside `--resume` names another run.
    """
    if folder := given.get("resume"):
        for name in ("config", "train_dir", "experiment"):
            if name in given:
                raise UserError(f"--{name}: --resume {folder} names a run already; leave one of them out")
        return resumed(folder)
    return load(given["config"]) if given.get("config") else defaults


def resumed(folder: str) -> Config:
    """Returns the settings of the run in a folder, which may have been moved there.

    Raises:
        UserError: it holds no run, or no checkpoint.
    """
    if not os.path.isdir(folder):
        inside = os.path.normpath(os.path.join(RunConfig().train_dir, folder))
        hint = f"name the run's folder, {inside}" if os.path.isdir(inside) else "python -m launch.ls lists runs"
        raise UserError(f"--resume {folder}: there is no such folder{nearest_run(folder, hint)}")
    try:
        config = Run(folder).config
    except UserError as error:
        raise UserError(f"--resume {folder}: {error}") from None
    path = os.path.abspath(folder)
    if not saved_steps(path):
        again = shlex.quote(os.path.join(folder, SETTINGS))
        raise UserError(f"--resume {folder}: holds no checkpoint to go on from; --config {again} begins again")
    if experiment_folder(config) == path:
        return config
    # It was moved, or is named from another folder. The name of a sweep's run has two parts.
    parent, name = os.path.split(path)
    if path.endswith(f"{os.sep}{config.run.experiment}"):
        name = config.run.experiment
        parent = path.removesuffix(f"{os.sep}{name}")
    return with_values(config, {"train_dir": parent or os.sep, "experiment": name})
