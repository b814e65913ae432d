"""Answers that were paid for, in an SQLite file that outlives the run and may be shared by several at once.

An answer belongs to a model, a prompt's digest and an item (one message, or two), and is kept as bytes that its kind of
query makes of it. A file of the earlier form, with labels in place of answers, is upgraded when it is opened.

Write-ahead logging, synced at every commit: what was committed survives a kill and a power cut, and readers never wait
for a writer. The file must be on a local disk or one with working locks.

The file may come from a stranger: it is looked at before SQLite opens it, then its schema, its pages and each row are.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any

from oni_jax.config import UserError
from oni_jax.types import Annotation, Item

MAX_TEXT_CHARS = 4000
_LOCK_WAIT_SECS = 10.0
_UPGRADE_WAIT_SECS = 300.0  # for another process that upgrades the file: a few seconds for a million rows
_APPLICATION_ID = 0x4F4E494C
_PROMPTS = (
    "CREATE TABLE prompts (id INTEGER PRIMARY KEY, model TEXT NOT NULL, digest TEXT NOT NULL, UNIQUE (model, digest))"
)
_SCHEMA = (
    _PROMPTS,
    "CREATE TABLE answers (prompt INTEGER NOT NULL REFERENCES prompts (id), item BLOB NOT NULL, "
    "answer BLOB NOT NULL CHECK (typeof(answer) = 'blob'), text TEXT NOT NULL, time REAL NOT NULL, "
    "PRIMARY KEY (prompt, item)) WITHOUT ROWID",
)
_LABELS_SCHEMA = (  # the earlier form
    _PROMPTS,
    "CREATE TABLE labels (prompt INTEGER NOT NULL REFERENCES prompts (id), item BLOB NOT NULL, "
    "label INTEGER NOT NULL CHECK (label IN (0, 1, 2)), probability REAL NOT NULL CHECK (probability BETWEEN 0 AND 1), "
    "answer TEXT NOT NULL, time REAL NOT NULL, PRIMARY KEY (prompt, item)) WITHOUT ROWID",
)
_MAX_ITEMS_PER_QUERY = 500
_MAX_ROW_BYTES = 1 << 20  # messages and answers are far shorter; SQLite's own limit is a gigabyte
_BESIDE = ("-wal", "-shm", "-journal")  # files that SQLite keeps beside a database
_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)  # the latter: what SQLite says quotes the file
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


class LabelStore:
    """The answers in the file at `path`, made if it is missing. Opened in each process when first used there.

    Raises:
        UserError: the file is no label store, is damaged, or can't be made or written.
        OSError: later, from any method, when the file can't be read or written for now (locked, disk full).
    """

    commit_delay_secs = 0.2

    def __init__(self, path: str):
        self.path = os.path.abspath(path)
        self._database: sqlite3.Connection | None = None
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self._open().close()
        except OSError as error:
            raise UserError(f"label store {self.path}: {error}") from None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_database": None}

    def get_many(self, model: str, digest: str, items: Sequence[Item]) -> list[Annotation]:
        """The answers held of these items."""
        found = []
        with self._connection() as database:
            for start in range(0, len(items), _MAX_ITEMS_PER_QUERY):
                keys = [_encode(item) for item in items[start : start + _MAX_ITEMS_PER_QUERY]]
                rows = database.execute(
                    "SELECT item, answer FROM answers "
                    "WHERE prompt = (SELECT id FROM prompts WHERE model = ? AND digest = ?) "
                    f"AND item IN ({','.join('?' * len(keys))})",
                    (model, digest, *keys),
                )
                found += map(_annotation, rows)
        return found

    def put_many(self, model: str, digest: str, answered: Sequence[tuple[Annotation, str]]) -> None:
        """Commits annotations with the answers' text. An answer that is held already stays as it is."""
        now = time.time()
        rows = [(_encode(annotation.item), annotation.answer, _bounded(text), now) for annotation, text in answered]
        with self._connection() as database, database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT OR IGNORE INTO prompts (model, digest) VALUES (?, ?)", (model, digest))
            query = "SELECT id FROM prompts WHERE model = ? AND digest = ?"
            (prompt,) = database.execute(query, (model, digest)).fetchone()
            # Conflicts only: a plain OR IGNORE would also pass over a value that breaks a rule of the table.
            database.executemany(
                f"INSERT INTO answers VALUES ({prompt}, ?, ?, ?, ?) ON CONFLICT (prompt, item) DO NOTHING", rows
            )

    def all(self, model: str, digest: str) -> list[Annotation]:
        """Every answer held for a model and a prompt."""
        query = "SELECT item, answer FROM answers JOIN prompts ON prompt = id WHERE model = ? AND digest = ?"
        with self._connection() as database:
            return [_annotation(row) for row in database.execute(query, (model, digest))]

    def count(self, model: str, digest: str) -> int:
        """How many answers are held for a model and a prompt."""
        query = "SELECT count(*) FROM answers JOIN prompts ON prompt = id WHERE model = ? AND digest = ?"
        with self._connection() as database:
            return database.execute(query, (model, digest)).fetchone()[0]

    def close(self) -> None:
        """Closes the file in this process; the next use opens it again."""
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self._database is None:
            self._database = self._open()
        try:
            yield self._database
        except sqlite3.IntegrityError:
            raise  # an answer that no reader could use: the caller's mistake
        except sqlite3.OperationalError as error:
            raise OSError(f"label store {self.path}: {error}") from error
        except _DAMAGE as error:
            text = f"label store {self.path} is damaged ({_line(error)}); move it away or name another"
            raise UserError(text) from error

    def _open(self) -> sqlite3.Connection:
        self._check_files()
        try:
            database = sqlite3.connect(self.path, timeout=_UPGRADE_WAIT_SECS, isolation_level=None)
        except sqlite3.Error as error:
            raise OSError(str(error)) from None
        try:
            # A file of somebody else's must not run anything: no function in a schema is trusted.
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW_BYTES)
            database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            self._check(database)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute(f"PRAGMA busy_timeout = {_LOCK_WAIT_SECS * 1000:.0f}")
        except sqlite3.OperationalError as error:
            database.close()
            raise OSError(str(error)) from None
        except _DAMAGE as error:
            database.close()
            raise UserError(f"label store {self.path} is no label store ({_line(error)}); name another file") from None
        except BaseException:
            database.close()
            raise
        return database

    def _check_files(self) -> None:
        """Refuses, before SQLite touches them, links to other files, and a journal that names a file.

        SQLite would write into what a link points at, and at the end of a journal it removes the file that is named.
        The database itself is read by SQLite alone: who closes a file loses the locks that its process has on it, so
        that another connection's would be gone, and with them the labels (sqlite.org/howtocorrupt.html, 2.2).
        """
        for path in (self.path, *(self.path + suffix for suffix in _BESIDE)):
            if os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path)):
                raise UserError(f"label store {path} is a link or no file; name the file itself")
        if _end(f"{self.path}-journal", len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC:
            raise UserError(f"label store {self.path}-journal names another file; move it away")

    def _check(self, database: sqlite3.Connection) -> None:
        """Makes the tables in an empty file; refuses one of another program, with other tables or views, or damage.

        What is of the earlier form is upgraded in one transaction: who is killed meanwhile leaves it as it was.
        """
        num_pages, application_id = (  # in this order: another process may be making it
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "application_id")
        )
        if num_pages and application_id != _APPLICATION_ID:
            raise UserError(f"label store {self.path} is no label store; name another file")
        if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            with database:
                database.execute("BEGIN IMMEDIATE")
                if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    for statement in _SCHEMA:
                        database.execute(statement)
        if _schema(database) == _LABELS_SCHEMA:
            self._check_pages(database)
            _upgrade(database)
        if _schema(database) != _SCHEMA:
            raise UserError(f"label store {self.path} is a database of something else; name another file")
        self._check_pages(database)

    def _check_pages(self, database: sqlite3.Connection) -> None:
        problem = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise UserError(
                f"label store {self.path} is damaged ({problem.splitlines()[-1]}); move it away or name another"
            )


