"""The label store: answers in an SQLite file that outlives a run, and that several runs may use at once.

An answer is keyed by model, prompt digest and item (one caption, or two), and stored as bytes that its kind of query
encodes. A file of the earlier schema, with labels instead of answers, is upgraded when it is opened.

Write-ahead log, synced at every commit: committed answers survive a kill and a power cut, and readers never block on a
writer. Only processes of one host may use the file at a time: they share the log's index through memory. On a disk
without shared memory a rollback journal replaces the log. On one without locks, too, a file beside the store lets
one process at a time read or write.

The file is untrusted: it is checked before SQLite opens it, and then its schema, its pages and each row. A row counts
only with its checksum, which lies in a table of checksums; it is written together with the row. `WatchedStore` looks at
the file while a run uses it.
"""

import contextlib
import os
import re
import sqlite3
import time
import urllib.parse
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from oni_jax.annotation.store_log import keep_damaged
from oni_jax.annotation.store_schema import (
    EARLIER_SCHEMA,
    IS_WHOLE,
    SCHEMA,
    WITHOUT_SUMS,
    add_sums,
    row_sum,
    schema_of,
    upgrade,
)
from oni_jax.host.lock_files import lock_file, probe_disk
from oni_jax.host.reporting import report
from oni_jax.host.slow_disk import reported_after
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation, Item

MAX_TEXT_CHARS = 4000
_LOCK_WAIT_SECS = 10.0
_SLOW_SECS = 2.0  # time after which a line says what is waited for
_UPGRADE_WAIT_SECS = 300.0  # time for another process that upgrades the file: a few seconds for a million rows
_APPLICATION_ID = 0x4F4E494C
_OF_PROMPT = "model = :model AND digest = :digest"
_LOCKS_HINT = "; its disk may lack locks or shared memory: name one on a local disk with --label_store"
_MAX_ITEMS_PER_QUERY = 500
_MAX_ROW_BYTES = 1 << 20  # captions and answers are far shorter; SQLite's limit is a gigabyte
SIDE_SUFFIXES = ("-wal", "-shm", "-journal")  # suffixes of SQLite's files next to a database
_DAMAGE_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)  # the latter: SQLite's error text may quote the file
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


