"""Settings of a training run: all sections together, as JSON, and what may change when a run is resumed."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oni_jax.settings.annotation import AnnotationConfig, check_annotation
from oni_jax.settings.fields import (
    Setting,
    Unread,
    UserError,
    is_within,
    nearest,
    range_in_words,
    section_settings,
    sections,
    settings,
    value_from_python,
    with_values,
)
from oni_jax.settings.json_text import RUN_ID, is_sealed, parsed, sealed, unsealed
from oni_jax.settings.learning import (
    LearnerConfig,
    NetworkConfig,
    PretrainedConfig,
    check_batches,
    check_network,
    check_pretrained,
)
from oni_jax.settings.plugins import with_brought
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import ActorConfig, DevicesConfig, EnvConfig


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of a training run. Other programs have other dataclasses of sections."""

    env: EnvConfig = EnvConfig()
    actors: ActorConfig = ActorConfig()
    devices: DevicesConfig = DevicesConfig()
    network: NetworkConfig = NetworkConfig()
    learner: LearnerConfig = LearnerConfig()
    reward: RewardConfig = RewardConfig()
    annotation: AnnotationConfig = AnnotationConfig()
    pretrained: PretrainedConfig = PretrainedConfig()
    run: RunConfig = RunConfig()
    others: tuple[tuple[RewardConfig, AnnotationConfig], ...] = ()  # settings of the second, third, ... reward

    def terms(self) -> list["Config"]:
        """Returns one Config per reward, with that reward alone."""
        each = ((self.reward, self.annotation), *self.others)
        return [dataclasses.replace(self, reward=reward, annotation=asked, others=()) for reward, asked in each]

    def goals(self) -> tuple[str, ...]:
        """Returns the keys of the goals that one agent has in turn; none where all its episodes have the same."""
        keys = () if self.others else tuple(self.annotation.goal_key.split(","))
        return keys if len(keys) > 1 else ()

    def terms_by_goal(self) -> list["Config"]:
        """Returns one Config per reward, or for an agent of several goals one per goal."""
        return [
            dataclasses.replace(term, annotation=dataclasses.replace(term.annotation, goal_key=key))
            for term in self.terms()
            for key in self.goals() or [term.annotation.goal_key]
        ]


# One value for all rewards of a run: goals and JSON have commas.
_OF_ALL_REWARDS = {"extrinsic_reward_coeff", "label_store", "goal", "llm_extra_body", "llm_extra_headers"}


def of_each_reward(config: Config) -> set[str]:
    """Returns the names of the settings that have a value for each of several rewards."""
    return {field.name for part in (config.reward, config.annotation) for field, _ in settings(part)} - _OF_ALL_REWARDS


def value_of_reward(values: Sequence[Any], index: int, count: int, shown: str) -> Any:
    """Returns the value for one of several rewards: of a list for each, or of one for all; `shown` is the setting.

    Raises:
        UserError: they are neither.
    """
    if len(values) not in (1, count):
        joined = "; + joins several servers of one reward" if "llm_server_addr" in shown else ""
        raise UserError(f"{shown}: {len(values)} values for {count} rewards; give one, or one for each{joined}")
    return values[index % len(values)]


def with_values_of(config: Config, given: Mapping[str, Any]) -> Config:
    """Returns the settings with some replaced, by name, as a Python program gives them.

    A list, or a text with commas, has a value for each reward where `llm_reward_type` names several.

    Raises:
        UserError: there is no such setting, it is of another type, or a list has not a value for each reward.
    """
    fields, terms = {field.name: field for field, _ in settings(config)}, config.terms()
    each_has = of_each_reward(config)
    for name in given:
        if name not in fields:
            raise UserError(f"{name}: there is no such setting{nearest(name, fields)}")
    kinds = given.get("llm_reward_type", [""] * len(terms))
    count = len(kinds.split(",") if isinstance(kinds, str) else kinds)

    def value(name: str, index: int) -> Any:
        whole = given[name]
        if count > 1 and name in each_has:
            values = whole.split(",") if isinstance(whole, str) else whole
            values = values if isinstance(values, list | tuple) else [values]
            whole = value_of_reward(values, index, count, name)
        return value_from_python(fields[name], whole)

    each = [with_values(terms[i % len(terms)], {name: value(name, i) for name in given}) for i in range(count)]
    return dataclasses.replace(each[0], others=tuple((part.reward, part.annotation) for part in each[1:]))


