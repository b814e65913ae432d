"""The form of a file of recorded answers: JSON lines, compressed by gzip where the name ends in .gz.

The first line is the header, an object:

    {"format": "oni_jax answers 1", "environment": "nethack", "kind": "classification",
     "goals": ["defaultgoal", "combat"], "model": "Claude", "recorded": "2026-11", "licence": "Apache-2.0"}

Each other line is an item: `[[texts], [answers], count]`. The texts are captions as the LLM was asked about them,
one or two as the kind of query wants. There is an answer a goal, in the order of the header's; null: none. The form of
an answer is its kind's (`QueryKind.to_record`). The count, of steps at which the item was met, may be 0.

A file is untrusted: its texts are data, and it is read whole before any of it is used.
"""

import contextlib
import gzip
import json
import os
import pathlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from oni_jax.annotation.prompt_files import read_prompt_file
from oni_jax.annotation.queries.base import QueryKind
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.envs.base import Language
from oni_jax.host.files import write_atomically
from oni_jax.settings.fields import UserError, caption_bytes, caption_text, nearest_first
from oni_jax.settings.json_text import parsed
from oni_jax.types import Item

FORMAT = "oni_jax answers 1"
_UNFIT = re.compile("[\0\ud800-\udfff]")  # characters that no caption holds: a zero, half a character
NO_GOAL = ""  # the only goal of kinds whose prompts name none
MAX_FILE_BYTES = 1 << 28  # unpacked
MAX_LINE_BYTES = 1 << 20
MAX_ROWS = 1_000_000
MAX_COUNT = 1 << 62
MAX_WORDS_CHARS = 200  # characters of a text of the header


class Header(NamedTuple):
    """The question that a file answers, and the model whose answers they are."""

    environment: str  # `Language.name`
    kind: str  # kind of query, by name
    goals: tuple[str, ...]  # keys of the prompt file; (NO_GOAL,) where it has none
    model: str  # model that answered
    recorded: str = ""  # date, such as 2026-11
    licence: str = ""

    @property
    def made_by(self) -> str:
        """The model in words, with the month of its answers."""
        return f"{self.model}, recorded {self.recorded}" if self.recorded else f"{self.model}, recorded"


class Row(NamedTuple):
    answers: tuple[bytes | None, ...]  # one answer a goal, as the kind of query encodes it; None: no answer
    count: int = 0  # number of steps at which the item was met


class AnswerFile(NamedTuple):
    """A file's content."""

    header: Header
    rows: Mapping[Item, Row]

    def under(self, goal: str) -> dict[Item, bytes]:
        index = self.header.goals.index(goal)
        return {item: answer for item, row in self.rows.items() if (answer := row.answers[index]) is not None}


def read_answers(path: str, languages: Mapping[str, Language]) -> AnswerFile:
    """Reads and checks a file.

    Args:
        path: the file.
        languages: environments' prompts by their names, which the header's must be among.

    Raises:
        UserError: it is missing, damaged, of an unknown environment, kind or goal, or an answer is none of its kind.
    """
    with contextlib.closing(_lines(path)) as lines:
        return _content(path, lines, languages)


def _content(path: str, lines: Iterator[bytes], languages: Mapping[str, Language]) -> AnswerFile:
    header = _header(path, next(lines, b""), languages)
    kind, rows = QUERIES[header.kind], dict[Item, Row]()
    for number, line in enumerate(lines, 2):
        try:
            item, row = _row(line, kind, len(header.goals))
            if item in rows:
                raise ValueError("its item stands in an earlier line, too")
        except (ValueError, TypeError, RecursionError) as error:
            raise UserError(f"answers {path}: line {number} is no {kind.name}: {_short(error)}") from None
        rows[item] = row
        if len(rows) > MAX_ROWS:
            raise UserError(f"answers {path}: holds more than {MAX_ROWS:,} items; split it")
    if not rows:
        raise UserError(f"answers {path}: holds no answers")
    return AnswerFile(header, rows)


def write_answers(path: str, file: AnswerFile, languages: Mapping[str, Language] | None = None) -> None:
    """Writes a file, whole or not at all; the same content gives the same bytes.

    Args:
        path: the file.
        file: its content.
        languages: those to check it with, as `read_answers` would; None: it is not checked.

    Raises:
        OSError: it can't be written.
        UserError: it could not be read.
    """
    kind, header = QUERIES[file.header.kind], {"format": FORMAT, **file.header._asdict()}
    lines = [json.dumps({name: value for name, value in header.items() if value})]
    for item, row in file.rows.items():
        texts = [caption_text(caption) for caption in item]
        answers = [None if answer is None else kind.to_record(answer) for answer in row.answers]
        lines.append(json.dumps([texts, answers, row.count], ensure_ascii=False, separators=(",", ":")))
    if languages is not None:
        _content(path, (f"{line}\n".encode() for line in lines), languages)
    data = "".join(f"{line}\n" for line in lines).encode()
    write_atomically(path, gzip.compress(data, 9, mtime=0) if path.endswith(".gz") else data)


