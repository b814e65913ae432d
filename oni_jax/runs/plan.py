"""The plan of a run: what its settings come to, looked up once. Without JAX, which takes seconds to import.

It lies below `evaluation` and `offline`, which read runs. `training.plan.resolve` adds what suits the machine.
"""

import dataclasses
import functools
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from oni_jax.annotation.prompts import Prompt, goal_text, load_prompt
from oni_jax.annotation.queries.choices import TwoChoices
from oni_jax.annotation.queries.classification import Classification
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.answers.answerer import with_chosen_answers
from oni_jax.envs.base import Environment, Language
from oni_jax.envs.episode_goals import SEPARATOR
from oni_jax.envs.event_captions import EVENT, STATE
from oni_jax.envs.goals import BY_LLM, LLM, NO_GOALS, ORACLE, TASK
from oni_jax.envs.registry import AUTO, check_env, env_spec, find_environment
from oni_jax.host.plugins import load_plugins
from oni_jax.networks.registry import ENCODERS, SPACE, fitting_encoder, policy_observations
from oni_jax.rewards.registry import GOAL_REWARDED, NONE, REWARD_TYPES, observations_read, questions, reward_type
from oni_jax.settings.annotation import BY_GOAL, LABEL, REASONED, AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.worlds import EpisodeGoalConfig
from oni_jax.types import GOAL_FEATURES, EnvSpec

INDEX = "index"  # value of --goal_input


class Machine(NamedTuple):
    """Cores, memory and accelerators of a process."""

    num_cores: int
    memory_bytes: int
    num_accelerators: int = 0  # 0: the cores compute
    accelerator_bytes: int = 0  # memory of each; 0: unknown


class Chosen(NamedTuple):
    """A setting's value, and why it is that."""

    flag: str
    value: int | str
    reason: str
    suits: str = "machine"  # the machine or the environment, whichever the value suits


class Devices(NamedTuple):
    learning: Sequence[Any]  # devices of all processes
    acting: Sequence[Any]  # devices of this process


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run's settings, and what they name. Each part is looked up when it is first read, and then kept.

    Raises:
        UserError: where a part is read: it can't be found, or does not fit the others.
    """

    config: Config
    machine: Machine | None = None  # the last three: of a training
    chosen: Sequence[Chosen] = ()  # settings left to the machine and the environment
    devices: Devices = Devices((), ())

    @functools.cached_property
    def environment(self) -> Environment:
        return find_environment(self.config.env)

    @property
    def language(self) -> Language | None:
        return self.environment.language

    @functools.cached_property
    def questions(self) -> Sequence[tuple[AnnotationConfig, str]]:
        """The run's questions, each once: settings and kind of query."""
        return questions(self.config)

    def prompt(self, settings: AnnotationConfig, kind: str) -> Prompt:
        return load_prompt(settings, self.language, kind)

    @functools.cached_property
    def policy_spec(self) -> EnvSpec:
        """The environment with what the policy observes."""
        load_plugins(self.config.env.plugin)  # one may register the encoder
        return env_spec(self.config.env, policy_observations(self.config.network))

    @functools.cached_property
    def reward_spec(self) -> EnvSpec:
        """The environment with what the policy or a reward observes."""
        return env_spec(self.config.env, observations_read(self.config))

    @functools.cached_property
    def world_spec(self) -> EnvSpec:
        """The environment with what the policy, a reward or the guide observes."""
        return env_spec(self.config.env, {*observations_read(self.config), *self._guide_observations()})

    def _guide_observations(self) -> Collection[str]:
        """Returns the names of the observations that the guide reads.

        Raises:
            UserError: there is no such run, or it sees goals and this run suggests none.
        """
        from oni_jax.runs.run import Run  # it imports this

        guide = self.config.pretrained.guide
        if not guide:
            return ()
        network = Run(guide).plan.config.network
        sees_open_goals = network.goal_conditioned and not network.goal_input
        if sees_open_goals and self.config.env.goals.suggester == NO_GOALS:
            raise UserError(f"--guide {guide}: sees goals; say whose with --goal_suggester, such as task or oracle")
        return policy_observations(network)

    def world_seed(self, env_steps: int, process: int = 0) -> int:
        """Returns the seed of the environments of a process, in a run that has come so far."""
        parts = [self.config.run.seed, env_steps, *([process] if process else [])]
        return int(np.random.SeedSequence(parts).generate_state(1)[0])


