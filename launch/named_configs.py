"""Named settings: files beside this one, in the form of a run's config.json, that `--config` names."""

import json
import pathlib

from oni_jax.config import Config, UserError, check_values, config_from_json, settings

FOLDER = pathlib.Path(__file__).with_name("configs")


def names() -> list[str]:
    """Those that come with the program."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> Config:
    """The settings of this name, or of a file whose name ends in .json. What it lacks has its default.

    Raises:
        UserError: there is none, or it does not hold settings, each within its range.
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