def goals_of(language: Language, kind: str) -> Sequence[str]:
    """Returns the goal keys of an environment's prompt of a kind. Raises UserError: it has no such prompt."""
    path = pathlib.Path(language.prompts, f"{QUERIES[kind].asks_as or kind}_default.json")
    if not path.exists():
        raise UserError(f"{language.name or 'this environment'} has no prompt of the kind {kind}")
    return [*read_prompt_file(path)["goals"]] or [NO_GOAL]


def _lines(path: str) -> Iterator[bytes]:
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"answers {path}: is no regular file")
    opened: Any = gzip.open if path.endswith(".gz") else open
    try:
        with opened(path, "rb") as file:
            yield from _bounded(path, file)
    except FileNotFoundError:
        raise UserError(f"answers {path}: no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"answers {path}: can't be read: {_short(error)}") from None


def _bounded(path: str, file: IO[bytes]) -> Iterator[bytes]:
    num_bytes = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        num_bytes += len(line)
        if len(line) > MAX_LINE_BYTES or num_bytes > MAX_FILE_BYTES:
            raise UserError(f"answers {path}: a line is longer than {MAX_LINE_BYTES:,} bytes, or the file too large")
        if not line.endswith(b"\n"):
            raise UserError(f"answers {path}: its last line is cut off")
        yield line


def _header(path: str, line: bytes, languages: Mapping[str, Language]) -> Header:
    try:
        found = parsed(line)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"its first line is no header with the format {FORMAT!r}")
        texts = {name: _words(found, name) for name in ("environment", "kind", "model", "recorded", "licence")}
        goals = found.get("goals") or [NO_GOAL]
        if not isinstance(goals, list) or not all(
            isinstance(goal, str) and len(goal) <= MAX_WORDS_CHARS for goal in goals
        ):
            raise ValueError("`goals` is no list of short texts")
        if len({*goals}) < len(goals):
            raise ValueError("`goals` names one twice")
    except ValueError as error:
        raise UserError(f"answers {path}: is no file of recorded answers: {_short(error)}") from None
    header = Header(texts["environment"], texts["kind"], tuple(goals), *(texts[name] for name in Header._fields[3:]))
    if not header.model:
        raise UserError(f"answers {path}: its header names no `model`, which answered")
    if header.kind not in QUERIES:
        raise UserError(f"answers {path}: its kind of query {header.kind!r} is not known; known: {', '.join(QUERIES)}")
    if header.environment not in languages:
        known = f"known: {', '.join(languages)}; one of your own needs --plugin"
        hint = nearest_first(header.environment, languages, known)
        raise UserError(f"answers {path}: its environment {header.environment!r} is not known{hint}")
    try:
        known = goals_of(languages[header.environment], header.kind)
    except UserError as error:
        raise UserError(f"answers {path}: {error}") from None
    for goal in header.goals:
        if goal not in known:
            raise UserError(
                f"answers {path}: its goal {goal!r} is not known in {header.environment}; known: {', '.join(known)}"
            )
    return header


def _words(found: dict[str, Any], name: str) -> str:
    text = found.get(name, "")
    if not isinstance(text, str) or len(text) > MAX_WORDS_CHARS or not text.isprintable():
        raise ValueError(f"`{name}` is no short text of one line")
    return text


def _row(line: bytes, kind: QueryKind, num_goals: int) -> tuple[Item, Row]:
    """Reads a line. Raises ValueError, TypeError, RecursionError."""
    texts, answers, count = json.loads(line)
    if not isinstance(texts, list) or len(texts) != len(kind.placeholders):
        raise ValueError(f"it has not {len(kind.placeholders)} texts")
    item = tuple(caption_bytes(text) for text in texts if isinstance(text, str) and not _UNFIT.search(text))
    if len(item) < len(texts):
        raise ValueError("a text is none, or holds a zero or half a character")
    if not isinstance(answers, list) or len(answers) != num_goals:
        raise ValueError(f"it has not {num_goals} answers")
    if all(answer is None for answer in answers):
        raise ValueError("it has no answer")
    if type(count) is not int or not 0 <= count <= MAX_COUNT:
        raise ValueError(f"its count is {count!r:.60}")
    return item, Row(tuple(None if answer is None else encoded(kind, answer) for answer in answers), count)


def encoded(kind: QueryKind, record: object) -> bytes:
    """Encodes an answer for the store. Raises ValueError: it is none of its kind."""
    try:
        kept = kind.from_record(record)
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise ValueError(f"{_shown(record)} is no answer") from None
    if type(kept) is not bytes or not kind.is_answer(kept):
        raise ValueError(f"{_shown(record)} is no answer")
    return kept


def _shown(record: object) -> str:
    return f"{record!a:.60}"


def _short(error: object) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