def with_choices(config: Config) -> Config:
    """Returns the settings with what they leave open chosen, on any machine: environment, encoder, and `--answers`."""
    config = with_chosen_encoder(with_chosen_env(config))
    return with_chosen_answers(config, questions(config), find_environment(config.env).language)


def with_chosen_env(config: Config) -> Config:
    """Returns the settings with `auto` of --caption and --goal_suggester replaced by what suits rewards and policy, and
    with the goals of --goal_key where one agent has several.

    Raises:
        UserError: an unknown environment, settings of another one, or a policy that is to see goals where there are
            none.
    """
    env, goals = config.env, config.env.goals
    labels_events = find_environment(env).labels_events  # also loads the plugins
    names = [(term, name) for term in config.terms() for name in term.reward.llm_reward_type.split(",")]
    kinds = [(term, REWARD_TYPES.get(name, NONE)) for term, name in names]
    paying = [term for term, kind in kinds if kind.pays_goals]
    if env.caption == AUTO:
        is_event = labels_events and all(kind.of_events for _, kind in kinds)
        env = dataclasses.replace(env, caption=EVENT if is_event else STATE)
    if goals.suggester == AUTO and config.goals():
        goals = dataclasses.replace(goals, suggester=NO_GOALS)
    if goals.suggester == AUTO:
        asks = any(term.annotation.llm_server_addr for term in paying)
        of_state = TASK if env.crafter.task else LLM if asks else ORACLE
        suggester = of_state if paying or config.network.goal_conditioned else NO_GOALS
        goals = dataclasses.replace(goals, suggester=suggester)
    if config.network.goal_conditioned and not config.goals() and goals.suggester == NO_GOALS:
        raise UserError(f"--goal_suggester {NO_GOALS}: --goal_conditioned shows goals to the policy; leave it out")
    env = dataclasses.replace(env, goals=goals, episode_goal=_episode_goal(config))
    check_env(env)
    if goals.suggester in BY_LLM and not paying:
        raise UserError(
            f"--goal_suggester {goals.suggester}: nothing asks it without --llm_reward_type {GOAL_REWARDED}"
        )
    pays_task = paying and goals.suggester == TASK
    if env.crafter.task and not config.reward.extrinsic_reward_coeff and not pays_task:
        raise UserError("--crafter_task: pays nothing with --extrinsic_reward_coeff 0; give it another")
    config = dataclasses.replace(config, env=env)
    _check_goals(config)
    return _with_goal_input(config) if config.goals() else config


def _episode_goal(config: Config) -> EpisodeGoalConfig:
    """Returns the settings of the episodes' goals with the goals' names. Raises UserError: others are given."""
    given, names = config.env.episode_goal, ",".join(config.goals())
    if given.names not in ("", names):
        raise UserError(f"--episode_goals {given.names}: are the several of --goal_key; leave it out")
    return dataclasses.replace(given, names=names)


def _check_goals(config: Config) -> None:
    """Raises UserError: one agent is to have several goals, and its reward, or a setting, is of one goal alone."""
    network, suggester = config.network, config.env.goals.suggester
    _check_asked_together(config)
    if not config.goals():
        if network.goal_input:
            raise UserError(f"--goal_input {network.goal_input}: has no meaning without several goals in --goal_key")
        return
    flag, name = f"--goal_key {config.annotation.goal_key}", config.reward.llm_reward_type
    if not reward_type(config).by_goal:
        able = ", ".join(name for name, kind in REWARD_TYPES.items() if kind.by_goal)
        raise UserError(f"{flag}: --llm_reward_type {name} pays the same whatever the goal; use one of {able}")
    if config.annotation.goal:
        raise UserError(f"{flag}: --goal replaces it by one goal; leave one of them out")
    if not network.goal_conditioned:
        raise UserError(f"{flag}: one agent has to see which goal an episode has; add --goal_conditioned")
    if suggester != NO_GOALS:
        raise UserError(f"{flag}: its policy sees these goals, and no others; leave --goal_suggester {suggester} out")
    if config.env.episode_goal.texts and network.goal_input in ("", INDEX):
        raise UserError("--goal_texts: has no meaning without --goal_input text; leave it out")


