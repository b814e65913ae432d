"""Writes what a run has learnt into one file for others: settings, parameters, scores, and a model card.

python -m launch.export train_dir/make_train --licence CC-BY-4.0
"""

import dataclasses
import os
import sys

from launch.next_commands import command, show
from launch.program import brief_program
from oni_jax.evaluation.config import BEST, LATEST, EvaluationConfig, check_checkpoint
from oni_jax.host.files import check_output, write_output
from oni_jax.runs.run import Run
from oni_jax.runs.shared_file import run_name
from oni_jax.settings.fields import UserError, setting
from oni_jax.settings.run import RunConfig
from oni_jax.show.report.listing import run_folder


@dataclasses.dataclass(frozen=True)
class ExportConfig:
    """A run, and the file that it is written into."""

    run: str = setting("", "Folder of the run, or its name in ./train_dir.", positional=True)
    checkpoint: str = setting(LATEST, "Checkpoint: latest, best (see launch.evaluate), or its number of steps.")
    out: str = setting("", "The file; empty: the run's name with .zip, in the current folder.")
    licence: str = setting("", "Licence under which you share the policy, such as CC-BY-4.0; empty: none is named.")


def _check(config: ExportConfig) -> None:
    if not config.run:
        raise UserError("name the folder of a run, such as train_dir/make_train; python -m launch.ls lists them")
    check_checkpoint("checkpoint", config.checkpoint, (LATEST, BEST))
    if not config.licence.isprintable() or len(config.licence) > 100:
        raise UserError("--licence: must be a few words of one line, such as CC-BY-4.0")
    check_output("out", _out(config))


def _run(config: ExportConfig) -> int:
    run = Run(run_folder(RunConfig.train_dir, config.run))
    _ = run.config  # reports a wrong name
    from oni_jax.evaluation.players import chosen_checkpoints  # imports JAX, which takes seconds: after the checks
    from oni_jax.runs.sharing import share

    train_dir, experiment = os.path.split(os.path.abspath(run.folder))
    (env_steps,) = chosen_checkpoints(train_dir, experiment, config.checkpoint)
    data, out = share(run, env_steps, config.licence), _out(config)
    write_output("out", out, data)
    print(f"{out}: {len(data):,} bytes; it holds a model card, card.md", flush=True)
    show(command("evaluate", EvaluationConfig(), file=out, compare="random"))
    return 0


def _out(config: ExportConfig) -> str:
    return config.out or f"{run_name(Run(config.run).name)}.zip"


main = brief_program("export", ExportConfig(), _check, _run)

if __name__ == "__main__":
    sys.exit(main())
