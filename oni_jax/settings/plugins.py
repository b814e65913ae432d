"""Sections of settings that plugins bring. They lie with what reads them: the environment, the network or a reward."""

import dataclasses
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, TypeVar, cast

from oni_jax.settings.fields import (
    PLUGINS,
    Program,
    Unread,
    UserError,
    is_within,
    section_name,
    section_settings,
    sections,
    settings,
    with_values,
)

Section = TypeVar("Section")
# Flags of launch.train that are no settings, and those of absl.
RESERVED = ("config", "resume", "algo", "env", "device", "h", "help", "helpfull", "helpshort", "flagfile", "undefok")
BROUGHT: dict[str, list[type]] = {}  # name of the class of a section -> sections that plugins bring for it


def bring(owner: Any, kinds: Iterable[type]) -> None:
    """Registers the settings of something that a plugin registers, such as a reward's.

    Args:
        owner: the section that they are to lie in, such as RewardConfig().
        kinds: frozen dataclasses of settings; those that the owner has already are left out.

    Raises:
        UserError: one of them is no such dataclass.
    """
    there = {type(part) for part in sections(owner).values()}
    known = BROUGHT.setdefault(type(owner).__name__, [])
    for kind in kinds:
        if kind not in there and kind not in known:
            _check_section(kind)
            known.append(kind)


def with_brought(config: Program, only: Container[str] | None = None) -> Program:
    """Returns settings with the sections that plugins bring, which have the values that a run kept, or their defaults.

    only: names of the sections that are added; None: all.

    Raises:
        UserError: the name of a flag is taken, or a value that a run kept is of another type.
    """
    _check_names(config)
    added = _with_brought(config, only)
    if others := getattr(config, "others", ()):  # the further rewards of a training
        added = dataclasses.replace(
            cast(Any, added), others=tuple(tuple(_with_brought(part, only) for part in other) for other in others)
        )
    return added


def section_of(config: Any, kind: type[Section]) -> Section:
    """Returns the section of this class in settings, nested ones included; its defaults where there is none."""
    return next((part for part in sections(config).values() if isinstance(part, kind)), kind())


def _with_brought(config: Any, only: Container[str] | None) -> Any:
    def parts(owner: str, there: tuple[Any, ...]) -> tuple[Any, ...]:
        held = {type(part): part for part in there}
        kinds = [x for x in BROUGHT.get(owner, ()) if x in held or only is None or section_name(x) in only]
        return tuple(held.get(kind) or kind() for kind in kinds)

    unread = [part for part in sections(config).values() if isinstance(part, Unread)]
    kept = {name: value for part in unread for name, value in part.values}
    added = with_values(_replaced(config, parts), kept)
    for field, value in settings(added) if kept else ():
        if type(value) is not field.type and (field.type, type(value)) != (float, int):
            raise UserError(f"--{field.name} is {value!r}: must be of type {field.type.__name__}")
    return added


def _replaced(config: Any, parts: Callable[[str, tuple[Any, ...]], tuple[Any, ...]]) -> Any:
    """Returns settings with other sections of plugins: `parts` of the name of an owner's class and its sections."""
    values = {}
    for field in dataclasses.fields(config):
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part):
            values[field.name] = _replaced(part, parts)
        elif owner := field.metadata.get(PLUGINS):
            values[field.name] = parts(owner, part)
    return dataclasses.replace(config, **values)


def _check_names(config: Any) -> None:
    """Raises UserError: the name of a brought section, or of one of its flags, is taken in a program."""
    bare, kinds = _replaced(config, lambda owner, there: ()), dict[type, None]()
    _replaced(config, lambda owner, there: kinds.update(dict.fromkeys(BROUGHT.get(owner, ()))) or ())
    names, topics = {*RESERVED}, {*sections(bare)}
    for field, _ in settings(bare):
        names |= {field.name, *field.metadata["aliases"]}
    for kind in kinds:
        where = f"{kind.__module__}.{kind.__name__}"
        if (topic := section_name(kind)) in topics:
            raise UserError(f"{where}: settings of the name {topic} are there already; rename the class")
        topics.add(topic)
        for field, _ in section_settings(kind()):
            for name in (field.name, *field.metadata["aliases"]):
                if name in names:
                    raise UserError(f"{where}: --{name} is a flag already; give the setting another name")
                names.add(name)


def _check_section(kind: Any) -> None:
    where = f"settings {getattr(kind, '__name__', kind)}"
    parameters: Any = getattr(kind, "__dataclass_params__", None)
    if not isinstance(kind, type) or not parameters or not parameters.frozen:
        raise UserError(f"{where}: must be a frozen dataclass of `setting(...)` fields")
    for field in dataclasses.fields(cast(Any, kind)):
        if "help" not in field.metadata:
            raise UserError(f"{where}: {field.name} must be a `setting(...)`")
        if type(field.default) not in (int, float, bool, str) or field.type not in (
            type(field.default),
            type(field.default).__name__,
        ):
            raise UserError(f"{where}: {field.name} must be an int, float, bool or str, as its default")
    for field, default in section_settings(kind()):
        limits: Mapping[str, Any] = field.metadata
        if not all(re.fullmatch("[a-z][a-z0-9_]*", name) for name in (field.name, *limits["aliases"])):
            raise UserError(f"{where}: --{field.name} is no name of a flag: write small letters, digits and _")
        is_number = field.type in (int, float)
        values = default.split(",") if limits["several"] else [default]
        if (limits["choices"] and not {*values} <= {*limits["choices"]}) or (
            is_number and not is_within(default, limits["within"])
        ):
            raise UserError(f"{where}: the default {default!r} of {field.name} is outside its range or choices")
