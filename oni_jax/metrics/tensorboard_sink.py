"""An events file for TensorBoard."""

import contextlib
import os
import socket
import struct
import textwrap
import time
from collections.abc import Mapping, Sequence
from typing import Any

from oni_jax.host.files import append_atomically
from oni_jax.metrics.rows import Histogram, Row, histograms, numbers
from oni_jax.settings.fields import printable
from oni_jax.types import NO_MESSAGE, Answer

COMPARED = ("mean_return", "mean_length", "env_steps_per_sec_overall")
ANSWERS_SECS = 60.0  # shortest interval of texts of answers
NUM_ANSWERS = 3  # answers in a text


class TensorBoardSink:
    """An events file of rows' numbers and histograms; at times a text of the newest answers.

    Written without tensorboardX's writer, which uses a thread: once the disk was full, its caller would wait for
    ever.

    Args:
        folder: of the events files, one per start of the program.
        first_step: steps of earlier starts from here on are hidden: they will come again.
        hparams: for the tab HPARAMS, where they stand beside COMPARED.
    """

    def __init__(self, folder: str | os.PathLike, first_step: int = 0, hparams: Mapping[str, Any] | None = None):
        from tensorboardX import summary  # takes 0.3 s: imported only where a run writes
        from tensorboardX.proto import event_pb2
        from tensorboardX.record_writer import masked_crc32c

        self._proto: Any = event_pb2
        self._checksum = masked_crc32c
        self._answers = NewAnswers(NUM_ANSWERS)
        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(os.path.join(folder, name), "ab", buffering=0)
        self._append(file_version="brain.Event:2")
        if first_step:
            self._append(step=first_step, session_log={"status": "START"})
        self._hparams = summary.hparams(hparams, dict.fromkeys(COMPARED)) if hparams else ()
        for part in self._hparams[:-1]:  # the last is of the end
            self._append(summary=part)

    def write(self, step: int, row: Row) -> None:
        values: list[dict[str, Any]] = [
            *({"tag": name, "simple_value": value} for name, value in numbers(row).items()),
            *({"tag": name, "histo": _histogram_fields(value)} for name, value in histograms(row)),
        ]
        if answers := self._answers.take(row):
            text = {"dtype": "DT_STRING", "string_val": [answers_markdown(answers).encode()]}
            values.append({"tag": "answers", "metadata": {"plugin_data": {"plugin_name": "text"}}, "tensor": text})
        self._append(step=step, summary={"value": values})

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the disk is full
            for part in self._hparams[-1:]:
                self._append(summary=part)
        self._file.close()

    def _append(self, **fields: Any) -> None:
        """Appends a record: its length, a checksum of the length, the event, a checksum of the event."""
        data = self._proto.Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        checksums = [struct.pack("<I", self._checksum(part)) for part in (length, data)]
        append_atomically(self._file, length + checksums[0] + data + checksums[1])


class NewAnswers:
    """Takes at most `count` new answers from a row, the newest first, at most every ANSWERS_SECS: a sample."""

    def __init__(self, count: int):
        self._count = count
        self._before: Sequence[Answer] = ()
        self._due = 0.0

    def take(self, row: Row) -> list[Answer]:
        answers = row.get("answers", ())
        new = [answer for answer in reversed(answers) if answer not in self._before][: self._count]
        if not new or time.monotonic() < self._due:
            return []
        self._before, self._due = answers, time.monotonic() + ANSWERS_SECS
        return new


def answers_markdown(answers: Sequence[Answer]) -> str:
    """Renders answers as Markdown; their texts are never interpreted as Markdown or HTML."""
    parts = []
    for answer in answers:
        captions = "\n".join(printable(caption) or NO_MESSAGE for caption in answer.item)
        texts = (captions, printable(answer.text, keep="\n") or "(no text)")
        item, text = (textwrap.indent(content, "    ", lambda line: True) for content in texts)
        parts.append(f"{item}\n\n**{answer.said}**, by this answer:\n\n{text}\n")
    return "\n---\n\n".join(parts)


def _histogram_fields(values: Histogram) -> dict[str, Any]:
    edges, counts = values.edges.tolist(), values.counts.tolist()
    sums = {"num": sum(counts), "sum": values.sum, "sum_squares": values.sum_squares}
    # An empty bucket in front marks the lower edge of the first one.
    return {"min": edges[0], "max": edges[-1], **sums, "bucket_limit": edges, "bucket": [0.0, *counts]}
