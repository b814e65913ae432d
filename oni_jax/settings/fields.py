"""Fields of settings: help text, range and choices of each, written once; and programs as sections of them.

The launchers make a flag of each field; the rest of the program receives the frozen section it needs.
Names and defaults are those of the published systems where they have them.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

Program = TypeVar("Program")  # a frozen dataclass of sections, such as Config


def printable(text: bytes | str, keep: str = "") -> str:
    """Escapes control characters, also those for the direction of writing, in untrusted text, except for `keep`.

    Bytes are read as latin-1.
    """
    text = text.decode("latin-1") if isinstance(text, bytes) else text
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


class UserError(Exception):
    """Bad input. The text is one line: what is wrong, and what to do. Launchers exit with code 2.

    Line ends become spaces. What else is not printable is escaped, such as a terminal's codes in a file's name.
    """

    def __init__(self, text: str):
        super().__init__(printable(text.replace("\n", " ")))


def nearest(word: str, known: Iterable[str], written: str = "") -> str:
    """Returns "; did you mean WRITTEN...?" with the known word that is most like this one; empty without any."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, 1)
    return f"; did you mean {written}{by_lower[near[0]]}?" if near else ""


COUNT = "[1, inf)"
WIDTH, DEPTH = "[1, 65536]", "[1, 1024]"  # of a network: XLA aborts the process at sizes that overflow


POSITIVE = "(0, inf)"


def setting(
    default: Any,
    text: str,
    *,
    aliases: Sequence[str] = (),
    choices: Sequence[str] = (),
    within: str = "[0, inf)",
    fixed: bool = False,
    secret: bool = False,
    positional: bool = False,
    repeated: str = "",
    several: bool = False,
) -> Any:
    """Makes a dataclass field that becomes a flag.

    Args:
        default: also gives the type: int, float, bool or str.
        text: help, one sentence.
        aliases: other names of the flag.
        choices: values allowed for a str.
        within: interval allowed for a number.
        fixed: can't change when a run is resumed (its parameters would not fit, or were learnt for another value).
        secret: never printed or written.
        positional: a str of the command line's positional arguments, joined by commas.
        repeated: joins the values of a str whose flag may be given several times; empty: the last value holds.
        several: several of the choices may be given, with commas between them.
    """
    metadata = {"help": text, "aliases": tuple(aliases), "choices": tuple(choices), "within": within, "fixed": fixed}
    metadata |= {"secret": secret, "positional": positional, "repeated": repeated, "several": several}
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


def sections(config: Any, name: str = "") -> dict[str, Any]:
    """Returns the sections of a program's settings by name, nested ones included.

    A program may be a section itself, without a `name`: a PlayConfig is `play`.
    """
    name = name or type(config).__name__.removesuffix("Config").lower()
    found = {name: config} if any(own_settings(config)) else {}
    for field in dataclasses.fields(config):
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part):
            found |= sections(part, field.name)
    return found


def own_settings(section: Any) -> Iterator[tuple[dataclasses.Field, Any]]:
    """Yields the fields of one section, with their values."""
    for field in dataclasses.fields(section):
        if field.metadata:  # by `setting`
            yield field, getattr(section, field.name)


def settings(config: Any) -> Iterator[tuple[dataclasses.Field, Any]]:
    """Yields every field of all sections of a program, with its value. Names are unique over the sections."""
    for section in sections(config).values():
        yield from own_settings(section)


def with_values(config: Program, values: Mapping[str, Any]) -> Program:
    """Returns `config` with some settings replaced, by name; unknown names are ignored."""
    parts = {}
    for field in dataclasses.fields(cast(Any, config)):
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part):
            parts[field.name] = with_values(part, values)
        elif field.name in values:
            parts[field.name] = values[field.name]
    return dataclasses.replace(cast(Any, config), **parts)


def is_within(value: float, interval: str) -> bool:
    """Returns whether a number is in an interval such as "[0, 1)". NaN is in none."""
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    above = low <= value if interval[0] == "[" else low < value
    below = value <= high if interval[-1] == "]" else value < high
    return above and below
