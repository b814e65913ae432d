"""Places that rows of metrics are written to, behind one interface."""

import json
import math
import netrc
import os
import pathlib
import socket
import struct
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from oni_jax.config import RunConfig, UserError
from oni_jax.files import append_whole, write_whole

Row = Mapping[str, Any]  # numbers, as Python, NumPy or JAX scalars; words are allowed


class Sink(Protocol):
    """A place for rows."""

    def write(self, step: int, row: Row) -> None:
        """Writes a row. `step` is env_steps and does not decrease."""
        ...

    def close(self) -> None: ...


class NullSink:
    """Nowhere."""

    def write(self, step: int, row: Row) -> None:
        pass

    def close(self) -> None:
        pass


class MultiSink:
    """Several places. A full disk ends no run: what can't be written is told once, and once when it can be again."""

    def __init__(self, sinks: Sequence[Sink]):
        self._sinks = tuple(sinks)
        self._num_lost = dict.fromkeys(range(len(sinks)), 0)  # rows, since a place could last be written

    def write(self, step: int, row: Row) -> None:
        for index, sink in enumerate(self._sinks):
            try:
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
    """A file with one JSON object a line; goes on where an earlier run stopped.

    A last line that was cut off by a crash is removed, so that every line can be parsed.
    """

    def __init__(self, path: str | os.PathLike):
        self._file = open(path, "ab+", buffering=0)
        self._file.truncate(_end_of_last_line(self._file))

    def write(self, step: int, row: Row) -> None:
        values = {name: plain_value(value) for name, value in row.items()}
        append_whole(self._file, (json.dumps({"step": step, **values}) + "\n").encode())

    def close(self) -> None:
        self._file.close()


class TensorBoardSink:
    """An events file of the row's numbers.

    The file is written here, as tensorboardX's own writer would: that one does it in a thread, and once the disk was
    full its caller would wait for ever.

    Args:
        folder: where the events file goes; one a start of the program.
        first_step: steps of an earlier run from here on are hidden: they will come again.
    """

    def __init__(self, folder: str | os.PathLike, first_step: int = 0):
        from tensorboardX.proto import event_pb2  # 0.3 s, only wanted where a run writes
        from tensorboardX.record_writer import masked_crc32c

        self._proto: Any = event_pb2
        self._checksum = masked_crc32c
        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(os.path.join(folder, name), "ab", buffering=0)
        self._append(file_version="brain.Event:2")
        if first_step:
            self._append(step=first_step, session_log={"status": "START"})

    def write(self, step: int, row: Row) -> None:
        values = [{"tag": name, "simple_value": value} for name, value in numbers(row).items()]
        self._append(step=step, summary={"value": values})

    def close(self) -> None:
        self._file.close()

    def _append(self, **fields: Any) -> None:
        """A record: its length, the checksum of that, the event, the checksum of that."""
        data = self._proto.Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        checksums = [struct.pack("<I", self._checksum(part)) for part in (length, data)]
        append_whole(self._file, length + checksums[0] + data + checksums[1])


class WandbSink:
    """Weights & Biases. What it can't do is said once on stderr, and training goes on without it.

    Args:
        run: names the project and the entity.
        folder: the experiment's; keeps the id under which a resumed run goes on.
    """

    def __init__(self, run: RunConfig, folder: str | os.PathLike):
        self._run = None
        try:
            import wandb  # pyright: ignore[reportMissingImports]  # not a dependency
        except ImportError:
            _warn("--wandb: the package is missing (pip install wandb); nothing is logged there")
            return
        online = _has_wandb_key()
        if not online:
            _warn("--wandb: no key (wandb login, or $WANDB_API_KEY); logged offline, to be sent with `wandb sync`")
        try:
            self._run = wandb.init(
                project=run.wandb_proj or None,
                entity=run.wandb_entity or None,
                name=run.experiment,
                dir=str(folder),
                id=_kept_id(pathlib.Path(folder) / "wandb_id.txt"),
                resume="allow",
                mode="online" if online else "offline",
            )
        except Exception as error:  # whatever it is, it must not end the training
            _warn(f"--wandb: {_first_line(error)}; nothing is logged there")

    def write(self, step: int, row: Row) -> None:
        self._guarded(lambda run: run.log(numbers(row), step=step))

    def close(self) -> None:
        self._guarded(lambda run: run.finish())
        self._run = None

    def _guarded(self, act) -> None:
        if self._run is None:
            return
        try:
            act(self._run)
        except Exception as error:
            _warn(f"--wandb: {_first_line(error)}; nothing more is logged there")
            self._run = None


def build_sinks(run: RunConfig, folder: str | os.PathLike, first_step: int = 0) -> MultiSink:
    """The files of an experiment (metrics.jsonl, tensorboard/), and Weights & Biases when asked for.

    Args:
        run: settings.
        folder: the experiment's, which exists.
        first_step: env_steps at which this start begins; above 0 when a run is resumed.

    Raises:
        UserError: the files can't be made.
    """
    path = pathlib.Path(folder)
    try:
        sinks: list[Sink] = [JsonlSink(path / "metrics.jsonl"), TensorBoardSink(path / "tensorboard", first_step)]
    except OSError as error:
        raise UserError(f"{error.filename} can't be written ({error.strerror}); choose another --train_dir") from None
    if run.wandb:
        sinks.append(WandbSink(run, folder))
    return MultiSink(sinks)


def write_json(path: str | os.PathLike, values: Row) -> None:
    """Writes an object (summary.json) whole or not at all. What fails is told in one line, and ends no run."""
    text = json.dumps({name: plain_value(value) for name, value in values.items()}, indent=2) + "\n"
    try:
        write_whole(path, text.encode())
    except OSError as error:
        _warn(f"{os.fspath(path)} can't be written ({error.strerror})")


def plain_value(value: Any) -> Any:
    """A scalar as JSON can hold it; None for what is not finite."""
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def numbers(row: Row) -> dict[str, float]:
    """The row without its words."""
    return {name: float(value) for name, value in row.items() if not isinstance(value, str) and value is not None}


def _end_of_last_line(file) -> int:
    """Offset behind the last newline. Steps back in blocks: the file may be long, a line is short."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 4096)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _has_wandb_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _kept_id(path: pathlib.Path) -> str:
    if not path.exists():
        path.write_text(uuid.uuid4().hex[:8])
    return path.read_text().strip()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)
