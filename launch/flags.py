"""The command line: a flag for each of a program's settings, and the checks before a run."""

import dataclasses
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from absl import flags

from launch import named_configs, refused_flags
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import Program, UserError, nearest, own_settings, settings, with_values
from oni_jax.settings.rewards import RewardConfig
from oni_jax.training.checks import check_run

TRAINING = Config()
check = check_run
_TRUTHS = (*refused_flags.ON, *refused_flags.OFF)
# One value for all rewards of a run: goals and JSON have commas.
OF_ALL = {"extrinsic_reward_coeff", "label_store", "goal", "llm_extra_body", "llm_extra_headers"}


def parse(argv: Sequence[str], defaults: Program = TRAINING) -> Program:
    """Parses a command line (without the program's name) into settings, without checking their values.

    `defaults` determines which settings the program has.

    `--flag-name` is `--flag_name`; booleans take `--x`, `--nox`, `--x=true` and `--x True`. `--device cpu` keeps JAX,
    which must not be imported yet, off accelerators. `--config` replaces the defaults by named settings, `--resume` by
    those of a run.

    Raises:
        UserError: an unknown or refused flag, a value of the wrong type, unknown named settings, or no run to resume.
    """
    values = define_flags(defaults)
    words = normalise(argv, values, aliases(defaults), positional(defaults), repeated(defaults))
    if isinstance(defaults, Config):
        defaults = cast(Program, dataclasses.replace(defaults, **vars(named_configs.chosen(words, defaults))))
    if not isinstance(defaults, Config):
        return _parse_words(words, defaults)
    first, *others = [_parse_words(each, term) for each, term in _of_each_reward(words, defaults)]
    added = tuple((other.reward, other.annotation) for other in others)
    return cast(Program, dataclasses.replace(first, others=added))


def _of_each_reward(words: Sequence[str], defaults: Config) -> Iterator[tuple[list[str], Config]]:
    """Yields, for each of the rewards alone, its command line and defaults.

    Raises:
        UserError: the number of values in a list is not that of the rewards.
    """
    terms = defaults.terms()
    words = list({word.partition("=")[0]: word for word in words}.values())  # the last value of a flag holds
    given = [word.removeprefix("--llm_reward_type=") for word in words if word.startswith("--llm_reward_type=")]
    count = len(given[-1].split(",")) if given else len(terms)
    lists = {field.name for part in (RewardConfig(), AnnotationConfig()) for field, _ in own_settings(part)} - OF_ALL

    secrets = {field.name for field, _ in settings(defaults) if field.metadata["secret"]}

    def value(word: str, index: int) -> str:
        name, _, text = word.removeprefix("--").partition("=")
        values = text.split(",") if name in lists else [text]
        if len(values) not in (1, count):
            shown = f"--{name}" if name in secrets else f"--{name} {text}"
            joined = "; + joins several servers of one reward" if name == "llm_server_addr" else ""
            raise UserError(f"{shown}: {len(values)} values for {count} rewards; give one, or one for each{joined}")
        return f"--{name}={values[index % len(values)]}"

    for index in range(count):
        yield (list(words) if count == 1 else [value(word, index) for word in words]), terms[index % len(terms)]


def _parse_words(words: Sequence[str], defaults: Program) -> Program:
    values = define_flags(defaults)
    try:
        values(["", *words])
    except flags.Error as error:
        raise UserError(" ".join(str(error).split())) from None
    if values["device"].value == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    return config_from_flags(values, defaults)


def aliases(defaults: Any) -> dict[str, str]:
    """Returns alias -> name of the flag."""
    return {alias: field.name for field, _ in settings(defaults) for alias in field.metadata["aliases"]}


def positional(defaults: Any) -> str:
    """Returns the name of the setting that takes positional arguments; empty: none does."""
    return "".join(field.name for field, _ in settings(defaults) if field.metadata["positional"])


def repeated(defaults: Any) -> dict[str, str]:
    """Returns the flags that may be given several times, with the text that joins their values."""
    return {field.name: field.metadata["repeated"] for field, _ in settings(defaults) if field.metadata["repeated"]}


