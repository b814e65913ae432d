"""Sinks for rows of metrics, behind one interface."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from oni_jax.host.files import append_atomically, open_to_append, write_atomically
from oni_jax.host.reporting import report
from oni_jax.host.run_files import METRICS, run_id
from oni_jax.host.slow_disk import reported_if_slow
from oni_jax.metrics.rows import Row, plain_row
from oni_jax.metrics.tensorboard_sink import TensorBoardSink
from oni_jax.metrics.wandb_sink import WandbSink
from oni_jax.settings.fields import UserError
from oni_jax.settings.json_text import RUN_ID, sealed
from oni_jax.settings.run import RunConfig

MAX_ROW_BYTES = 1 << 20


class Sink(Protocol):
    """A destination of rows."""

    def write(self, step: int, row: Row) -> None:
        """Writes a row. `step` is env_steps and does not decrease."""
        ...

    def close(self) -> None: ...


class MultiSink:
    """Several sinks. A full disk does not end the run: a sink's failure is logged once, and its recovery once."""

    def __init__(self, sinks: Sequence[Sink]):
        self._sinks = tuple(sinks)
        self._num_lost = dict.fromkeys(range(len(sinks)), 0)  # rows since a sink's last successful write

    def write(self, step: int, row: Row) -> None:
        for index, sink in enumerate(self._sinks):
            try:
                with reported_if_slow("writing a row of metrics"):
                    sink.write(step, row)
            except OSError as error:
                if not self._num_lost[index]:
                    _warn(f"{error.filename} can't be written ({error.strerror}); its rows are lost until it can be")
                self._num_lost[index] += 1
            else:
                if self._num_lost[index]:
                    _warn(f"{self._num_lost[index]} rows were lost; metrics can be written again")
                self._num_lost[index] = 0

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


class JsonlSink:
    """A file with one JSON object per line, of numbers and words, and its checksum; appends to an earlier start's.

    A last line that a crash cut off is removed, so that every line can be parsed.

    Args:
        path: path of the file.
        run_id: id of the run whose rows they are; empty: none.
    """

    def __init__(self, path: str | os.PathLike, run_id: str = ""):
        self._run = {RUN_ID: run_id} if run_id else {}
        self._file = open_to_append(path)
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(0, size - MAX_ROW_BYTES))
        tail = self._file.read()
        self._file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)

    def write(self, step: int, row: Row) -> None:
        append_atomically(
            self._file, (json.dumps(sealed({"step": step, **plain_row(row), **self._run})) + "\n").encode()
        )

    def close(self) -> None:
        self._file.close()


def build_sinks(
    run: RunConfig, folder: str | os.PathLike, first_step: int = 0, hparams: Mapping[str, Any] | None = None
) -> MultiSink:
    """Builds the sinks of an experiment: metrics.jsonl, tensorboard/, and Weights & Biases with --wandb.

    Args:
        run: settings.
        folder: the experiment's, which exists.
        first_step: env_steps at which this start begins; above 0 when a run is resumed.
        hparams: settings for TensorBoard.

    Raises:
        UserError: the files can't be made.
    """
    path = pathlib.Path(folder)
    try:
        sinks: list[Sink] = [
            JsonlSink(path / METRICS, run_id(str(folder))),
            TensorBoardSink(path / "tensorboard", first_step, hparams),
        ]
    except OSError as error:
        raise UserError(f"{error.filename} can't be written ({error.strerror}); choose another --train_dir") from None
    if run.wandb:
        sinks.append(WandbSink(run, folder))
    return MultiSink(sinks)


def write_json(path: str | os.PathLike, values: Row) -> None:
    """Writes an object (summary.json) atomically, with its checksum. A failure is a line, and does not end the run."""
    text = json.dumps(sealed(plain_row(values)), indent=2) + "\n"
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        _warn(f"{os.fspath(path)} can't be written ({error.strerror})")


def _warn(text: str) -> None:
    report(f"warning: {text}", to_stderr=True)