def _schema(database: sqlite3.Connection) -> tuple[str, ...]:
    return tuple(row[0] for row in database.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL"))


def _upgrade(database: sqlite3.Connection) -> None:
    """Labels become answers: `label probability`, as kinds of query with choices keep them."""
    database.create_function("as_answer", 2, lambda label, probability: f"{label} {probability!r}".encode())
    with database:
        database.execute("BEGIN IMMEDIATE")
        if _schema(database) == _LABELS_SCHEMA:  # no other process was sooner
            database.execute(_SCHEMA[-1])
            columns = "prompt, item, as_answer(label, probability), answer, time"
            database.execute(f"INSERT INTO answers SELECT {columns} FROM labels")
            database.execute("DROP TABLE labels")


def _end(path: str, num_bytes: int) -> bytes:
    """The last bytes of a file; nothing where none is."""
    try:
        with open(path, "rb") as file:
            file.seek(-min(num_bytes, os.path.getsize(path)), os.SEEK_END)
            return file.read()
    except FileNotFoundError:
        return b""


def _encode(item: Item) -> bytes:
    """The messages with a zero between them: messages hold none."""
    if any(b"\0" in message for message in item):
        raise ValueError("a message holds a zero byte")
    return b"\0".join(item)


def _annotation(row: tuple[bytes, bytes]) -> Annotation:
    item, answer = row
    if not (type(item) is bytes and type(answer) is bytes):
        raise sqlite3.DatabaseError("a row is no answer")  # SQLite keeps any type in any column
    return Annotation(tuple(item.split(b"\0")), answer)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _bounded(text: str) -> str:
    """An answer's beginning and end; SQLite takes no half characters."""
    if len(text) > MAX_TEXT_CHARS:
        text = f"{text[: MAX_TEXT_CHARS // 2]} [...] {text[-MAX_TEXT_CHARS // 2 :]}"
    return text.encode("utf-8", "replace").decode()
