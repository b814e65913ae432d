"""Plays a task in the terminal, by hand, at random or by a run's policy, with the LLM's label of every caption.

python -m launch.play --experiment score_retrieval
"""

import sys

from launch.evaluate import in_file, make_deterministic
from launch.next_commands import command, show, values_of
from launch.program import program
from oni_jax.evaluation.config import RANDOM, EvaluationConfig
from oni_jax.host.runtime import StopRequest
from oni_jax.show.config import HUMAN, PlayConfig, check_play


def _run(config: PlayConfig, stop: StopRequest) -> int:
    from oni_jax.envs.display import COLUMNS, ROWS
    from oni_jax.show.play import play
    from oni_jax.show.shell import Shell, check_terminal

    check_terminal("play", COLUMNS, ROWS)
    if config.file or config.experiment or config.policy != HUMAN:
        make_deterministic()
        from oni_jax.host.caches import keep_compiled_code  # imports JAX

        keep_compiled_code()
    with in_file(config) as played:
        session = play(played, Shell, stop)
    print(session.summary())
    if (config.experiment or config.file) and config.policy not in (HUMAN, RANDOM):
        show(evaluation_of(config))
    return 130 if stop else 0


def evaluation_of(config: PlayConfig) -> str:
    """Returns the command that evaluates what played."""
    values = values_of(config)
    if config.file:
        del values["experiment"]  # empty here, and not there
    return command("evaluate", EvaluationConfig(), **values)


main = program("play", PlayConfig(), check_play, _run)

if __name__ == "__main__":
    sys.exit(main())
