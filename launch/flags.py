"""The command line: a flag for each of a program's settings, and the checks before a run."""

import contextlib
import dataclasses
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from absl import flags

from launch import named_configs, refused_flags
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.host.plugins import load_plugins, with_plugins
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config, of_each_reward, value_of_reward
from oni_jax.settings.fields import Program, UserError, nearest, settings, with_values
from oni_jax.settings.plugins import with_brought
from oni_jax.training.checks import check_run

TRAINING = Config()
check = check_run
# Names of other systems' flags, and what they are here.
NAMES_ELSEWHERE = {
    "lr": "learning_rate",
    "env_id": "root_env",
    "env_name": "root_env",
    "task": "root_env",
    "num_envs": "num_envs_per_worker",
    "n_envs": "num_envs_per_worker",
    "n_steps": "rollout",
    "num_steps": "rollout",
    "steps": "train_for_env_steps",
    "total_timesteps": "train_for_env_steps",
    "max_steps": "train_for_env_steps",
    "name": "experiment",
    "run_name": "experiment",
    "ent_coef": "exploration_loss_coeff",
    "entropy_coeff": "exploration_loss_coeff",
    "bs": "batch_size",
    "model": "llm_model",
    "server": "llm_server_addr",
    "reward_type": "llm_reward_type",
}
_TRUTHS = (*refused_flags.ON, *refused_flags.OFF)


def parse(argv: Sequence[str], defaults: Program = TRAINING) -> Program:
    """Parses a command line (without the program's name) into settings, without checking their values.

    `defaults` determines which settings the program has.

    `--flag-name` is `--flag_name`; booleans take `--x`, `--nox`, `--x=true` and `--x True`. `--device cpu` keeps JAX,
    which must not be imported yet, off accelerators. `--config` replaces the defaults by named settings, `--resume` by
    those of a run.

    Raises:
        UserError: an unknown or refused flag, a value of the wrong type, unknown named settings, or no run to resume.
    """
    defaults = with_sources(argv, defaults)
    values = define_flags(defaults)
    try:
        words = normalise(argv, values, aliases(defaults), positional(defaults), repeated(defaults))
    except UserError:
        default = str(values["plugin"].value) if "plugin" in values else ""
        load_plugins(_given(argv, defaults).get("plugin", default))  # if it fails, that is why there is no such flag
        raise
    if not isinstance(defaults, Config):
        return _parse_words(words, defaults)
    first, *others = [_parse_words(each, term) for each, term in _of_each_reward(words, defaults)]
    added = tuple((other.reward, other.annotation) for other in others)
    return cast(Program, dataclasses.replace(first, others=added))


def with_sources(argv: Sequence[str], defaults: Program) -> Program:
    """Returns what the flags of a command line override: the settings of --config or --resume, and plugins' settings.

    Raises:
        UserError: they can't be read, or a plugin brings settings whose names are taken.
    """
    given = _given(argv, defaults)
    defaults = _with_loaded(_with_run(given, defaults), given.get("plugin", ""))
    if isinstance(defaults, Config):
        found = named_configs.chosen(given, defaults)
        found = _with_loaded(found, given.get("plugin", found.env.plugin))
        defaults = cast(Program, dataclasses.replace(defaults, **vars(found)))
    return defaults


def _with_run(given: Mapping[str, str], defaults: Any) -> Any:
    """Returns the settings of an evaluation with those that the plugins of its run bring, as the run has them."""
    if not isinstance(defaults, EvaluationConfig):
        return defaults
    folder = os.path.join(*(given.get(name, getattr(defaults, name)) for name in ("train_dir", "experiment")))
    with contextlib.suppress(UserError):  # the evaluation says so
        env = Run(folder).plan.config.env
        kept = with_values(with_brought(defaults), {field.name: value for field, value in settings(env)})
        return dataclasses.replace(defaults, plugin_sections=kept.plugin_sections) if env.plugin_sections else defaults
    return defaults


