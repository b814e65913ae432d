"""Help texts of `--help`: an overview by topic, a topic, a flag, and all flags."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from absl.flags import Flag

from launch import flags, named_configs, programs
from oni_jax.settings.config import Config
from oni_jax.settings.fields import Setting, UserError, nearest_first, section_settings, sections, settings

_WORDS = ("-h", "-help", "--help", "--helpfull", "--helpshort")
ALL, CONFIGS = "all", "configs"
FEW = 30  # flags, which need no overview
FORMS = "(--flag-name is --flag_name; booleans: --x, --nox, --x=true, --x true)"


def wants_help(argv: Sequence[str]) -> bool:
    """Returns whether the command line has a help flag."""
    return any(word.partition("=")[0] in _WORDS for word in argv)


def asked_topic(argv: Sequence[str]) -> str:
    """Returns the topic after the help flag; empty when there is none."""
    index = next(i for i, word in enumerate(argv) if word.partition("=")[0] in _WORDS)
    after = argv[index + 1] if len(argv) > index + 1 else ""
    return argv[index].partition("=")[2] or ("" if after.startswith("-") else after)


def help_text(name: str, defaults: Any, topic: str = "") -> str:
    """Returns help for the program launch.<name> with settings `defaults`, for the terminal's width.

    Raises:
        UserError: there is no such topic.
    """
    width = min(120, shutil.get_terminal_size().columns)
    fields = [field for field, _ in settings(defaults)]
    others = _other_flags(defaults)
    parts = sections(defaults)
    flag = topic.lstrip("-").replace("-", "_")
    flag = flags.aliases(defaults).get(flag, flag)
    if topic == CONFIGS and isinstance(defaults, Config):
        return "\n".join(_config_lines(width))
    if topic in parts:
        return "\n".join(_section(parts[topic], width))
    if flag in (field.name for field in fields):
        described = (_filled(_describe(field), width) for field in fields if field.name == flag)
        return "\n".join([*described, *_values(flag, width)])
    if flag in others:
        return _filled(_describe_other(others[flag]), width)
    if topic and topic != ALL:
        known = [*parts, *([CONFIGS] if isinstance(defaults, Config) else []), ALL]
        names = [*known, *(field.name for field in fields), *others]
        hint = nearest_first(flag, names, f"topics: {', '.join(known)}", "--help ")
        raise UserError(f"--help {topic}: no such topic or flag{hint}")
    positional = flags.positional(defaults)
    arguments = f"{positional.upper()}... " if positional else ""
    lines = [f"python -m launch.{name} {arguments}[--flag value]..."]
    lines += textwrap.wrap(programs.programs().get(name, ""), width)
    lines += [_filled(f"Example: {example}", width) for example in programs.examples(name)]
    if topic == ALL or len(fields) <= FEW:
        return "\n".join([*lines, FORMS, *_everything(defaults, parts, width)])
    return "\n".join([*lines, *_overview(defaults, parts, width)])


def _values(flag: str, width: int) -> Iterator[str]:
    """Yields the values of a flag that names an entry of a registry, explained."""
    from oni_jax.envs.registry import ENVIRONMENTS
    from oni_jax.networks.registry import ENCODERS
    from oni_jax.rewards.registry import REWARD_TYPES

    entries = {"llm_reward_type": REWARD_TYPES, "encoder_custom": ENCODERS}.get(flag, {})
    for name, entry in entries.items():
        yield _filled(f"{name}: {entry.about}", width)
    for environment in ENVIRONMENTS if flag == "root_env" else ():
        about = f"{environment.about}: " if environment.about else ""
        yield _filled(about + " ".join(environment.names), width)


def _overview(defaults: Any, parts: dict[str, Any], width: int) -> Iterator[str]:
    """Yields the topics and the names of their flags."""
    yield ""
    yield from textwrap.wrap(
        f"Flags by topic. --help TOPIC explains the flags of a topic, --help FLAG one flag, --help {ALL} all. " + FORMS,
        width,
    )
    for topic, section in parts.items():
        yield ""
        yield textwrap.fill(f"{topic}: {_title(section)}", width, subsequent_indent="  ")
        names = " ".join(f"--{field.name}" for field, _ in section_settings(section))
        yield textwrap.fill(names, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    if isinstance(defaults, Config):
        yield ""
        yield f"{CONFIGS}: Named settings of the paper, for --config."
        yield f"  --config NAME; --help {CONFIGS} lists the names"
    yield ""
    yield textwrap.fill(f"Also: {' '.join(f'--{name}' for name in _other_flags(defaults))}", width)


def _everything(defaults: Any, parts: dict[str, Any], width: int) -> Iterator[str]:
    for section in parts.values():
        yield ""
        yield from _section(section, width)
    yield ""
    yield "Also"
    for flag in _other_flags(defaults).values():
        yield _filled(_describe_other(flag), width)


def _other_flags(defaults: Any) -> dict[str, Flag]:
    values = flags.define_flags(defaults)
    setting_names = {field.name for field, _ in settings(defaults)}
    return {name: values[name] for name in values if name not in setting_names}


def _section(section: Any, width: int) -> Iterator[str]:
    yield _title(section)
    for field, _ in section_settings(section):
        yield _filled(_describe(field), width)


def _title(section: Any) -> str:
    return (type(section).__doc__ or "").splitlines()[0]


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)


def _describe(field: Setting) -> str:
    default = "''" if field.default == "" else str(field.default).lower() if field.type is bool else field.default
    choices = f" One of: {', '.join(field.metadata['choices'])}." if field.metadata["choices"] else ""
    other_names = f" Also --{', --'.join(field.metadata['aliases'])}." if field.metadata["aliases"] else ""
    return f"--{field.name} ({default})  {field.metadata['help']}{choices}{other_names}"


def _describe_other(flag: Flag) -> str:
    return f"--{flag.name} ({flag.default or repr('')})  {flag.help}"


def _config_lines(width: int) -> Iterator[str]:
    """Yields every named config and what it sets."""
    yield from textwrap.wrap(
        "Settings for --config: a task of the paper and a method. Other flags override them, such as --experiment "
        "and --seed. Which coefficients are published: launch/configs/README.md.",
        width,
    )
    configs = {name: named_configs.load(name) for name in named_configs.names()}
    size = max(map(len, configs))
    tasks = [(config.env.root_env, config.reward.extrinsic_reward_coeff) for config in configs.values()]
    for env, coefficient in dict.fromkeys(tasks):
        yield ""
        yield textwrap.fill(f"{env}, its reward x {coefficient:g}", width)
        for (name, config), task in zip(configs.items(), tasks):
            if task == (env, coefficient):
                reward, scale = config.reward, config.learner.reward_scale
                scaled = f", reward_scale {scale:g}" if scale != 1 else ""
                yield f"  {name:<{size}}  {reward.llm_reward_type} x {reward.llm_reward_coeff:g}{scaled}"