class LabelStore:
    """Answers in the file at `path`, created if missing. Each process opens it on first use.

    Raises:
        UserError: the file is no label store, is damaged, or can't be made or written.
        OSError: from any method, when the file can't be read or written for now (locked, disk full).
    """

    commit_delay_secs = 0.2

    def __init__(self, path: str):
        self.path = os.path.abspath(path)
        self._database: sqlite3.Connection | None = None
        self._damaged: dict[tuple[str, str], int] = {}  # rows that were read and not believed, by model and digest
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self._disk = probe_disk(self.path)
            self._open().close()
        except OSError as error:
            raise UserError(f"label store {self.path}: {error}") from None

    def check_writable(self) -> None:
        """Says what the disk lacks. Raises UserError: answers can't be written, so that nobody is asked for them."""
        if not self._disk.shares_memory:
            lacks, instead = "shared memory", "a rollback journal in place of the write-ahead log"
            if not self._disk.has_locks:
                lacks, instead = "locks", f"{instead}, and one process at a time"
            hint = "--label_store names another file, such as one on a local disk"
            report(f"label store {self.path}: its disk has no {lacks}: {instead} ({hint})")
        with contextlib.closing(self._open()) as database, self._locked(not self._disk.has_locks):
            try:
                database.execute("BEGIN IMMEDIATE")
                database.execute("ROLLBACK")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise UserError(f"label store {self.path}: {error}") from None
                kept = "answers are kept in memory until it is done"
                report(f"label store {self.path}: another process is writing it for long; {kept}")

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_disk": self._disk, "_database": None, "_damaged": {}}

    def get_many(self, model: str, digest: str, items: Sequence[Item]) -> list[Annotation]:
        """Returns the stored answers of these items, without damaged ones."""
        rows: list[tuple[bytes, bytes, int]] = []
        with self._connection() as database:
            for start in range(0, len(items), _MAX_ITEMS_PER_QUERY):
                keys = [_encode(item) for item in items[start : start + _MAX_ITEMS_PER_QUERY]]
                rows += database.execute(
                    f"SELECT item, answer, {IS_WHOLE} FROM answers "
                    "WHERE prompt = (SELECT id FROM prompts WHERE model = :model AND digest = :digest) "
                    f"AND item IN ({','.join(f':{i}' for i in range(len(keys)))})",
                    {"model": model, "digest": digest, **{str(i): key for i, key in enumerate(keys)}},
                )
            return [_annotation(row) for row in rows if row[2]]

    def put_many(self, model: str, digest: str, answered: Sequence[tuple[Annotation, str]]) -> None:
        """Commits annotations with the answers' text. One that is stored already is kept, unless it is damaged."""
        now = time.time()
        rows = [(_encode(annotation.item), annotation.answer, _shortened(text), now) for annotation, text in answered]
        with self._connection() as database, database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT OR IGNORE INTO prompts (model, digest) VALUES (?, ?)", (model, digest))
            query = "SELECT id FROM prompts WHERE model = ? AND digest = ?"
            (prompt,) = database.execute(query, (model, digest)).fetchone()
            # Conflicts only: a plain OR IGNORE would also skip a row that violates a constraint.
            names = {"model": model, "digest": digest}
            database.executemany(
                f"INSERT INTO answers VALUES ({prompt}, :item, :answer, :text, :time) ON CONFLICT (prompt, item) "
                "DO UPDATE SET answer = excluded.answer, text = excluded.text, time = excluded.time "
                f"WHERE NOT {IS_WHOLE}",
                (
                    {**names, "item": item, "answer": answer, "text": text, "time": time}
                    for item, answer, text, time in rows
                ),
            )
            sums = ((row_sum(model, digest, item, answer, text.encode()),) for item, answer, text, _ in rows)
            database.executemany("INSERT OR IGNORE INTO checksums VALUES (?)", sums)

    def all(self, model: str, digest: str) -> list[Annotation]:
        """Returns every answer stored for a model and a prompt, without damaged ones: see `damage`."""
        query = f"SELECT item, answer, {IS_WHOLE} FROM answers JOIN prompts ON prompt = id WHERE {_OF_PROMPT}"
        with self._connection() as database:
            rows = [*database.execute(query, {"model": model, "digest": digest})]
            found = [_annotation(row) for row in rows if row[2] or not _has_types(row)]
        self._damaged[model, digest] = len(rows) - len(found)
        return found

    @property
    def damage(self) -> str:
        """A line that counts the damaged rows that were read; empty: there were none."""
        number = sum(self._damaged.values())
        return f"label store {self.path}: {number:,} damaged rows are left out" if number else ""

    def count(self, model: str, digest: str) -> int:
        """Number of answers stored for a model and a prompt."""
        query = "SELECT count(*) FROM answers JOIN prompts ON prompt = id WHERE model = ? AND digest = ?"
        with self._connection() as database:
            return database.execute(query, (model, digest)).fetchone()[0]

    def counts(self, digests: Sequence[str]) -> dict[str, int]:
        """Returns model -> number of answers stored for these prompts, the most first."""
        query = (
            "SELECT model, count(*) AS number FROM answers JOIN prompts ON prompt = id "
            f"WHERE digest IN ({','.join('?' * len(digests))}) GROUP BY model ORDER BY number DESC, model"
        )
        with self._connection() as database:
            return dict(database.execute(query, digests))

    def prompts(self) -> list[tuple[str, str]]:
        """Returns the models and the digests of prompts that there are answers of."""
        with self._connection() as database:
            return database.execute("SELECT model, digest FROM prompts").fetchall()

    def sums_in_file(self, known: Collection[int] = ()) -> list[int] | None:
        """Reads the file alone, whatever its log holds, and without locks: a checkpoint meanwhile may disturb it.

        Returns:
            Checksums of some rows; None: the file is damaged, no label store, or lacks some that are `known`.
        """
        if os.path.islink(self.path) or not os.path.isfile(self.path):
            return None
        name = f"file:{urllib.parse.quote(self.path)}?mode=ro&immutable=1"
        try:
            with contextlib.closing(sqlite3.connect(name, uri=True)) as database:
                found = [database.execute(f"PRAGMA {x}").fetchone()[0] for x in ("application_id", "quick_check(1)")]
                if found != [_APPLICATION_ID, "ok"]:
                    return None
                if schema_of(database) != SCHEMA:  # an earlier one: what converts it is in the log
                    return None if known else []
                query = "SELECT count(*) FROM checksums WHERE sum = ?"
                if not all(database.execute(query, (one,)).fetchone()[0] for one in known):
                    return None
                return [row[0] for row in database.execute("SELECT sum FROM checksums LIMIT 1000")]
        except _DAMAGE_ERRORS:
            return None

    def close(self) -> None:
        """Closes the file in this process; the next use opens it again."""
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self._database is None:
            self._database = self._open()
        with self._locked(not self._disk.has_locks):
            try:
                yield self._database
            except sqlite3.IntegrityError:
                raise  # an answer of the wrong type: the caller's mistake
            except sqlite3.OperationalError as error:
                raise OSError(f"label store {self.path}: {error}") from error
            except _DAMAGE_ERRORS as error:
                text = f"label store {self.path} is damaged ({_line(error)}); move it away or name another"
                raise UserError(text) from error

    @contextlib.contextmanager
    def _locked(self, is_needed: bool, wait_secs: float = _LOCK_WAIT_SECS) -> Iterator[None]:
        """Keeps other processes out by a file, where it is needed."""
        with contextlib.ExitStack() as stack:
            if is_needed:
                stack.enter_context(lock_file(f"{self.path}-lock", wait_secs))
            yield

    def _open(self) -> sqlite3.Connection:
        self._check_files()
        if copy := keep_damaged(f"{self.path}-wal"):
            lost = f"answers that were committed last may be lost, and are asked for again; {copy} is a copy of it"
            report(f"label store {self.path}: its log is damaged: {lost}")
        waiting = f"label store {self.path}: another process holds it; waiting, {_UPGRADE_WAIT_SECS:.0f} s at most"
        with reported_after(_SLOW_SECS, waiting), self._locked(not self._disk.shares_memory, _UPGRADE_WAIT_SECS):
            try:
                database = self._connect()
            except sqlite3.Error as error:
                raise OSError(str(error)) from None
            try:
                # An untrusted file must not run code: no function in its schema is trusted.
                database.execute("PRAGMA trusted_schema = OFF")
                database.execute("PRAGMA cell_size_check = ON")
                database.create_function("row_sum", 5, row_sum, deterministic=True)
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW_BYTES)
                database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
                self._prepare(database)
                database.execute(f"PRAGMA busy_timeout = {_LOCK_WAIT_SECS * 1000:.0f}")
            except sqlite3.OperationalError as error:
                database.close()
                raise OSError(f"{error}{_LOCKS_HINT if _is_of_locks(error) else ''}") from None
            except _DAMAGE_ERRORS as error:
                database.close()
                text = f"label store {self.path} is no label store ({_line(error)}); name another file"
                raise UserError(text) from None
            except BaseException:
                database.close()
                raise
        return database

    def _connect(self) -> sqlite3.Connection:
        query = "" if self._disk.has_locks else "?vfs=unix-none"  # SQLite without locks
        name = f"file:{urllib.parse.quote(self.path)}{query}"
        return sqlite3.connect(name, timeout=_UPGRADE_WAIT_SECS, isolation_level=None, uri=True)

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Checks the file, and chooses its journal by what the disk can do."""
        if self._disk.shares_memory:
            self._check(database)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
        else:  # a log that it got elsewhere can be read without shared memory by a process that is alone
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._check(database)
            database.execute("PRAGMA journal_mode = DELETE")
            database.execute("PRAGMA locking_mode = NORMAL")
            database.execute("PRAGMA synchronous = EXTRA")  # a journal that a power cut brings back undoes a commit
        database.execute("SELECT count(*) FROM sqlite_master")  # the first use of this journal and these locks

    def _check_files(self) -> None:
        """Refuses links, special files, and a journal that names another file, before SQLite opens them.

        SQLite would write through a link, and deletes a file that the end of a journal names. Only SQLite may open the
        database itself: closing any descriptor of a file drops all locks that the process has on it, other connections'
        too, and the labels could be corrupted (sqlite.org/howtocorrupt.html, 2.2).
        """
        for path in (self.path, *(self.path + suffix for suffix in SIDE_SUFFIXES)):
            if os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path)):
                raise UserError(f"label store {path} is a link or no regular file; name the file itself")
        if _tail(f"{self.path}-journal", len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC:
            raise UserError(f"label store {self.path}-journal names another file; move it away")

    def _check(self, database: sqlite3.Connection) -> None:
        """Creates the tables in an empty file; refuses another program's file, other tables or views, and damage.

        The earlier schema is upgraded in one transaction: killed meanwhile, the process leaves the file as it was.
        """
        num_pages, application_id = (  # order matters: another process may be creating the file
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "application_id")
        )
        if num_pages and application_id != _APPLICATION_ID:
            raise UserError(f"label store {self.path} is no label store; name another file")
        if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            with database:
                database.execute("BEGIN IMMEDIATE")
                if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    for statement in SCHEMA:
                        database.execute(statement)
        if schema_of(database) == EARLIER_SCHEMA:
            self._check_pages(database)
            upgrade(database)  # the earlier form has no checksums
        if schema_of(database) == WITHOUT_SUMS:
            self._check_pages(database)
            add_sums(database)
        if schema_of(database) != SCHEMA:
            raise UserError(f"label store {self.path} is a database of something else; name another file")
        self._check_pages(database)

    def _check_pages(self, database: sqlite3.Connection) -> None:
        problem = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise UserError(
                f"label store {self.path} is damaged ({problem.splitlines()[-1]}); move it away or name another"
            )


def _is_of_locks(error: sqlite3.Error) -> bool:
    """Returns whether an error is of the kinds that a disk without locks gives: SQLITE_PROTOCOL, SQLITE_IOERR_LOCK."""
    return re.search("PROTOCOL|IOERR_.*(LOCK|SHM)", error.sqlite_errorname or "") is not None


def _tail(path: str, num_bytes: int) -> bytes:
    """Returns the last bytes of a file; none if it is missing."""
    try:
        with open(path, "rb") as file:
            file.seek(-min(num_bytes, os.path.getsize(path)), os.SEEK_END)
            return file.read()
    except FileNotFoundError:
        return b""


@contextlib.contextmanager
def opened(path: str) -> Iterator[LabelStore]:
    """Opens a store to be read, and reports damaged rows at the end.

    Raises:
        UserError: see `LabelStore`; also where it can't be read for now.
    """
    store = LabelStore(path)
    try:
        yield store
    except OSError as error:
        raise UserError(str(error)) from None
    finally:
        store.close()
    if store.damage:
        report(store.damage)


def _encode(item: Item) -> bytes:
    """Joins an item's captions with zero bytes, which no caption holds."""
    if any(b"\0" in caption for caption in item):
        raise ValueError("a caption holds a zero byte")
    return b"\0".join(item)


def _has_types(row: tuple[bytes, bytes, int]) -> bool:
    return type(row[0]) is bytes and type(row[1]) is bytes


def _annotation(row: tuple[bytes, bytes, int]) -> Annotation:
    if not _has_types(row):
        raise sqlite3.DatabaseError("a row is not an answer")  # SQLite keeps any type in any column
    item, answer, _ = row
    return Annotation(tuple(item.split(b"\0")), answer)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _shortened(text: str) -> str:
    """Truncates an answer to its beginning and end."""
    half = MAX_TEXT_CHARS // 2
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:half]} [...] {text[-half:]}"
