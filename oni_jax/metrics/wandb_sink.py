"""Weights & Biases."""

import netrc
import os
import pathlib
import time
import urllib.parse
import uuid
from collections.abc import Callable
from typing import Any

from oni_jax.host.files import write_atomically
from oni_jax.host.json_files import read_json
from oni_jax.host.reporting import report
from oni_jax.host.run_files import SETTINGS
from oni_jax.metrics.rows import Row, histograms, numbers
from oni_jax.metrics.tensorboard_sink import NewAnswers
from oni_jax.settings.fields import printable
from oni_jax.settings.json_text import unsealed
from oni_jax.settings.run import RunConfig

NUM_ANSWERS = 8  # answers in a table


class WandbSink:
    """Weights & Biases. A failure is logged once on stderr, and training goes on without it.

    Online, a resumed run keeps its id. Offline, W&B can't resume: every start is a new run, in the experiment's
    group.

    Args:
        run: names the project and the entity.
        folder: the experiment's; holds the id and the settings.
    """

    def __init__(self, run: RunConfig, folder: str | os.PathLike):
        self._run: Any = None
        self._answers = NewAnswers(NUM_ANSWERS)
        try:
            import wandb  # not a dependency
        except Exception as error:  # it is missing, or conflicts with other packages
            missing = isinstance(error, ModuleNotFoundError) and error.name == "wandb"
            why = "it is not installed; pip install wandb" if missing else f"{_first_line(error)}; install it again"
            self._warn(f"{why}; nothing is logged there")
            return
        self._wandb: Any = wandb
        mode = os.environ.get("WANDB_MODE") or ("online" if _has_key() else "")
        if not mode:
            self._warn("no key (wandb login, or $WANDB_API_KEY); logged offline, to be sent with `wandb sync`")
        self._guarded(lambda: self._start(run, pathlib.Path(folder), mode or "offline"), "nothing is logged there")

    def _start(self, run: RunConfig, folder: pathlib.Path, mode: str) -> None:
        kept = _kept_id(folder / "wandb_id.txt")
        start: dict[str, Any] = {"id": kept, "resume": "allow"}
        if mode != "online":
            start = {"id": f"{kept}-{time.time():.0f}", "group": f"{run.experiment}-{kept}"}
        self._run = self._wandb.init(
            project=run.wandb_proj or None,
            entity=run.wandb_entity or None,
            name=run.experiment,
            dir=str(folder),
            mode=mode,
            config=_settings(folder / SETTINGS),
            # The output of a live view is no log.
            settings=self._wandb.Settings(console="off"),
            **start,
        )

    def write(self, step: int, row: Row) -> None:
        # W&B rejects steps that come again after a crash, each with a warning.
        if self._run is not None and step >= self._run.step:
            self._guarded(lambda: self._run.log(self._values(row), step=step))

    def close(self) -> None:
        if self._run is not None:
            self._guarded(lambda: self._run.finish())
            self._run = None

    def _values(self, row: Row) -> dict[str, Any]:
        values: dict[str, Any] = {**numbers(row)}
        for name, found in histograms(row):
            values[name] = self._wandb.Histogram(np_histogram=(found.counts.tolist(), found.edges.tolist()))
        if answers := self._answers.take(row):
            data = [
                ["\n".join(map(printable, answer.item)), answer.said, printable(answer.text, keep="\n")]
                for answer in answers
            ]
            values["answers"] = self._wandb.Table(columns=["message", "label", "answer"], data=data)
        return values

    def _guarded(self, act: Callable[[], None], consequence: str = "nothing more is logged there") -> None:
        try:
            act()
        except Exception as error:  # no error of W&B's may end the training
            self._warn(f"{_first_line(error)}; {consequence}")
            self._run = None

    def _warn(self, text: str) -> None:
        report(f"warning: --wandb: {text}", to_stderr=True)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urllib.parse.urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _kept_id(path: pathlib.Path) -> str:
    kept = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    if not kept:
        kept = uuid.uuid4().hex[:8]
        write_atomically(path, kept.encode())
    return kept


def _settings(path: pathlib.Path) -> dict[str, Any]:
    """Reads the run's settings by name, without secrets."""
    if not path.exists():
        return {}
    sections = unsealed(read_json(path))
    of_others = sections.pop("others", [])
    values = {name: value for section in sections.values() for name, value in section.items()}
    return {**values, **({"others": of_others} if of_others else {})}
