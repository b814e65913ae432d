"""Settings of a run's folder, limits, checkpoints and logs."""

import dataclasses

from oni_jax.settings.fields import COUNT, POSITIVE, setting


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Folder, limits, checkpoints and logs of a run."""

    train_dir: str = setting("./train_dir", "Folder of experiments.")
    experiment: str = setting(
        "default_experiment", "Name of this run's folder, else that of --config; a run that is there is resumed."
    )
    seed: int = setting(1, "Seed of networks, sampling and environments.", within="[0, 2147483648)")
    train_for_env_steps: int = setting(10_000_000_000, "Environment steps after which the run ends.", within=COUNT)
    train_for_seconds: float = setting(1e10, "Seconds after which the run ends.", within=POSITIVE)
    save_every_sec: float = setting(120.0, "Seconds between checkpoints; 0: none.")
    save_every_steps: int = setting(0, "Environment steps between checkpoints; 0: none.")
    keep_checkpoints: int = setting(3, "Newest checkpoints kept.", within=COUNT)
    save_milestones_sec: float = setting(0.0, "Seconds between checkpoints kept for ever; 0: none.")
    on_sigusr1: str = setting(
        "stop",
        "On SIGUSR1, as before Slurm's time limit: save and exit, or save and go on.",
        choices=("stop", "save"),
    )
    stats_avg: int = setting(100, "Episodes over which statistics are averaged.", within=COUNT)
    log_every_sec: float = setting(5.0, "Seconds between rows of metrics.", within=POSITIVE)
    wandb: bool = setting(False, "Log to Weights & Biases.")
    wandb_entity: str = setting("", "Weights & Biases entity.")
    wandb_proj: str = setting("", "Weights & Biases project.")