def config_to_json(config: Config, with_sum: bool = False, run_id: str = "") -> str:
    """Returns a JSON object of the sections, with those of further rewards under `others`. Secrets are left out.

    Args:
        config: settings.
        with_sum: adds a checksum.
        run_id: id of the run that has them, beside its settings; empty: none.
    """

    def tree(parts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: {field.name: value for field, value in section_settings(part) if not field.metadata["secret"]}
            for name, part in parts.items()
        }

    parts = tree(sections(config))
    others = [tree({**sections(reward), **sections(annotation)}) for reward, annotation in config.others]
    named = {"run": {**parts["run"], RUN_ID: run_id}} if run_id else {}
    found = {**parts, **named, **({"others": others} if others else {})}
    return json.dumps(sealed(found) if with_sum else found, indent=2) + "\n"


def config_from_json(text: str | bytes) -> Config:
    """Inverts `config_to_json`. Settings that the text lacks have their defaults.

    Sections of a plugin that is not loaded are kept as they are, see `with_brought`.

    Raises:
        UserError: the text is no such object.
    """
    try:
        parts = unsealed(parsed(text))
        _name_the_judge(parts)
        _name_the_scale(parts)
        others = tuple(map(_further_reward, parts.pop("others", ())))
        config = dataclasses.replace(with_values(with_brought(Config(), only=parts), _flat(parts)), others=others)
        if config.env.plugin and (unread := _unread(parts, config)):
            config = dataclasses.replace(config, env=_with_sections(config.env, unread))
        for term in config.terms():
            for field, value in settings(term):
                if type(value) is not field.type and not (field.type is float and type(value) is int):
                    raise ValueError(f"{field.name} is {value!r}")
        return config
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError) as error:
        raise UserError(f"not the settings of a run (JSON object of sections): {error}") from None


