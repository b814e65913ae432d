"""Plays episodes with a run's checkpoints, or at random, and records them for potentials to be made from.

python -m launch.collect_segments --policy random --root_env BabyAI-Text-GoToLocal-Pretraining-S20
"""

import contextlib
import sys

from launch.next_commands import command, show, values_of
from launch.program import program
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import AnnotateSegments, WriteGoals, WritePotential
from oni_jax.offline.segment_config import CollectSegments, as_evaluation, check_collect
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig

WAYS = (  # program, its settings, kind of query, ending of the folder's name
    ("write_potential", WritePotential(), "code", "potential"),
    ("annotate_segments", AnnotateSegments(), "segments", "preferences"),
    ("write_goals", WriteGoals(), "goals", "goals"),
)


def _run(config: CollectSegments, stop: StopRequest) -> int:
    from oni_jax.offline.play import collect_segments

    code = collect_segments(config, stop)
    if code == 0:
        from oni_jax.evaluation.players import evaluated_task

        _show_next(config.segments.directory, evaluated_task(as_evaluation(config.segments)))
    return code


def _show_next(directory: str, env: EnvConfig) -> None:
    """Prints the ways to a potential for which the environment has a prompt."""
    found = []
    for way, defaults, kind, name in WAYS:
        with contextlib.suppress(UserError):
            Plan(Config(env)).prompt(defaults.annotation, kind)
            folder = f"{directory.rstrip('/')}_{name}"
            found.append(command(way, defaults, **values_of(env), segments=directory, reward_dir=folder))
    show(*found)


main = program("collect_segments", CollectSegments(), check_collect, _run)

if __name__ == "__main__":
    sys.exit(main())
