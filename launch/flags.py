"""The command line: one flag of each of a program's settings, and the checks that come before a run."""

import dataclasses
import difflib
import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from launch import refused_flags
from oni_jax.config import Config, Program, UserError, check_config, settings, with_values

TRAINING = Config()
_HELP_WORDS = ("-h", "-help", "--help", "--helpfull", "--helpshort")


def parse(argv: Sequence[str], defaults: Program = TRAINING) -> Program:
    """The settings that a command line (without the program's name) asks for, not yet checked.

    `defaults` says which settings the program has.

    `--flag-name` is `--flag_name`; booleans take `--x`, `--nox`, `--x=true` and `--x True`. `--device cpu` keeps JAX,
    which must not be imported yet, off accelerators.

    Raises:
        UserError: an unknown flag, one that is refused, or a value of the wrong type.
    """
    values = define_flags(defaults)
    words = normalise(argv, values, aliases(defaults))
    try:
        values(["", *words])
    except flags.Error as error:
        raise UserError(" ".join(str(error).split())) from None
    if values["device"].value == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    return config_from_flags(values, defaults)


def aliases(defaults: Any) -> dict[str, str]:
    """Other names of flags -> the flags' own."""
    return {alias: field.name for field, _ in settings(defaults) for alias in field.metadata["aliases"]}


def check(config: Config) -> None:
    """All that can be told without starting anything.

    Raises:
        UserError: the first thing that is wrong.
    """
    # Imported here: processes that a run spawns import the launcher, and have no use for these.
    from oni_jax.annotation.address import api_key_header, server_url
    from oni_jax.annotation.prompts import load_chat_template, load_prompt
    from oni_jax.envs.registry import env_spec
    from oni_jax.rewards.registry import check_reward, reward_type

    check_config(config)
    check_reward(config)
    env_spec(config.env, with_glyphs=config.network.use_glyphs or config.network.use_crop)
    kind = reward_type(config).prompt_kind
    if kind:
        api_key_header(config.annotation)
        if config.annotation.llm_server_addr:
            server_url(config.annotation.llm_server_addr)
        load_prompt(config.annotation, kind)
        load_chat_template(config.annotation.llm_chat_template)


def define_flags(defaults: Any = TRAINING) -> flags.FlagValues:
    """The flags: one a setting, and three of the published system's that ask for what is done anyway."""
    values = flags.FlagValues()
    define = {
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        bool: flags.DEFINE_boolean,
        str: flags.DEFINE_string,
    }
    for field, default in settings(defaults):
        text, choices = field.metadata["help"], field.metadata["choices"]
        if choices:
            flags.DEFINE_enum(field.name, default, choices, text, flag_values=values)
        else:
            define[field.type](field.name, default, text, flag_values=values)
    flags.DEFINE_enum("algo", "APPO", ["APPO"], "The only algorithm.", flag_values=values)
    flags.DEFINE_enum(
        "env", "nle_fixed_eat_action", ["nle_fixed_eat_action"], "The task is root_env's.", flag_values=values
    )
    flags.DEFINE_enum(
        "device", "gpu", ["gpu", "cuda", "cpu"], "JAX takes what it finds; cpu: nothing else.", flag_values=values
    )
    return values


def config_from_flags(values: flags.FlagValues, defaults: Program) -> Program:
    """The settings that parsed flags ask for."""
    given: dict[str, Any] = {field.name: values[field.name].value for field, _ in settings(defaults)}
    if given.get("reward_dir") and not given["llm_reward_type"]:
        given["llm_reward_type"] = "motif"
    return with_values(defaults, given)


def normalise(argv: Sequence[str], values: flags.FlagValues, aliases: Mapping[str, str]) -> list[str]:
    """The command line in one form, `--name=value`; names as in `values`, reached by their aliases too.

    Raises:
        UserError: a word that is no flag, an unknown flag, one that is refused, or a flag without its value.
    """
    normal: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("-") or not word.strip("-"):
            raise UserError(f"{word!r} is not a flag; write --flag value")
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
        else:
            normal.append(f"--{name}={_truth(value) if boolean else value}")
    return normal


def _next_value(words: list[str], boolean: bool, known: bool) -> str | None:
    """Takes the value of a flag that came without `=`, if there is one, off the words behind it."""
    if boolean:
        is_value = bool(words) and words[0].lower() in refused_flags.ON + refused_flags.OFF
        return words.pop(0) if is_value else "true"
    if not words or (words[0].startswith("--") and not known):
        return None
    return words.pop(0)


def _truth(value: str) -> str:
    """A boolean's value in absl's words."""
    lower = value.lower()
    return "true" if lower in refused_flags.ON else "false" if lower in refused_flags.OFF else value


def _refuse(name: str, value: str | None, known: Sequence[str]) -> None:
    """What to do with a flag that isn't there: passes over harmless ones. Raises UserError for the others."""
    refusal = refused_flags.find_refusal(name)
    if refusal is None:
        near = difflib.get_close_matches(name, known, 1)
        raise UserError(f"unknown flag --{name}; " + (f"did you mean --{near[0]}?" if near else "--help lists all"))
    if (value or "true").lower() not in refusal.harmless:
        raise UserError(f"--{name}: {refusal.why}")


def wants_help(argv: Sequence[str]) -> bool:
    """Whether the command line asks for help."""
    return any(word in _HELP_WORDS for word in argv)


def help_text(program: str, defaults: Any = TRAINING) -> str:
    """All flags by topic, for the terminal's width."""
    width = min(120, shutil.get_terminal_size().columns)
    lines = [f"{program} [--flag value]...    (--flag-name is --flag_name; booleans: --x, --nox, --x=true, --x true)"]
    for section in dataclasses.fields(defaults):
        part = getattr(defaults, section.name)
        lines += ["", (type(part).__doc__ or section.name).splitlines()[0]]
        for field in dataclasses.fields(part):
            lines.append(textwrap.fill(_describe(field), width, initial_indent="  ", subsequent_indent="      "))
    lines += ["", "Accepted, and without effect: --algo APPO, --env nle_fixed_eat_action, --device gpu (cpu has one)."]
    return "\n".join(lines)


def _describe(field: dataclasses.Field) -> str:
    default = "''" if field.default == "" else str(field.default).lower() if field.type is bool else field.default
    choices = f" One of: {', '.join(field.metadata['choices'])}." if field.metadata["choices"] else ""
    other_names = f" Also --{', --'.join(field.metadata['aliases'])}." if field.metadata["aliases"] else ""
    return f"--{field.name} ({default})  {field.metadata['help']}{choices}{other_names}"