def with_given_plugins(argv: Sequence[str], defaults: Program) -> Program:
    """Returns a program's settings with those that the plugins of a command line bring, for its help."""
    return with_plugins(defaults, _given(argv, defaults).get("plugin", ""))


def _with_loaded(defaults: Program, plugin: str) -> Program:
    """Returns settings with those that plugins bring, if they can be loaded; else the program's check says so."""
    try:
        load_plugins(plugin)
    except UserError:
        return defaults
    return with_plugins(defaults, plugin)


def _given(argv: Sequence[str], defaults: Any) -> dict[str, str]:
    """Returns the values of those flags of a command line that a program has without plugins."""
    values = define_flags(defaults)
    words = normalise(argv, values, aliases(defaults), repeated=repeated(defaults), only_known=True)
    return {name: value for name, _, value in (word.removeprefix("--").partition("=") for word in words)}


def _of_each_reward(words: Sequence[str], defaults: Config) -> Iterator[tuple[list[str], Config]]:
    """Yields, for each of the rewards alone, its command line and defaults.

    Raises:
        UserError: the number of values in a list is not that of the rewards.
    """
    terms = defaults.terms()
    words = list({word.partition("=")[0]: word for word in words}.values())  # the last value of a flag holds
    given = [word.removeprefix("--llm_reward_type=") for word in words if word.startswith("--llm_reward_type=")]
    count = len(given[-1].split(",")) if given else len(terms)
    lists = of_each_reward(defaults)
    secrets = {field.name for field, _ in settings(defaults) if field.metadata["secret"]}

    def value(word: str, index: int) -> str:
        name, _, text = word.removeprefix("--").partition("=")
        values = text.split(",") if name in lists else [text]
        shown = f"--{name}" if name in secrets else f"--{name} {text}"
        return f"--{name}={value_of_reward(values, index, count, shown)}"

    for index in range(count):
        yield (list(words) if count == 1 else [value(word, index) for word in words]), terms[index % len(terms)]


def _parse_words(words: Sequence[str], defaults: Program) -> Program:
    values = define_flags(defaults)
    secrets = {field.name for field, _ in settings(defaults) if field.metadata["secret"]}
    for word in words:
        name, _, text = word.removeprefix("--").partition("=")
        try:
            values[name].parser.parse(text)
        except (flags.Error, ValueError, TypeError):
            shown = "" if name in secrets else f" {text}"
            raise UserError(f"--{name}{shown}{_wanted(values[name], text)}") from None
    values(["", *words])
    if values["device"].value == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    return config_from_flags(values, defaults)


def _wanted(flag: flags.Flag, text: str) -> str:
    """Returns what a flag takes instead of a text that is no value of it."""
    kind = flag.flag_type()
    if kind == "int":
        try:
            example = f", such as {int(float(text))}"
        except (ValueError, OverflowError):
            example = ""
        return f": must be a whole number{example}"
    if choices := getattr(flag.parser, "enum_values", ()):
        return f": must be one of {', '.join(choices)}{nearest(text, choices)}"
    return ": must be true or false" if kind == "bool" else ": must be a number"


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
    only_known: bool = False,
) -> list[str]:
    """Normalises a command line to words `--name=value`; names are those of `values`, aliases replaced.

    Positional arguments go to the flag `positional`, joined by commas; the values of each flag in `repeated` are joined
    by its text there, with the positional arguments if it takes them. With `only_known` all else is left out.

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
        if only_known and not word.startswith("-"):
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
        if only_known and name not in values:
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
        meant = NAMES_ELSEWHERE.get(name, "")
        hint = nearest(meant if meant in known else name, known, "--") or "; --help lists all"
        raise UserError(f"unknown flag --{name}{hint}")
    if (value or "true").lower() not in refusal.harmless:
        raise UserError(f"--{name}: {refusal.why}")
