"""The command line: one flag of each of a program's settings, and the checks that come before a run."""

import dataclasses
import difflib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from absl import flags

from launch import named_configs, refused_flags
from oni_jax.config import (
    AnnotationConfig,
    Config,
    Program,
    RewardConfig,
    UserError,
    check_config,
    own_settings,
    settings,
    with_values,
)

TRAINING = Config()
_TRUTHS = (*refused_flags.ON, *refused_flags.OFF)
OF_ALL = {"extrinsic_reward_coeff", "label_store", "goal"}  # one value for all rewards of a run; a goal has commas


def parse(argv: Sequence[str], defaults: Program = TRAINING) -> Program:
    """The settings that a command line (without the program's name) asks for, not yet checked.

    `defaults` says which settings the program has.

    `--flag-name` is `--flag_name`; booleans take `--x`, `--nox`, `--x=true` and `--x True`. `--device cpu` keeps JAX,
    which must not be imported yet, off accelerators. `--config` puts named settings in the place of the defaults.

    Raises:
        UserError: an unknown flag, one that is refused, a value of the wrong type, or unknown named settings.
    """
    values = define_flags(defaults)
    words = normalise(argv, values, aliases(defaults), positional(defaults), repeated(defaults))
    names = [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    if names and isinstance(defaults, Config):
        defaults = cast(Program, named_configs.load(names[-1]))
    if not isinstance(defaults, Config):
        return _parse_words(words, defaults)
    first, *others = [_parse_words(each, term) for each, term in _of_each_reward(words, defaults)]
    added = tuple((other.reward, other.annotation) for other in others)
    return cast(Program, dataclasses.replace(first, others=added))


def _of_each_reward(words: Sequence[str], defaults: Config) -> Iterator[tuple[list[str], Config]]:
    """The command line that each of the rewards would have if it were alone, and its defaults.

    Raises:
        UserError: a list with more or fewer values than there are rewards.
    """
    terms = defaults.terms()
    words = list({word.partition("=")[0]: word for word in words}.values())  # the last one of each flag counts
    given = [word.removeprefix("--llm_reward_type=") for word in words if word.startswith("--llm_reward_type=")]
    count = len(given[-1].split(",")) if given else len(terms)
    lists = {field.name for part in (RewardConfig(), AnnotationConfig()) for field, _ in own_settings(part)} - OF_ALL

    secrets = {field.name for field, _ in settings(defaults) if field.metadata["secret"]}

    def value(word: str, index: int) -> str:
        name, _, text = word.removeprefix("--").partition("=")
        values = text.split(",") if name in lists else [text]
        if len(values) not in (1, count):
            shown = f"--{name}" if name in secrets else f"--{name} {text}"
            raise UserError(f"{shown}: {len(values)} values for {count} rewards; give one, or one each")
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
    """Other names of flags -> the flags' own."""
    return {alias: field.name for field, _ in settings(defaults) for alias in field.metadata["aliases"]}


def positional(defaults: Any) -> str:
    """The setting that words which are no flags go to; empty: none does."""
    return "".join(field.name for field, _ in settings(defaults) if field.metadata["positional"])


def repeated(defaults: Any) -> frozenset[str]:
    """The flags that may be given several times."""
    return frozenset(field.name for field, _ in settings(defaults) if field.metadata["repeated"])


def check(config: Config) -> None:
    """All that can be told without starting anything.

    Raises:
        UserError: the first thing that is wrong.
    """
    # Imported here: processes that a run spawns import the launcher, and have no use for these.
    from oni_jax.annotation.address import api_key_header, server_url
    from oni_jax.annotation.judge_answers import load_rules
    from oni_jax.annotation.prompts import load_chat_template, load_prompt
    from oni_jax.envs.registry import env_spec, find_environment
    from oni_jax.networks.registry import policy_observations
    from oni_jax.rewards.registry import check_rewards, questions

    check_config(config)
    environment = find_environment(config.env)
    check_rewards(config)
    spec = env_spec(config.env, policy_observations(config.network))
    for annotation, kind in questions(config):
        if not spec.has_captions:
            raise UserError(f"--root_env {config.env.root_env}: says nothing that an LLM could judge; use another")
        api_key_header(annotation)
        if annotation.llm_server_addr:
            server_url(annotation.llm_server_addr)
        else:
            load_rules(environment.language)
        load_prompt(annotation, environment.language, kind)
        load_chat_template(annotation.llm_chat_template)


def define_flags(defaults: Any = TRAINING) -> flags.FlagValues:
    """The flags: one a setting, three of the published system's that ask for what is done anyway, and `--config`."""
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
    if isinstance(defaults, Config):
        text = "Named settings (--help configs), or a run's config.json; other flags override it."
        flags.DEFINE_string("config", "", text, flag_values=values)
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


def normalise(
    argv: Sequence[str],
    values: flags.FlagValues,
    aliases: Mapping[str, str],
    positional: str = "",
    repeated: Collection[str] = (),
) -> list[str]:
    """The command line in one form, `--name=value`; names as in `values`, reached by their aliases too.

    Words that are no flags go to the flag `positional`, with commas between them; so do the values of each of the
    flags `repeated`.

    Raises:
        UserError: a word that is no flag, an unknown flag, one that is refused, or a flag without its value.
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
        elif name in repeated:
            joined.setdefault(name, []).append(value)
        else:
            normal.append(f"--{name}={_truth(value) if boolean else value}")
    return [*normal, *(f"--{name}={','.join(found)}" for name, found in joined.items())]


def _next_value(words: list[str], boolean: bool, known: bool) -> str | None:
    """Takes the value of a flag that came without `=`, if there is one, off the words behind it."""
    if boolean:
        is_value = bool(words) and all(one in _TRUTHS for one in words[0].lower().split(","))
        return words.pop(0) if is_value else "true"
    if not words or (words[0].startswith("--") and not known):
        return None
    return words.pop(0)


def _truth(value: str) -> str:
    """A boolean's value in absl's words."""
    words = {**dict.fromkeys(refused_flags.ON, "true"), **dict.fromkeys(refused_flags.OFF, "false")}
    return ",".join(words.get(one.lower(), one) for one in value.split(","))


def _refuse(name: str, value: str | None, known: Sequence[str]) -> None:
    """What to do with a flag that isn't there: passes over harmless ones. Raises UserError for the others."""
    refusal = refused_flags.find_refusal(name)
    if refusal is None:
        near = difflib.get_close_matches(name, known, 1)
        raise UserError(f"unknown flag --{name}; " + (f"did you mean --{near[0]}?" if near else "--help lists all"))
    if (value or "true").lower() not in refusal.harmless:
        raise UserError(f"--{name}: {refusal.why}")
