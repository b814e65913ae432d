"""Evaluates a trained or a random policy, and reports returns and other measures with error bars.

python -m launch.evaluate --experiment score_retrieval --compare random
"""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import TypeVar

from launch.next_commands import command, show, values_of
from launch.program import program
from oni_jax.envs.registry import display_of
from oni_jax.evaluation.config import RANDOM, EvaluationConfig, check_evaluate
from oni_jax.host.run_files import last_row
from oni_jax.host.runtime import StopRequest
from oni_jax.settings.worlds import EnvConfig
from oni_jax.show.config import PlayConfig
from oni_jax.show.report.config import ReportConfig

Player = TypeVar("Player", EvaluationConfig, PlayConfig)


def make_deterministic() -> None:
    """Turns on deterministic GPU kernels, before JAX is imported: otherwise XLA may choose others in each process."""
    flags, flag = os.environ.get("XLA_FLAGS", ""), "--xla_gpu_deterministic_ops=true"
    if flag not in flags.split():  # twice would be another key of JAX's compilation cache
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


def _run(config: EvaluationConfig, stop: StopRequest) -> int:
    make_deterministic()
    from oni_jax.evaluation.players import evaluated_task
    from oni_jax.evaluation.program import evaluate  # imports JAX, which takes seconds: after the checks
    from oni_jax.host.caches import keep_compiled_code

    keep_compiled_code()
    recorder = None
    with in_file(config) as played:
        if config.record:
            from oni_jax.show.recordings import Recorder

            recorder = Recorder(played, stop)
        code = evaluate(played, stop, recorder)
        if code == 0 and config.policy != RANDOM:
            _show_next(config, evaluated_task(played))
    return code


@contextlib.contextmanager
def in_file(config: Player) -> Iterator[Player]:
    """Yields the settings of a program with the run of its file, if it names one, as its experiment."""
    if not config.file:
        yield config
        return
    from oni_jax.runs.sharing import unpacked  # imports JAX

    with unpacked(config.file, config.trust_code) as run:
        train_dir, experiment = os.path.split(run.folder)
        values = {"train_dir": train_dir, "experiment": experiment}
        if isinstance(config, EvaluationConfig):
            values["recordings_dir"] = config.recordings_dir or f"{experiment}_recordings"
            if config.compare not in ("", RANDOM):
                values["compare"] = os.path.abspath(os.path.join(config.train_dir, config.compare))
        yield dataclasses.replace(config, **values)


def _show_next(config: EvaluationConfig, env: EnvConfig) -> None:
    named = {"train_dir": config.train_dir, "experiment": config.experiment}
    folder = os.path.join(config.train_dir, config.experiment)
    in_report = os.path.realpath(config.json) == os.path.realpath(os.path.join(folder, "evaluation.json"))
    found = []
    if not config.record and display_of(env):
        alone = {"compare": "", "json": "", "csv": "", "record": 1}
        found.append(command("evaluate", EvaluationConfig(), **{**values_of(config), **alone}))
    if not config.file and last_row(folder):
        found.append(command("report", ReportConfig(), **named, evaluation="" if in_report else config.json))
    show(*found)


main = program("evaluate", EvaluationConfig(), check_evaluate, _run)

if __name__ == "__main__":
    sys.exit(main())
