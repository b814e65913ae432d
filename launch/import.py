"""Makes a run of a file of launch.export: it can be evaluated, inspected, played and trained further.

python -m launch.import policy.zip
"""

import dataclasses
import os
import sys

from launch.next_commands import command, show
from launch.program import brief_program
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.runs.shared_file import find_shared, read_shared
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, setting
from oni_jax.settings.run import RunConfig


@dataclasses.dataclass(frozen=True)
class ImportConfig:
    """A file, and the run that is made of it."""

    file: str = setting("", "File of launch.export, or one of the package's policies by name.", positional=True)
    trust_code: bool = setting(False, "Run the plugins of the file; read them first.")
    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting("", "Name of the run; empty: as in the file.")


def _check(config: ImportConfig) -> None:
    if not config.file:
        raise UserError("name a file of launch.export")
    if any(part in (".", "..") for part in config.experiment.split("/")):
        raise UserError(f"--experiment {config.experiment!r}: must be the name of a folder")


def _run(config: ImportConfig) -> int:
    path = find_shared(config.file)
    experiment = config.experiment or read_shared(path).name
    from oni_jax.published.importing import import_shared  # imports JAX, which takes seconds: after the checks

    import_shared(path, RunConfig(train_dir=config.train_dir, experiment=experiment), config.trust_code)
    folder = os.path.join(config.train_dir, experiment)
    print(f"{path}: is now the run {folder}", flush=True)
    named = {"train_dir": config.train_dir, "experiment": experiment}
    show(command("evaluate", EvaluationConfig(), **named), command("train", Config(), resume=folder))
    return 0


main = brief_program("import", ImportConfig(), _check, _run)

if __name__ == "__main__":
    sys.exit(main())