def _flat(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the settings of all sections, by name: those of older runs lay in fewer sections."""
    return {name: value for part in parts.values() for name, value in part.items()}


def _further_reward(parts: Mapping[str, Mapping[str, Any]]) -> tuple[RewardConfig, AnnotationConfig]:
    values = _flat({"reward": parts["reward"], "annotation": parts["annotation"], **parts})
    reward, annotation = with_brought(RewardConfig(), only=parts), AnnotationConfig()
    reward = _with_sections(reward, _unread(parts, Config(reward=reward)))
    return with_values(reward, values), with_values(annotation, values)


def _unread(parts: Mapping[str, Mapping[str, Any]], config: Config) -> tuple[Unread, ...]:
    """Returns the sections that the settings lack: a plugin brings them that is not loaded."""
    names = parts.keys() - sections(config).keys()
    found = tuple(Unread(name, tuple(values.items())) for name, values in parts.items() if name in names)
    for name, value in (value for section in found for value in section.values):
        if type(value) not in (int, float, bool, str):
            raise ValueError(f"{name} is {value!r}")
    return found


def _with_sections(owner: Any, added: tuple[Unread, ...]) -> Any:
    return dataclasses.replace(owner, plugin_sections=(*owner.plugin_sections, *added))


def is_as_written(text: str | bytes) -> bool:
    """Returns whether the text of settings is what was written, by its checksum, if it has one."""
    return is_sealed(parsed(text))


def _name_the_judge(parts: dict[str, Any]) -> None:
    """Says of a run that is older than recorded answers that the judge answers it, where no server is named."""
    for part in (parts, *parts.get("others", ())):
        asked = part.get("annotation", {})
        if asked.get("llm_server_addr") == "" and "answers" not in asked:
            asked["answers"] = "judge"


def _name_the_scale(parts: Mapping[str, Any]) -> None:
    """Says of a run that is older than `image_scale` what its images were divided by."""
    if "encoder_custom" in (network := parts.get("network", {})) and "image_scale" not in network:
        network["image_scale"] = "255"


def listed(config: Config) -> Iterator[tuple[Setting, Any]]:
    """Yields every setting with its value; with a list, as a flag takes it, where those of several rewards differ."""
    for pairs in zip(*map(settings, config.terms())):
        values = [value for _, value in pairs]
        # Always one type per reward: two rewards of one type are not one.
        alike = values.count(values[0]) == len(values) and (len(values) == 1 or pairs[0][0].name != "llm_reward_type")
        yield pairs[0][0], values[0] if alike else ",".join(map(str, values))


def hparams(config: Config) -> dict[str, int | float | bool | str]:
    """Returns the settings that are not their defaults, by name, without secrets."""
    known = ((field, value) for field, value in listed(config) if not field.metadata["secret"])
    return {field.name: value for field, value in known if value != field.default}


def changed(old: Config, new: Config) -> list[str]:
    """Returns `name: old -> new` for each setting that differs; secrets are not compared."""
    before = {field.name: value for field, value in listed(old)}
    pairs = [(field, before.get(field.name, field.default), after) for field, after in listed(new)]
    return [
        f"{field.name}: {value!r} -> {after!r}"
        for field, value, after in pairs
        if value != after and not field.metadata["secret"]
    ]


def check_resume(old: Config, new: Config) -> None:
    """Rejects changes of the settings that are fixed in a run.

    Raises:
        UserError: names the settings. (The caller compares the number of actions, which is fixed, too.)
    """
    fixed = {field.name: field.default for field, _ in settings(new) if field.metadata["fixed"]}
    refused = {text.split(":")[0]: text for text in changed(old, new) if text.split(":")[0] in fixed}
    if refused:
        values = fixed | {field.name: value for field, value in listed(old)}
        started_with = [f"--{name}={values[name]}" for name in refused]
        raise UserError(
            f"{'; '.join(refused.values())}: can't change when a run is resumed; give what it was started with, "
            f"{' '.join(started_with)}, or choose another --experiment"
        )


def check_values(config: Any) -> None:
    """Checks each setting by itself. Raises UserError for the first that is outside its range or choices."""
    programs = config.terms() if isinstance(config, Config) else [config]
    for field, value in (setting for program in programs for setting in settings(program)):
        if field.type in (int, float) and not is_within(value, field.metadata["within"]):
            wanted = range_in_words(field.metadata["within"], field.type is int)
            raise UserError(f"--{field.name} {value}: must be {wanted}")
        choices = field.metadata["choices"]
        given = value.split(",") if field.metadata["several"] else [value]
        if choices and (wrong := [x for x in given if x not in choices]):
            known = f"must be one of {', '.join(choices)}{nearest(wrong[0], choices)}"
            raise UserError(f"--{field.name} {wrong[0]}: {known}")
        if len({*given}) < len(given):
            raise UserError(f"--{field.name} {value}: names one of them twice")


def check_config(config: Config) -> None:
    """Checks a run's settings by their values alone.

    Raises:
        UserError: the first mistake.
    """
    check_values(config)
    check_batches(config.learner)
    if config.actors.num_envs_per_worker % (num_splits := config.actors.worker_num_splits):
        number = config.actors.num_envs_per_worker
        raise UserError(f"--num_envs_per_worker {number}: must be a multiple of --worker_num_splits {num_splits}")
    if config.actors.num_answerers > 1 and config.actors.actor_pool == "serial":
        raise UserError(
            f"--num_answerers {config.actors.num_answerers}: --actor_pool serial runs all on one thread; leave one out"
        )
    _check_processes(config)
    check_network(config.network)
    check_pretrained(config.pretrained)
    for term in config.terms():
        check_annotation(term.annotation)
        if config.others and "," in term.annotation.llm_server_addr:
            raise UserError(
                f"--llm_server_addr {term.annotation.llm_server_addr}: commas part the servers of several rewards; "
                "join those of one reward by +"
            )
    if any(part in ("", ".", "..") for part in config.run.experiment.split("/")):
        raise UserError(f"--experiment {config.run.experiment!r}: must be the name of a folder")


def of_all_processes(config: Config) -> Config:
    """Returns the settings without those of single processes: index, number and coordinator's address."""
    defaults = {name: getattr(DevicesConfig, name) for name in ("coordinator_address", "num_processes", "process_id")}
    return dataclasses.replace(config, devices=dataclasses.replace(config.devices, **defaults))


def _check_processes(config: Config) -> None:
    devices = config.devices
    several = devices.num_processes > 1
    if (devices.process_id >= 0) != several or (several and not devices.coordinator_address):
        raise UserError("--coordinator_address, --num_processes (2 or more), --process_id: give all three, or none")
    if several and devices.process_id >= devices.num_processes:
        raise UserError(f"--process_id {devices.process_id}: must be below --num_processes {devices.num_processes}")
    port = re.fullmatch(r".+:(\d{1,5})", devices.coordinator_address)
    if devices.coordinator_address and not (port and 1 <= int(port[1]) <= 65535):
        raise UserError(f"--coordinator_address {devices.coordinator_address}: must be host:port, such as node1:12345")
