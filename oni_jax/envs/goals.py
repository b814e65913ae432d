"""Environments with goals suggested for each state, and paid to an action that reaches one: ELLM, arXiv 2302.06692.

An environment's goals are phrases such as `chop tree`; what an action reached is known from its effect. Goals are
suggested for the state in which the action is taken. Each pays once an episode; so do those that mean the same,
together.

Two observations, shown when they are asked for by name: `goal_reward` [] float32, what the last action was paid, 0 at
an episode's start; `open_goals` [G + 1] float32, what reaching each goal would pay now, and last the number of things
suggested that are no goals of the environment.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from oni_jax.envs.base import Environment, VectorEnv
from oni_jax.envs.event_captions import EVENT
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import GOAL_REWARD, OPEN_GOALS, ArraySpec, EnvSpec

if TYPE_CHECKING:
    from oni_jax.envs.device.base import DeviceEnv
    from oni_jax.envs.device.goals import HostTable

NO_GOALS, ORACLE, TASK, LLM, MODEL = "none", "oracle", "task", "llm", "model"  # values of --goal_suggester
BY_LLM = (LLM, MODEL)  # those that ask an LLM
# Statistics of an episode: actions paid; open goals, summed over its states, by the kind of suggestion that they are:
# the oracle suggests them too; some other state would allow them; none would; they are no goals of the environment. And
# how many of the goals that were ever suggested were reached. Fractions are 0 where nothing was suggested.
GOAL_STATS = (
    "goals_reached",
    "goals_timely_fraction",
    "goals_mistimed_fraction",
    "goals_bad_fraction",
    "goals_invalid_fraction",
    "goals_achieved_fraction",
)


class Suggested(NamedTuple):
    """Goals of an LLM, for environments that are played outside training."""

    table: "HostTable | None" = None  # its answers; None: nothing
    model: Any = None  # a `device.goals.GoalModel` of it; None: nothing


def goal_spec(spec: EnvSpec) -> EnvSpec:
    """Returns the spec of an environment with goals suggested for its states."""
    shown = {GOAL_REWARD: ArraySpec((), "float32"), OPEN_GOALS: ArraySpec((len(spec.goals) + 1,), "float32")}
    return spec._replace(observations={**spec.observations, **shown}, episode_stats=(*spec.episode_stats, *GOAL_STATS))


def check_goals_shown(config: EnvConfig, shown: EnvSpec) -> None:
    """Raises UserError: goals are to be shown that nobody suggests here."""
    suggester = config.goals.suggester
    if suggester in BY_LLM and OPEN_GOALS in shown.observations:
        raise UserError(
            f"--goal_suggester {suggester}: only a run that trains on the device, and what plays its policy, knows an "
            f"LLM's goals; add --goal_suggester {ORACLE}"
        )


def with_goals(environment: Environment, suggested: Suggested | None = None) -> Environment:
    """Returns the environment with goals suggested for its states. Its functions raise UserError where it has none.

    Args:
        environment: whose states have goals.
        suggested: by an LLM; None: it is not known here.
    """

    def make_spec(config: EnvConfig) -> EnvSpec:
        spec, settings = environment.make_spec(config), config.goals
        if environment.device is None or not spec.goals:
            raise UserError(
                f"--goal_suggester {settings.suggester}: {config.root_env} has no goals; use one that has, such "
                "as CrafterTextEnv-v1"
            )
        if settings.suggester in BY_LLM and config.caption == EVENT:
            raise UserError(
                f"--caption event: --goal_suggester {settings.suggester} suggests goals for states; leave it out"
            )
        if settings.suggester == TASK and not config.crafter.task:
            raise UserError("--goal_suggester task: needs --crafter_task")
        if settings.suggester == "random" and settings.count > len(spec.goals):
            raise UserError(f"--goal_count {settings.count}: {config.root_env} has {len(spec.goals)} goals")
        return goal_spec(spec)

    def wrapped(made: Any, config: EnvConfig) -> Any:
        return made.wrapped(lambda env: _wrap(env, config).suggesting(*suggested or Suggested()))

    def make(config: EnvConfig, shown: EnvSpec, *args: Any) -> VectorEnv:
        if suggested is None:
            check_goals_shown(config, shown)
        return wrapped(environment.make(config, shown, *args), config)

    def device(config: EnvConfig) -> "DeviceEnv":
        assert environment.device is not None
        return _wrap(environment.device(config), config)

    display = environment.display
    if display:
        watch = display.watch
        display = display._replace(watch=lambda config, *args: wrapped(watch(config, *args), config))  # type: ignore
    on_request = (*environment.on_request, GOAL_REWARD, OPEN_GOALS)
    return environment._replace(make_spec=make_spec, make=make, device=device, display=display, on_request=on_request)


def _wrap(env: "DeviceEnv", config: EnvConfig) -> "DeviceEnv":
    # Imported here: JAX is needed where environments run, not where they are named
    from oni_jax.envs.device.goals import WithGoals

    return WithGoals(env, config.goals)
