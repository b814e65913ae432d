"""Plays an environment at random, shows what it gives, and says what looks wrong.

python -m launch.check_env Catch-v0
"""

import dataclasses
import sys

from launch.program import brief_program
from oni_jax.runs.plan import with_chosen_env
from oni_jax.settings.config import Config, check_values
from oni_jax.settings.fields import UserError, setting
from oni_jax.settings.worlds import EnvConfig


@dataclasses.dataclass(frozen=True)
class CheckedConfig:
    """The environment that is checked."""

    name: str = setting("", "Task id, as of --root_env; required.", positional=True)
    steps: int = setting(1000, "Random steps; more until an episode ends.", within="[2, inf)")
    seed: int = setting(1, "Seed of the environment and of the actions.", within="[0, 2147483648)")


@dataclasses.dataclass(frozen=True)
class CheckEnv:
    """Settings of launch.check_env."""

    check: CheckedConfig = CheckedConfig()
    env: EnvConfig = EnvConfig()


def _check(config: CheckEnv) -> None:
    check_values(config)
    if not config.check.name or "," in config.check.name:
        raise UserError("name one environment: launch.check_env NAME; launch.train --help root_env lists them")


def _run(config: CheckEnv) -> int:
    from oni_jax.envs.checking import check_environment

    env = dataclasses.replace(config.env, root_env=config.check.name)
    found = check_environment(with_chosen_env(Config(env=env)).env, config.check.steps, config.check.seed)
    lines = [*found.seen, *(f"note: {line}" for line in found.notes), *(f"wrong: {line}" for line in found.wrong)]
    print("\n".join(lines if found.wrong else [*lines, "nothing looks wrong"]))
    return 1 if found.wrong else 0


main = brief_program("check_env", CheckEnv(), _check, _run)

if __name__ == "__main__":
    sys.exit(main())
