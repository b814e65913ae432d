"""Registry of environments. A new one is its file and a line of ENVIRONMENTS; a plugin registers others."""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from oni_jax.envs import babyai, catch, crafter, nethack
from oni_jax.envs.base import STEP_FIELDS, Environment, Language, VectorEnv
from oni_jax.envs.display import Display
from oni_jax.envs.episode_goals import check_episode_goals, with_episode_goals
from oni_jax.envs.event_captions import EVENT, of_events, with_event_captions
from oni_jax.envs.goals import BY_LLM, MODEL, NO_GOALS, Suggested, with_goals
from oni_jax.envs.history import CAPTION, offered, past_specs, sources, with_history
from oni_jax.host.plugins import load_plugins
from oni_jax.settings.fields import UserError, given, nearest_first, sections
from oni_jax.settings.plugins import bring
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import EVERYTHING, EnvSpec

AUTO = "auto"  # `--caption`, `--goal_suggester`
ALL_NAMES = "launch.train --help root_env"  # command that errors name
MAX_ACTIONS = 256  # an episode's actions are stored as bytes
ENVIRONMENTS = [nethack.ENVIRONMENT, catch.ENVIRONMENT, babyai.ENVIRONMENT, crafter.ENVIRONMENT]


def register_environment(environment: Environment) -> None:
    """Registers an environment under its names. Raises UserError when one of them is taken."""
    taken = sorted({*environment.names} & {*environment_names()})
    if taken:
        raise UserError(f"the environment {taken[0]} is registered already: choose another name")
    task = next(iter(environment.names), "")
    if environment.language and (name := environment.language.name):
        if not isinstance(name, str) or not name.isidentifier():
            raise UserError(f"the Language of {task} has the name {name!a}: choose letters and digits")
        if name in languages():
            raise UserError(f"the Language name {name} of {task} is taken: choose another")
    bring(EnvConfig(), environment.settings)
    ENVIRONMENTS.append(environment)


def environment_names() -> list[str]:
    """Returns the names of all registered tasks."""
    return [name for environment in ENVIRONMENTS for name in environment.names]


def languages() -> dict[str, Language]:
    """Returns the prompts of the registered environments, by the names that files of recorded answers have for them."""
    found = [environment.language for environment in ENVIRONMENTS]
    named = [language for language in found if language and language.name]
    return {language.name: language for language in (*named, *map(of_events, named))}


def find_environment(config: EnvConfig, suggested: Suggested | None = None) -> Environment:
    """Returns the environment of `root_env`, plugins included. Raises UserError: unknown, or a plugin fails.

    suggested: goals, see `with_goals`.
    """
    load_plugins(config.plugin)
    for environment in ENVIRONMENTS:
        if config.root_env in environment.names:
            environment = with_event_captions(environment) if config.caption == EVENT else environment
            has_goals = config.goals.suggester not in (AUTO, NO_GOALS)
            environment = with_goals(environment, suggested) if has_goals else environment
            return with_episode_goals(environment) if config.episode_goal.names else environment
    known = environment_names()
    raise UserError(
        f"unknown root_env {config.root_env!r}"
        + nearest_first(config.root_env, known, f"all: {ALL_NAMES}; one of your own needs --plugin", most=3)
    )


def env_spec(config: EnvConfig, observations: Collection[str] = (EVERYTHING,)) -> EnvSpec:
    """Returns an environment's spec with these observations, in its order, without starting it.

    The caption and those of earlier steps come last; see `envs.history`.

    Raises:
        UserError: an unknown name, or an observation that it does not have.
    """
    environment = find_environment(config)
    spec = environment.make_spec(config)
    taken = {CAPTION, *(field for field, _ in STEP_FIELDS)} & {*spec.observations}
    if taken:
        raise UserError(
            f"--root_env {config.root_env}: its observation {min(taken)} has the name of a step's field: rename it"
        )
    if spec.num_actions > MAX_ACTIONS:
        raise UserError(f"--root_env {config.root_env}: has {spec.num_actions} actions; {MAX_ACTIONS} at most")
    needed = sources(observations)
    known = offered(spec)
    if environment.device and CAPTION in known:
        known[CAPTION] = known[CAPTION]._replace(is_key=True)
    missing = [name for name in needed if name not in (EVERYTHING, *known)]
    if missing:
        fitting = environment.encoder or "generic_encoder"
        raise UserError(
            f"--root_env {config.root_env} does not show {', '.join(missing)}, which the encoder or the reward reads "
            f"(it shows {', '.join(spec.observations) or 'nothing'}): choose another, such as "
            f"--encoder_custom {fitting}, or another environment"
        )
    unasked = {*spec.observations} - {*environment.on_request} if EVERYTHING in observations else set()
    shown = {name: x for name, x in known.items() if name in unasked.union(needed)}
    return spec._replace(observations={**shown, **past_specs(spec, observations)})


