"""Recorded values of published systems, and comparisons with them."""

import pathlib

DATA = pathlib.Path(__file__).with_name("data")


def data_file(name: str) -> pathlib.Path:
    """Returns the path of a recording."""
    return DATA / name
