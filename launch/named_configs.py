"""Named settings for `--config`: files in launch/configs, in the format of a run's config.json."""

import json
import pathlib

from oni_jax.config import Config, UserError, check_values, config_from_json, settings

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
        raise UserError(f"--config {name}: unknown; name a .json file, or one of {', '.join(names())}")
    path = pathlib.Path(name) if name.endswith(".json") else FOLDER / f"{name}.json"
    try:
        text = path.read_bytes()
        config = config_from_json(text)
        check_values(config)
    except OSError as error:
        raise UserError(f"--config {path}: can't be read ({error.strerror}); name another file") from None
    except UserError as error:
        raise UserError(f"--config {name}: {error}") from None
    known = {field.name for field, _ in settings(config)}
    sections = json.loads(text)
    others = [section for own in sections.pop("others", ()) for section in own.values()]
    unknown = {key for section in (*sections.values(), *others) for key in section} - known
    if unknown:
        raise UserError(f"--config {name}: there is no setting {', '.join(sorted(unknown))}; correct the file")
    return config