def step_limit(config: EnvConfig) -> int:
    """Returns the most steps of an episode: `max_episode_steps`, or the environment's limit if that is less."""
    environment = find_environment(config)
    limit = environment.device(config).max_episode_steps if environment.device else environment.limit(config)
    return min(limit or config.max_episode_steps, config.max_episode_steps)


def check_env(config: EnvConfig) -> None:
    """Raises UserError: a setting is another environment's, or has no meaning beside the others."""
    read = find_environment(config).settings
    others = {kind for environment in ENVIRONMENTS for kind in environment.settings} - {*read}
    for section in sections(config).values():
        for name, value in given(section).items() if type(section) in others else ():
            raise UserError(f"--{name} {value}: has no meaning in {config.root_env}; leave it out")
    _check_used(config)


def _check_used(config: EnvConfig) -> None:
    check_episode_goals(config.episode_goal)
    crafter, goals = config.crafter, config.goals
    suggester = goals.suggester
    uses = {  # names of settings, what they need, and whether it is there
        ("crafter_subgoals", "crafter_task_repeats"): ("--crafter_task", bool(crafter.task)),
        ("crafter_textures",): ("--crafter_view rgb or grey", crafter.view != "tiles"),
        ("goal_count",): ("--goal_suggester random", suggester == "random"),
        ("goal_table_size", "goal_similarity", "goal_parser"): (
            f"--goal_suggester {' or '.join(BY_LLM)}",
            suggester in BY_LLM,
        ),
        ("goal_answers",): (f"--goal_suggester {MODEL}", suggester == MODEL),
        ("goal_threshold",): ("--goal_similarity embeddings", goals.similarity == "embeddings"),
        ("goal_success", "goal_repeats"): ("goals", suggester != NO_GOALS),
    }
    changed = given(crafter) | given(goals)
    for names, (needed, is_there) in uses.items():
        for name in names:
            if not is_there and name in changed:
                raise UserError(f"--{name} {changed[name]}: has no meaning without {needed}; leave it out")


def offered_spec(config: EnvConfig) -> EnvSpec:
    """Returns the spec with all that an environment offers, also what it shows on request alone."""
    return find_environment(config).make_spec(config)


def seen_by_code(config: EnvConfig) -> Mapping[str, Sequence[str]]:
    """Returns the observations that a generated code sees, see `Language.code`; {}: all, as nested lists."""
    language = find_environment(config).language
    return language.code if language else {}


def display_of(config: EnvConfig, suggested: Suggested | None = None) -> Display | None:
    """Returns how an environment is shown and played by people; None: it is shown as its captions.

    suggested: goals, see `find_environment`.
    """
    return find_environment(config, suggested).display


def base_spec(config: EnvConfig, observations: Collection[str]) -> EnvSpec:
    """Returns the spec with what an environment is to show itself; `history.with_history` adds what it does not.

    Raises:
        UserError: see `env_spec`.
    """
    shows_key = find_environment(config).device is not None  # environments on the host show none
    return env_spec(config, [name for name in sources(observations) if shows_key or name != CAPTION])


def caption_reader(config: EnvConfig) -> Callable[[np.ndarray], bytes]:
    """Returns the function that turns an environment's observation `caption` [K] uint8 into the text."""
    if make_device_env := find_environment(config).device:
        return make_device_env(config).caption
    return lambda text: text.tobytes().rstrip(b"\0")


def make_vector_env(
    config: EnvConfig,
    num_envs: int,
    seed: int,
    first_index: int,
    observations: Collection[str] = (EVERYTHING,),
    suggested: Suggested | None = None,
) -> VectorEnv:
    """Makes `num_envs` environments. Raises UserError: see `env_spec`.

    Args:
      config: the environment's name, its step limit, and its settings.
      num_envs: N.
      seed: not negative.
      first_index: index of the first one among all environments with this seed, not negative.
      observations: names of those to show.
      suggested: goals, see `find_environment`.
    """
    env = find_environment(config, suggested).make(config, base_spec(config, observations), num_envs, seed, first_index)
    return with_history(env, env_spec(config, observations))
