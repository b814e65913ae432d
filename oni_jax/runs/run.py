"""The run in a folder, which may be going on: all that reads one does so by this class. Without JAX until it must."""

import contextlib
import functools
import glob
import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from oni_jax.host.files import read_regular
from oni_jax.host.plugins import load_plugins
from oni_jax.host.reporting import report
from oni_jax.host.run_files import SETTINGS, saved_steps
from oni_jax.runs import labels
from oni_jax.runs.kept import as_trained
from oni_jax.runs.message_counts import MessageCounts
from oni_jax.runs.plan import Plan, with_chosen_encoder
from oni_jax.settings.config import Config, check_values, config_from_json, is_as_written
from oni_jax.settings.fields import UserError, nearest_first
from oni_jax.settings.plugins import with_brought
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import Annotation

MAX_BYTES = 1 << 24  # bound on a file of settings

if TYPE_CHECKING:  # they import JAX, or read files of metrics alone
    from oni_jax.runs.curves import Curves
    from oni_jax.runs.pretrained import Pretrained
    from oni_jax.runs.rewards import RunRewards


def nearest_run(folder: str, rest: str) -> str:
    """Returns `fields.nearest_first` among the runs beside a folder that holds none."""
    parent, name = os.path.split(os.path.normpath(folder))
    if not os.path.isdir(parent or "."):
        return f"; there is no folder {os.path.abspath(parent)}: start where the run was trained, or name its folder"
    runs = glob.glob(os.path.join(glob.escape(parent), "*", SETTINGS))
    names = [os.path.basename(os.path.dirname(path)) for path in runs]
    return nearest_first(name, names, rest, os.path.join(parent, ""))


class Run:
    """A run. Its settings, its plan and the rewards of a checkpoint are read once, and all else each time.

    Raises:
        UserError: where something is read that is not there, or damaged.
    """

    def __init__(self, folder: str):
        self.folder = folder
        self._rewards: dict[int | None, RunRewards] = {}  # checkpoint -> rewards

    @property
    def name(self) -> str:
        return os.path.basename(os.path.abspath(self.folder))

    @functools.cached_property
    def config(self) -> Config:
        """The settings that it was started with last, as they were given; `plan` reads those that its plugins bring."""
        path = os.path.join(self.folder, SETTINGS)
        try:
            text = read_regular(path, MAX_BYTES)
            config = config_from_json(text)
            check_values(config)  # the file may be a stranger's
            if not is_as_written(text):
                report(f"settings changed by hand, or damaged: {path} has another checksum")
            return config
        except OSError as error:
            hint = nearest_run(self.folder, "name a training run, which python -m launch.ls lists")
            raise UserError(f"{path} can't be read ({error.strerror}){hint}") from None
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    @functools.cached_property
    def plan(self) -> Plan:
        """Its plan, with the plugins and files that it was trained with, whatever the current folder is."""
        config = as_trained(self.folder, self.config)
        try:
            load_plugins(config.env.plugin)
        except UserError:  # the part of the plan that needs it says so
            return Plan(config)
        config = with_brought(config) if config.env.plugin else config
        with contextlib.suppress(UserError):  # a run that was not trained yet may leave its encoder open
            config = with_chosen_encoder(config)
        return Plan(config)

    def steps(self) -> Sequence[int]:
        """Returns the environment steps of its checkpoints, ascending."""
        return saved_steps(self.folder)

    def policy(self, env: EnvConfig | None = None, env_steps: int | None = None) -> "Pretrained":
        """Loads its policy, to act in its environment, or in another one; see `load_pretrained`."""
        from oni_jax.runs.pretrained import load_pretrained

        return load_pretrained(self, env or self.plan.config.env, env_steps)

    def rewards(self, env_steps: int | None = None) -> "RunRewards":
        """Loads its rewards, with its labels so far: once, as they may change meanwhile; see `load_rewards`."""
        from oni_jax.runs.rewards import load_rewards

        if env_steps not in self._rewards:
            found = load_rewards(self, env_steps)
            self._rewards |= {env_steps: found, found.env_steps: found}
        return self._rewards[env_steps]

    def annotations(self) -> list[Annotation]:
        """Returns the answers to its questions that its label store holds."""
        return labels.read_annotations(self.plan, self.folder)

    def labels_by(self) -> str:
        """Returns who made its labels, in words; see `labels.labels_by`."""
        return labels.labels_by(self.plan, self.folder)

    def metrics(self, names: Collection[str], label: str = "") -> "Curves":
        """Returns metrics over time; `label`: another name for it in figures."""
        from oni_jax.runs.curves import read_curves

        return read_curves(self, names, label or self.name)

    def captions(self) -> Counter[bytes]:
        """Returns caption -> number of its steps that have it."""
        met = MessageCounts()
        met.restore(self.folder)
        return Counter(met.counts())
