"""JSON in files: regular ones, of bounded size."""

import os
from collections.abc import Mapping
from typing import Any

from oni_jax.host.files import read_regular
from oni_jax.settings.json_text import parsed, parsed_object

MAX_JSON_BYTES = 1 << 28


def read_json(path: str | os.PathLike, max_bytes: int = MAX_JSON_BYTES, follows_links: bool = False) -> Any:
    """Reads a file. Raises OSError: see `read_regular`; ValueError: see `parsed`."""
    return parsed(read_regular(path, max_bytes, follows_links))


def other_settings(path: str, settings: Mapping[str, object], may_lack: bool = False) -> list[str]:
    """Returns the names of settings that the JSON object at `path` has otherwise, or lacks, unless it `may_lack` some.

    Raises:
        OSError, ValueError: it can't be read, or is no object.
    """
    before = parsed_object(read_regular(path, MAX_JSON_BYTES))
    names = [name for name in settings if name in before or not may_lack]
    return sorted(name for name in names if before.get(name) != settings[name])
