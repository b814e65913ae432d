"""Fields of settings: help text, range and choices of each, written once; and programs as sections of them.

The launchers make a flag of each field; the rest of the program receives the frozen section it needs.
Names of flags and defaults are those of the published systems where they have them.
"""

import contextlib
import dataclasses
import difflib
import numbers
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

Program = TypeVar("Program")  # a frozen dataclass of sections, such as Config


def printable(text: bytes | str, keep: str = "") -> str:
    """Escapes control characters, also those for the direction of writing, in untrusted text, except for `keep`.

    Bytes are read as a caption.
    """
    text = caption_text(text) if isinstance(text, bytes) else text
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def caption_text(caption: bytes) -> str:
    """Reads a caption or event: as latin-1, or as UTF-8 where that gives a character outside latin-1."""
    if not caption.isascii():
        with contextlib.suppress(UnicodeDecodeError):
            if max(text := caption.decode()) > "\xff":
                return text
    return caption.decode("latin-1")


def caption_bytes(text: str) -> bytes:
    """Inverts `caption_text`. Half a character, a lone surrogate, is escaped."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def cut_caption(caption: bytes, size: int) -> bytes:
    """Returns the first bytes of a caption, without a part of a character."""
    if len(caption) > size and max(caption_text(caption)) > "\xff":
        return caption[:size].decode(errors="ignore").encode()
    return caption[:size]


def counted(number: int, noun: str, plural: str = "") -> str:
    """Returns a number of things in words: `1 step`, `1,234 steps`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


class UserError(Exception):
    """Bad input. The text is one line: what is wrong, and what to do. Launchers exit with code 2.

    Line ends become spaces. What else is not printable is escaped, such as a terminal's codes in a file's name.
    """

    def __init__(self, text: str):
        super().__init__(printable(text.replace("\n", " ")))


def nearest(word: str, known: Iterable[str], written: str = "", most: int = 1) -> str:
    """Returns "; did you mean WRITTEN...?" with the known word that is most like this one; empty without any.

    Initials count too: lr is learning_rate.

    Args:
        word: unknown.
        known: words.
        written: before the word that is found.
        most: words to name; of several, those that hold this one count too.
    """
    lower, by_lower = word.lower(), {each.lower(): each for each in known}
    near = difflib.get_close_matches(lower, by_lower, most)
    if not near and most > 1 and len(word) > 2:
        near = [each for each in by_lower if lower in each][:most]
    initials = {"".join(part[:1] for part in re.split("[_-]", each)): each for each in reversed(by_lower)}
    if not near and len(word) > 1 and lower in initials:
        near = [initials[lower]]
    return f"; did you mean {' or '.join(written + by_lower[each] for each in near)}?" if near else ""


def nearest_first(word: str, known: Iterable[str], rest: str, written: str = "", most: int = 1) -> str:
    """Returns "; REST", which may be a list of what is known; before it the nearest words, if there are any."""
    near = nearest(word, known, written, most)
    return f"{near} {rest[:1].upper()}{rest[1:]}" if near else f"; {rest}"


PLUGINS = "plugins"  # key of a field's metadata, see `plugin_sections`
COUNT = "[1, inf)"
WIDTH, DEPTH = "[1, 65536]", "[1, 1024]"  # bounds of a network: XLA aborts the process at sizes that overflow


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
    flag: str = "",
    joined: str = "",
    several: bool = False,
) -> Any:
    """Makes a dataclass field that becomes a flag, see `Setting`.

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
        flag: its name; empty: the field's.
        joined: joins the values of a str that may hold several; empty: as `repeated`.
        several: several of the choices may be given, joined by commas.
    """
    metadata = {"help": text, "aliases": tuple(aliases), "choices": tuple(choices), "within": within, "fixed": fixed}
    metadata |= {"secret": secret, "positional": positional, "repeated": repeated, "flag": flag}
    metadata |= {"joined": joined or repeated or ("," if several else ""), "several": several}
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


def plugin_sections(owner: str) -> Any:
    """Makes a dataclass field for the sections that plugins bring for the section of this class, see `bring`."""
    return dataclasses.field(default=(), metadata={PLUGINS: owner})


@dataclasses.dataclass(frozen=True)
class Unread:
    """A section of a run whose plugin is not loaded, as config.json has it."""

    name: str
    values: tuple[tuple[str, Any], ...]  # (flag, value)


