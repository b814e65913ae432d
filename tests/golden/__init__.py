"""Recorded values of published systems, and comparisons with them."""

import json
import os
import pathlib

REPLACED = "GOLDEN_FILES"  # environment variable: JSON of names, and the paths that take their place
DATA = pathlib.Path(__file__).with_name("data")


def data_file(name: str) -> pathlib.Path:
    return pathlib.Path(json.loads(os.environ.get(REPLACED, "{}")).get(name, DATA / name))
