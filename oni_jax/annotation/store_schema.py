"""The tables of a label store, and the conversion of earlier versions' files."""

import hashlib
import sqlite3

_PROMPTS = (
    "CREATE TABLE prompts (id INTEGER PRIMARY KEY, model TEXT NOT NULL, digest TEXT NOT NULL, UNIQUE (model, digest))"
)
SCHEMA = (
    _PROMPTS,
    "CREATE TABLE answers (prompt INTEGER NOT NULL REFERENCES prompts (id), item BLOB NOT NULL, "
    "answer BLOB NOT NULL CHECK (typeof(answer) = 'blob'), text TEXT NOT NULL, time REAL NOT NULL, "
    "PRIMARY KEY (prompt, item)) WITHOUT ROWID",
    "CREATE TABLE checksums (sum INTEGER PRIMARY KEY)",
)
WITHOUT_SUMS = SCHEMA[:2]
EARLIER_SCHEMA = (  # the form with labels instead of answers
    _PROMPTS,
    "CREATE TABLE labels (prompt INTEGER NOT NULL REFERENCES prompts (id), item BLOB NOT NULL, "
    "label INTEGER NOT NULL CHECK (label IN (0, 1, 2)), probability REAL NOT NULL CHECK (probability BETWEEN 0 AND 1), "
    "answer TEXT NOT NULL, time REAL NOT NULL, PRIMARY KEY (prompt, item)) WITHOUT ROWID",
)
# Condition for a row of `answers` with the model and digest asked for. Bytes, since damaged text may be none.
IS_WHOLE = (
    "row_sum(:model, :digest, answers.item, answers.answer, CAST(answers.text AS BLOB)) IN (SELECT sum FROM checksums)"
)


def schema_of(database: sqlite3.Connection) -> tuple[str, ...]:
    return tuple(row[0] for row in database.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL"))


def upgrade(database: sqlite3.Connection) -> None:
    """Converts labels to answers: `label probability`, as kinds of query with choices encode them."""
    database.create_function("as_answer", 2, lambda label, probability: f"{label} {probability!r}".encode())
    with database:
        database.execute("BEGIN IMMEDIATE")
        if schema_of(database) == EARLIER_SCHEMA:  # no other process has upgraded it meanwhile
            database.execute(SCHEMA[1])
            columns = "prompt, item, as_answer(label, probability), answer, time"
            database.execute(f"INSERT INTO answers SELECT {columns} FROM labels")
            database.execute("DROP TABLE labels")


def add_sums(database: sqlite3.Connection) -> None:
    """Gives the rows of an earlier version their checksums."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        if schema_of(database) == WITHOUT_SUMS:  # no other process has done so meanwhile
            database.execute(SCHEMA[2])
            columns = "CAST(model AS TEXT), CAST(digest AS TEXT), item, answer, CAST(text AS BLOB)"
            query = f"SELECT row_sum({columns}) FROM answers JOIN prompts ON prompt = id"
            database.execute(f"INSERT OR IGNORE INTO checksums {query}")


def row_sum(*row: object) -> int:
    """Returns a checksum of a row's model, digest, item, answer and text, all of any type."""
    return int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=8).digest(), signed=True)