def define_flags(defaults: Any = TRAINING) -> flags.FlagValues:
    """Defines a flag for each setting, `--config`, `--resume`, and three of the published system's without effect."""
    values = flags.FlagValues()
    define: dict[Any, Callable] = {
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        bool: flags.DEFINE_boolean,
        str: flags.DEFINE_string,
    }
    for field, default in settings(defaults):
        text, choices = field.metadata["help"], field.metadata["choices"]
        if choices and not field.metadata["several"]:
            flags.DEFINE_enum(field.name, default, choices, text, flag_values=values)
        else:
            define[field.type](field.name, default, text, flag_values=values)
    if isinstance(defaults, Config):
        text = "Named settings (--help configs), or a run's config.json; other flags override it."
        flags.DEFINE_string("config", "", text, flag_values=values)
        text = "Folder of a run to go on with: its settings hold, and other flags override those that may change."
        flags.DEFINE_string("resume", "", text, flag_values=values)
    flags.DEFINE_enum("algo", "APPO", ["APPO"], "The only algorithm.", flag_values=values)
    flags.DEFINE_enum(
        "env", "nle_fixed_eat_action", ["nle_fixed_eat_action"], "The task is root_env's.", flag_values=values
    )
    flags.DEFINE_enum(
        "device", "gpu", ["gpu", "cuda", "cpu"], "With cpu no accelerators; else JAX's default.", flag_values=values
    )
    return values


def config_from_flags(values: flags.FlagValues, defaults: Program) -> Program:
    """Returns the settings of parsed flags."""
    given: dict[str, Any] = {field.name: values[field.name].value for field, _ in settings(defaults)}
    if given.get("reward_dir") and given.get("llm_reward_type") == "":
        given["llm_reward_type"] = "motif"
    return with_values(defaults, given)


def normalise(
    argv: Sequence[str],
    values: flags.FlagValues,
    aliases: Mapping[str, str],
    positional: str = "",
    repeated: Mapping[str, str] = types.MappingProxyType({}),
) -> list[str]:
    """Normalises a command line to words `--name=value`; names are those of `values`, aliases replaced.

    Positional arguments go to the flag `positional`, joined by commas; the values of each flag in `repeated` are joined
    by its text there, with the positional arguments if it takes them.

    Raises:
        UserError: an unexpected positional argument, an unknown or refused flag, or a flag without its value.
    """
    normal: list[str] = []
    joined: dict[str, list[str]] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if positional and not word.startswith("-"):
            joined.setdefault(positional, []).append(word)
            continue
        if not word.startswith("-") or not word.strip("-"):
            key, equals, _ = word.partition("=")  # the value may be secret
            names_run = "experiment" in values and not normal and not equals
            instead = f"--experiment {word}" if names_run else "--flag value"
            raise UserError(f"{key + equals!r} is not a flag; write {instead}")
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        name = aliases.get(name, name)
        negated = name.removeprefix("no")
        if name not in values and negated in values and values[negated].boolean and not equals:
            normal.append(f"--{negated}=false")
            continue
        boolean = name in values and values[name].boolean
        if not equals:
            value = _next_value(words, boolean, known=name in values)
        if name not in values:
            _refuse(name, value, [*values, *aliases])
        elif value is None:
            raise UserError(f"--{name} needs a value")
        elif name in repeated:
            joined.setdefault(name, []).append(value)
        else:
            normal.append(f"--{name}={_truth(value) if boolean else value}")
    return [*normal, *(f"--{name}={repeated.get(name, ',').join(found)}" for name, found in joined.items())]


def _next_value(words: list[str], boolean: bool, known: bool) -> str | None:
    """Pops the value of a flag without `=`, if there is one, from the words after it."""
    if boolean:
        is_value = bool(words) and all(one in _TRUTHS for one in words[0].lower().split(","))
        return words.pop(0) if is_value else "true"
    if not words or (words[0].startswith("--") and not known):
        return None
    return words.pop(0)


def _truth(value: str) -> str:
    """Spells a boolean's value as absl does."""
    words = {**dict.fromkeys(refused_flags.ON, "true"), **dict.fromkeys(refused_flags.OFF, "false")}
    return ",".join(words.get(one.lower(), one) for one in value.split(","))


def _refuse(name: str, value: str | None, known: Sequence[str]) -> None:
    """Raises UserError for an unknown or refused flag, unless its value is harmless."""
    refusal = refused_flags.find_refusal(name)
    if refusal is None:
        raise UserError(f"unknown flag --{name}{nearest(name, known, '--') or '; --help lists all'}")
    if (value or "true").lower() not in refusal.harmless:
        raise UserError(f"--{name}: {refusal.why}")
