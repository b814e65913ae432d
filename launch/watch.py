"""Replays a recorded game in the terminal, with pause, step and speed."""

import dataclasses
import sys
from collections.abc import Sequence

from launch.program import run_program
from oni_jax.config import UserError, check_values, setting
from oni_jax.runtime import StopRequest


@dataclasses.dataclass(frozen=True)
class WatchConfig:
    """What is watched. Keys: space pause, . forward, , back, + - speed, 0 $ first and last screen, q quit."""

    file: str = setting("", "A ttyrec of NLE's, as launch.evaluate --record writes.", positional=True)
    screens_per_sec: float = setting(8.0, "Speed at the start.", within="[0.5, 128]")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None).

    Returns:
        The exit code: 0 done, 2 bad input (one line on stderr), 130 interrupted.
    """
    return run_program("watch", argv, WatchConfig(), _check, _run)


def _check(config: WatchConfig) -> None:
    check_values(config)
    if not config.file:
        raise UserError("name a recording: python -m launch.watch FILE")


def _run(config: WatchConfig, stop: StopRequest) -> int:
    from oni_jax.viewing.playback import watch
    from oni_jax.viewing.screen import COLUMNS, ROWS
    from oni_jax.viewing.shell import Shell, check_terminal
    from oni_jax.viewing.ttyrec import Film

    film = Film(config.file)
    check_terminal("watch", [(COLUMNS, ROWS)])
    with Shell() as shell:
        watch(film, config.screens_per_sec, shell, stop)
    return 130 if stop else 0


if __name__ == "__main__":
    sys.exit(main())