def _check_asked_together(config: Config) -> None:
    """Raises UserError: one query is to ask about several goals, and there is one, or no label of captions."""
    for term in config.terms():
        if term.annotation.llm_answer != BY_GOAL:
            continue
        kind, name = reward_type(term).query, term.reward.llm_reward_type
        if kind and not isinstance(QUERIES[kind], TwoChoices):
            raise UserError(
                f"--llm_answer {BY_GOAL}: gives a caption's label under each goal, and --llm_reward_type {name} "
                f"asks for {kind}; use --llm_answer {REASONED}"
            )
        if not config.goals():
            raise UserError(
                f"--llm_answer {BY_GOAL}: asks about several goals in one query; name them with --goal_key, or use "
                f"--llm_answer {REASONED}"
            )
        if term.reward.llm_reward_value != "label":
            raise UserError(
                f"--llm_answer {BY_GOAL}: has no probabilities for --llm_reward_value {term.reward.llm_reward_value}; "
                f"use --llm_answer {LABEL}"
            )


def _with_goal_input(config: Config) -> Config:
    """Returns the settings of an agent of several goals with what its policy sees of them.

    Raises:
        UserError: the prompt has no text for a goal.
    """
    env, given = config.env, config.network.goal_input or INDEX
    texts = env.episode_goal.texts
    if given != INDEX and not texts:
        language, kind = find_environment(env).language, reward_type(config).query or Classification.name
        found = [goal_text(term.annotation, language, kind) for term in config.terms_by_goal()]
        texts = SEPARATOR.join(text.split(". ")[0].rstrip(".") for text in found)
    env = dataclasses.replace(env, episode_goal=dataclasses.replace(env.episode_goal, texts=texts))
    check_env(env)
    return dataclasses.replace(config, env=env, network=dataclasses.replace(config.network, goal_input=given))


def with_chosen_encoder(config: Config) -> Config:
    """Returns the settings with `auto` of --encoder_custom and --image_scale replaced.

    Raises:
        UserError: see `chosen_encoder`.
    """
    from oni_jax.runs.run import Run  # it imports this

    chosen = {}
    if config.network.encoder_custom == AUTO:
        chosen["encoder_custom"] = chosen_encoder(config).value
    if config.network.image_scale == AUTO:
        folder = config.pretrained.init_from
        scale = Run(folder).config.network.image_scale if folder else AUTO
        chosen["image_scale"] = SPACE if scale == AUTO else scale
    return with_values(config, chosen) if chosen else config


def chosen_encoder(config: Config) -> Chosen:
    """Chooses the encoder where none is named: the one of --init_from, or else the one that fits the environment.

    Raises:
        UserError: there is no such run, or the environment names an unknown encoder.
    """
    from oni_jax.runs.run import Run  # it imports this

    if folder := config.pretrained.init_from:
        name = Run(folder).config.network.encoder_custom
        return Chosen("encoder_custom", name, f"--init_from {folder} was trained with it", "environment")
    name = fitting_encoder(config.network, env_spec(config.env), find_environment(config.env).encoder)
    network = dataclasses.replace(config.network, encoder_custom=name)
    names = [*env_spec(config.env, policy_observations(network)).observations]
    shown = ", ".join(name for name in names if name != GOAL_FEATURES) or "nothing"
    shown += "; the policy sees its episode's goal too" * (GOAL_FEATURES in names)
    about = f"; {ENCODERS[name].about}" if ENCODERS[name].about else ""
    return Chosen("encoder_custom", name, f"it reads {shown}{about}", "environment")
