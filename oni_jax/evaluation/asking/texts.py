"""Captions to ask about, and a kind of query's items of them."""

import csv
import io
from collections.abc import Sequence

from oni_jax.annotation.prompts import Prompt, unescape
from oni_jax.evaluation.asking.config import SEPARATOR, AskConfig
from oni_jax.host.files import open_regular
from oni_jax.runs.message_counts import FILE_NAME
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError
from oni_jax.types import Item


def read_captions(config: AskConfig) -> list[bytes]:
    """Returns the captions that are given, of a file, and of a run, each once; empty ones are left out.

    Raises:
        UserError: a file or a run that can't be read, or holds none.
    """
    captions = [unescape(text) for text in config.message.split(SEPARATOR)]
    if config.messages_csv:
        captions += _of_file(config.messages_csv, config.messages_column)[: config.num_messages]
    if config.messages_of:
        captions += _of_run(config.messages_of)[: config.num_messages]
    return [*dict.fromkeys(filter(None, captions))]


def _of_file(path: str, column: str) -> list[bytes]:
    try:
        with io.TextIOWrapper(open_regular(path, follows_links=True), "utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or ()
            texts = [row[column] or "" for row in reader] if column in columns else []
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"--messages_csv {path}: can't be read ({error}); name a CSV file") from None
    if column not in columns:
        known = f"it has {', '.join(columns)}" if columns else "it is empty"
        raise UserError(f"--messages_csv {path}: has no column {column}, {known}; name one with --messages_column")
    captions = [*dict.fromkeys(unescape(text) for text in texts if text)]
    if not captions:
        raise UserError(f"--messages_csv {path}: its column {column} holds no text; name another file")
    return captions


def _of_run(folder: str) -> list[bytes]:
    """Returns the captions that a run met, the most frequent first; nothing in its folder is written or locked."""
    captions = [caption for caption, _ in Run(folder).captions().most_common() if caption]
    if not captions:
        raise UserError(f"--messages_of {folder}: has no captions in {FILE_NAME}; name the folder of a run that saved")
    return captions


def make_items(prompt: Prompt, captions: Sequence[bytes]) -> list[Item]:
    """Returns the items that a prompt's kind of query makes of captions: neighbours, where it asks about several.

    Raises:
        UserError: there are fewer captions than one query needs.
    """
    size = len(prompt.kind.placeholders)
    if not size:
        return [()]
    rewritten = [*dict.fromkeys(map(prompt.rewrite, captions))]
    if len(rewritten) < size:
        raise UserError(f"{len(rewritten)} caption: a query of the kind {prompt.kind.name} needs {size}; give another")
    return [tuple(rewritten[i : i + size]) for i in range(len(rewritten) - size + 1)]