def section_name(kind: type) -> str:
    """Returns the name of a section that is in no other: that of a PlayConfig is `play`."""
    return re.sub("(Config|Settings)$", "", kind.__name__).lower()


def sections(config: Any, name: str = "") -> dict[str, Any]:
    """Returns the sections of a program's settings by name, nested ones and those of plugins included.

    A program may be a section itself, without a `name`, see `section_name`.
    """
    name = name or (config.name if isinstance(config, Unread) else section_name(type(config)))
    found = {name: config} if any(section_settings(config)) else {}
    for field in dataclasses.fields(config):
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part):
            found |= sections(part, field.name)
        for brought in part if PLUGINS in field.metadata else ():
            found |= sections(brought)
    return found


@dataclasses.dataclass(frozen=True)
class Setting:
    """A field of a section as users know it."""

    name: str  # name of the flag; code knows the field by where it belongs, such as reward.rnd.output_dim
    type: Any  # int, float, bool or str
    default: Any
    metadata: Mapping[str, Any]  # arguments of `setting`


def section_settings(section: Any) -> Iterator[tuple[Setting, Any]]:
    for name, value in section.values if isinstance(section, Unread) else ():
        yield Setting(name, type(value), None, setting(None, "", within="[-inf, inf]").metadata), value
    for field in dataclasses.fields(section):
        if "help" in field.metadata:  # `setting` made it
            kind = field.type if isinstance(field.type, type) else type(field.default)  # a module may annotate by texts
            yield Setting(_flag(field), kind, field.default, field.metadata), getattr(section, field.name)


def _flag(field: dataclasses.Field) -> str:
    return field.metadata.get("flag") or field.name


def settings(config: Any) -> Iterator[tuple[Setting, Any]]:
    """Yields every setting of all sections of a program, with its value. Names are unique over the sections."""
    for section in sections(config).values():
        yield from section_settings(section)


def with_values(config: Program, values: Mapping[str, Any]) -> Program:
    """Returns `config` with some settings replaced, by the names of their flags; unknown names are ignored."""
    parts = {}
    for field in dataclasses.fields(cast(Any, config)):
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part):
            parts[field.name] = with_values(part, values)
        elif PLUGINS in field.metadata:
            parts[field.name] = tuple(x if isinstance(x, Unread) else with_values(x, values) for x in part)
        elif _flag(field) in values:
            parts[field.name] = values[_flag(field)]
    return dataclasses.replace(cast(Any, config), **parts)


def given(config: Any) -> dict[str, Any]:
    """Returns the settings of a section, nested ones included, that are not their defaults, by name."""
    return {field.name: value for field, value in settings(config) if value != field.default}


def value_from_python(field: Setting, value: Any) -> Any:
    """Returns a setting's value of what a Python program gives: also NumPy's numbers, paths, and lists where it may
    hold several.

    Raises:
        UserError: it is of another type.
    """
    joined, shown = field.metadata["joined"], "the value" if field.metadata["secret"] else repr(value)
    if isinstance(value, list | tuple):
        if not joined:
            raise UserError(f"{field.name} is {shown}: takes one value, no list")
        return joined.join(value_from_python(field, part) for part in value)
    if field.type is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif field.type is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        value = int(value)
    elif field.type is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not field.type:
        raise UserError(f"{field.name} is {shown}: must be of type {getattr(field.type, '__name__', field.type)}")
    return value


def range_in_words(interval: str, is_whole: bool) -> str:
    """Returns an interval such as "[0, 1)" in words: "from 0 to below 1"; of whole numbers, to the last one."""
    (low, high), with_low, with_high = interval[1:-1].split(", "), interval[0] == "[", interval[-1] == "]"
    if is_whole and high != "inf" and not with_high:
        high, with_high = str(int(high) - 1), True
    top = f"{int(high):,}" if high.lstrip("-").isdecimal() else high
    if high == "inf":
        return f"{low} or more" if with_low else f"above {low}"
    if with_low:
        return f"from {low} to {top}" if with_high else f"from {low} to below {top}"
    return f"above {low}, and {top} at most" if with_high else f"above {low} and below {top}"


def is_within(value: float, interval: str) -> bool:
    """Returns whether a number is in an interval such as "[0, 1)". NaN is in none."""
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    above = low <= value if interval[0] == "[" else low < value
    below = value <= high if interval[-1] == "]" else value < high
    return above and below
