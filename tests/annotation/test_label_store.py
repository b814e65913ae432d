import os
import pathlib
import pickle
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import textwrap
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oni_jax.annotation.label_store import MAX_TEXT_CHARS, LabelStore
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation
from tests.support.full_disk import full_disk
from tests.support.labelled import labelled
from tests.support.trials import trial

OLD_RUNS = pathlib.Path(__file__).parent.parent / "old_runs"
NEWT = labelled((b"You kill the newt!",), 1, 0.75)
WALL = labelled((b"It's a wall.\xff",), 0, 0.25)
PAIR = labelled((b"a", b""), 2, 0.5)
FREE = Annotation((b"a", b"b", b"c"), b"chop tree\n\0\xff")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "runs" / "labels.sqlite")


def test_round_trip(path):
    store = LabelStore(path)
    store.put_many("llama", "d1", [(NEWT, "<label>FOO</label>"), (WALL, ""), (PAIR, "tie"), (FREE, "chop")])
    assert sorted(store.get_many("llama", "d1", [NEWT.item, PAIR.item, (b"new",)])) == sorted([NEWT, PAIR])
    assert store.get_many("llama", "d2", [NEWT.item]) == [] == store.get_many("gpt", "d1", [NEWT.item])
    assert sorted(store.all("llama", "d1")) == sorted([NEWT, WALL, PAIR, FREE])
    assert (store.count("llama", "d1"), store.count("llama", "d2")) == (4, 0)
    store.close()
    assert pickle.loads(pickle.dumps(store)).count("llama", "d1") == 4


def test_first_label_stays(path):
    store = LabelStore(path)
    store.put_many("m", "d", [(NEWT, "")])
    store.put_many("m", "d", [(labelled(NEWT.item, 0), ""), (WALL, "")])
    assert store.get_many("m", "d", [NEWT.item]) == [NEWT] and store.count("m", "d") == 2


def test_many_items_at_once(path):
    store = LabelStore(path)
    many = [labelled((b"%d" % i,), i % 2, float(i % 2)) for i in range(1700)]
    store.put_many("m", "d", [(annotation, "") for annotation in many])
    assert len(store.get_many("m", "d", [annotation.item for annotation in many])) == 1700


def test_answers_are_bounded(path):
    store = LabelStore(path)
    store.put_many("m", "d", [(NEWT, "<knowledge>" + "x" * 10_000 + "</label>")])
    (answer,) = sqlite3.connect(path).execute("SELECT text FROM answers").fetchone()
    assert len(answer) <= MAX_TEXT_CHARS + 10 and answer.startswith("<know") and answer.endswith("x</label>")


@pytest.mark.parametrize("answer", [None, "1 1.0", 1])
def test_bad_answers_are_refused(path, answer):
    store = LabelStore(path)
    with pytest.raises(sqlite3.IntegrityError):
        store.put_many("m", "d", [(WALL, ""), (NEWT._replace(answer=answer), "")])
    assert store.count("m", "d") == 0
    with pytest.raises(ValueError, match="zero byte"):
        store.put_many("m", "d", [(labelled((b"a\0b",), 1, 1.0), "")])


def _garbage(path):
    with open(path, "wb") as file:
        file.write(b"not a database at all " * 100)


def _foreign(path):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE songs (name)")


def _with_trigger(path):
    LabelStore(path).close()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TRIGGER t AFTER INSERT ON answers BEGIN DELETE FROM answers; END")


def _damaged(path):
    store = LabelStore(path)
    store.put_many("m", "d", [(labelled((b"%d" % i,), 1, 1.0), "x" * 500) for i in range(200)])
    store.close()
    with open(path, "r+b") as file:
        file.seek(4096 * 4)
        file.write(b"\xff" * 4096 * 4)


def _truncated(path):
    _damaged(path)
    os.truncate(path, 4096 * 5)


def _schema_that_is_no_text(path):
    LabelStore(path).close()
    with open(path, "r+b") as file:
        content = file.read()
        file.seek(content.index(b"TABLE prompts") + len("TABLE "))
        file.write(b"\x80")


def _folder(path):
    os.makedirs(path)


@pytest.mark.parametrize(
    "spoil", [_garbage, _foreign, _with_trigger, _damaged, _truncated, _folder, _schema_that_is_no_text]
)
def test_refuses_what_is_no_label_store(path, spoil):
    os.makedirs(os.path.dirname(path))
    spoil(path)
    with pytest.raises(UserError) as error:
        LabelStore(path)
    assert path in str(error.value) and "\n" not in str(error.value)


def test_refuses_a_place_that_cant_be_written():
    with pytest.raises(UserError, match="/proc/nowhere"):
        LabelStore("/proc/nowhere/labels.sqlite")


WRITER = textwrap.dedent("""
    import itertools, sys
    from oni_jax.annotation.label_store import LabelStore
    from tests.support.labelled import labelled
    store = LabelStore(sys.argv[1])
    for i in itertools.count() if sys.argv[3] == "0" else range(int(sys.argv[3])):
        store.put_many("m", "d", [(labelled((f"{sys.argv[2]} {i}".encode(),), 1), "answer")])
        print(i, flush=True)
""")


def _writer(path, name, num_labels=0):
    return subprocess.Popen([sys.executable, "-c", WRITER, path, name, str(num_labels)], stdout=subprocess.PIPE)


@trial("kill")
def test_committed_labels_survive_a_kill(path):
    writer = _writer(path, "w")
    assert writer.stdout
    for _ in range(50):
        last = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    held = {annotation.item for annotation in LabelStore(path).all("m", "d")}
    assert {(b"w %d" % i,) for i in range(last + 1)} <= held


def test_several_processes_share_a_file(path):
    """They also make it at the same time."""
    writers = [_writer(path, name, 100) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    for writer in writers:
        writer.communicate()
    assert LabelStore(path).count("m", "d") == 300


def _foreign_with_a_mark(path):
    """Opened by nobody but that program: not even its log is touched."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE bookmarks (url)")
    return database


def test_a_second_store_of_a_process_leaves_the_locks_of_the_first(path):
    """A user who opens and closes the file drops the locks; another process then removes the log."""
    first = LabelStore(path)
    first.put_many("m", "d", [(NEWT, "")])
    LabelStore(path)
    reader = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM answers').fetchall()"
    subprocess.run([sys.executable, "-c", reader, path], check=True)
    assert os.path.exists(f"{path}-wal")
    first.put_many("m", "d", [(WALL, "")])
    assert LabelStore(path).count("m", "d") == 2


def test_another_programs_database_is_not_touched(path):
    os.makedirs(os.path.dirname(path))
    theirs = _foreign_with_a_mark(path)
    before = {name: os.stat(os.path.join(os.path.dirname(path), name)) for name in os.listdir(os.path.dirname(path))}
    with pytest.raises(UserError, match="no label store"):
        LabelStore(path)
    after = {name: os.stat(os.path.join(os.path.dirname(path), name)) for name in os.listdir(os.path.dirname(path))}
    assert {name: stat.st_mtime_ns for name, stat in after.items()} == {
        name: stat.st_mtime_ns for name, stat in before.items()
    }
    theirs.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_no_write_follows_a_link(path, suffix):
    if suffix:
        LabelStore(path).close()
    else:
        os.makedirs(os.path.dirname(path))
    victim = f"{path}.victim"
    os.symlink(victim, path + suffix)
    with pytest.raises(UserError, match="is a link"):
        LabelStore(path)
    assert not os.path.exists(victim)


def journal_that_names(victim: str, num_pages: int) -> bytes:
    """A rollback journal with nothing to roll back, and at its end the name of a "super-journal"."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), victim.encode()
    header = magic + struct.pack(">IIIII", 0, 0, num_pages, 512, 4096)
    page_of_the_lock = (1 << 30) // 4096 + 1
    end = struct.pack(">I", page_of_the_lock) + name + struct.pack(">II", len(name), sum(name)) + magic
    return header.ljust(512, b"\0") + end


def test_a_journal_removes_no_file(path):
    """SQLite would take the file that is named for a super-journal that is no longer needed."""
    LabelStore(path).close()
    victim = f"{path}.victim"
    journal = journal_that_names(victim, os.path.getsize(path) // 4096)
    for open_store in (sqlite3.connect, LabelStore):
        with open(victim, "w") as file:
            file.write("dear to its owner")
        with open(f"{path}-journal", "wb") as file:
            file.write(journal)
        if open_store is LabelStore:
            with pytest.raises(UserError, match="names another file"):
                LabelStore(path)
            assert os.path.exists(victim)
        else:  # as the attack would work
            sqlite3.connect(path).execute("SELECT * FROM answers").fetchall()
            assert not os.path.exists(victim)


@pytest.mark.parametrize("columns", ["5000000000, x'31', ''", "'text', x'31', ''"])
def test_rows_that_are_no_answers_are_refused(path, columns):
    store = LabelStore(path)
    store.put_many("m", "d", [(NEWT, "")])
    with sqlite3.connect(path) as database:
        database.execute(f"INSERT INTO answers VALUES (1, {columns}, 0)")
    database.close()
    with pytest.raises(UserError, match="damaged"):
        store.all("m", "d")


@pytest.mark.parametrize("columns", ["x'61', 7, ''", "x'61', '1 1.0', ''"])
def test_rows_that_break_the_rules_are_refused(path, columns):
    LabelStore(path).put_many("m", "d", [(NEWT, "")])
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute(f"INSERT INTO answers VALUES (1, {columns}, 0)")
    database.close()
    with pytest.raises(UserError, match="damaged"):
        LabelStore(path)


def test_a_row_that_would_fill_the_memory_is_refused(path):
    store = LabelStore(path)
    store.put_many("m", "d", [(NEWT, "")])
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO answers VALUES (1, CAST(hex(zeroblob(2500000)) AS BLOB), x'31', '', 0)")
    database.close()
    store.close()
    with pytest.raises(UserError):
        LabelStore(path).all("m", "d")


def _view(database):
    database.execute("DROP TABLE answers")
    database.execute("CREATE VIEW answers AS SELECT load_extension('/tmp/evil.so')")


def _generated(database):
    database.execute("DROP TABLE answers")
    database.execute("CREATE TABLE answers (prompt, item, answer AS (zeroblob(1000000000)))")


def _virtual(database):
    database.execute("CREATE VIRTUAL TABLE search USING fts5(item)")


def _expression(database):
    database.execute("CREATE INDEX i ON answers (abs(answer))")


@pytest.mark.parametrize("spoil", [_view, _generated, _virtual, _expression])
def test_a_schema_that_could_do_something_is_refused(path, spoil):
    LabelStore(path).close()
    with sqlite3.connect(path) as database:
        spoil(database)
    database.close()
    with pytest.raises(UserError, match="something else"):
        LabelStore(path)


@trial("full disk")
def test_a_full_disk_loses_nothing_that_was_committed(path):
    store = LabelStore(path)
    store.put_many("m", "d", [(NEWT, "")])
    many = [(labelled((b"%d" % i,), 1, 1.0), "x" * 1000) for i in range(500)]
    with full_disk(os.path.getsize(f"{path}-wal")), pytest.raises(OSError) as error:
        store.put_many("m", "d", many)
    assert path in str(error.value) and "\n" not in str(error.value)
    assert store.all("m", "d") == [NEWT]
    store.put_many("m", "d", many)
    assert store.count("m", "d") == 501 and LabelStore(path).count("m", "d") == 501


def test_a_full_disk_at_the_start_is_told_in_a_line(path):
    with full_disk(), pytest.raises(UserError) as error:
        LabelStore(path)
    assert path in str(error.value) and "\n" not in str(error.value)


@pytest.fixture(scope="module")
def contents(tmp_path_factory) -> bytes:
    """A label store's file."""
    path = tmp_path_factory.mktemp("store") / "labels.sqlite"
    store = LabelStore(str(path))
    store.put_many("m", "d", [(labelled((b"%d" % i,), i % 2, 0.5), "answer") for i in range(100)])
    store.close()
    return path.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_file_holds_it_is_read_or_refused(tmp_path, contents, data):
    spoilt = bytearray(contents)
    places = st.one_of(st.integers(0, 200), st.integers(0, len(contents) - 1))
    for _ in range(data.draw(st.integers(1, 8))):
        spoilt[data.draw(places)] = data.draw(st.integers(0, 255))
    path = tmp_path / "labels.sqlite"
    path.write_bytes(bytes(spoilt[: data.draw(st.sampled_from([len(contents), len(contents) // 2, 4096, 1]))]))
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"labels.sqlite{suffix}").unlink(missing_ok=True)
    try:
        store = LabelStore(str(path))
    except UserError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return
    try:
        for annotation in store.all("m", "d"):
            assert type(annotation.answer) is bytes
        store.put_many("m", "d", [(NEWT, "")])
    except (UserError, OSError):
        pass
    finally:
        store.close()


LABELS_SCHEMA = (
    "CREATE TABLE prompts (id INTEGER PRIMARY KEY, model TEXT NOT NULL, digest TEXT NOT NULL, UNIQUE (model, digest))",
    "CREATE TABLE labels (prompt INTEGER NOT NULL REFERENCES prompts (id), item BLOB NOT NULL, "
    "label INTEGER NOT NULL CHECK (label IN (0, 1, 2)), probability REAL NOT NULL CHECK (probability BETWEEN 0 AND 1), "
    "answer TEXT NOT NULL, time REAL NOT NULL, PRIMARY KEY (prompt, item)) WITHOUT ROWID",
)


def write_labels(path: str, num_labels: int) -> list[Annotation]:
    """A store of the earlier form. Returns what it holds, as it is to be read."""
    os.makedirs(os.path.dirname(path))
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA application_id = 0x4F4E494C")
    for statement in LABELS_SCHEMA:
        database.execute(statement)
    database.execute("INSERT INTO prompts VALUES (1, 'm', 'd')")
    rows = [(b"text %d" % i, i % 3, (i % 97) / 97) for i in range(num_labels)]
    database.execute("BEGIN")
    database.executemany("INSERT INTO labels VALUES (1, ?, ?, ?, 'said so', 1.5)", rows)
    database.execute("COMMIT")
    database.close()
    return [labelled((item,), label, probability) for item, label, probability in rows]


@pytest.mark.parametrize("name", ["nethack", "ranking"])
def test_labels_of_the_earlier_form_become_answers(path, name):
    os.makedirs(os.path.dirname(path))
    shutil.copy(OLD_RUNS / name / "labels.sqlite", path)
    with sqlite3.connect(path) as database:
        before = database.execute("SELECT item, label, probability, answer, time FROM labels").fetchall()
        (model, digest), *_ = database.execute("SELECT model, digest FROM prompts")
    database.close()
    store = LabelStore(path)
    expected = [labelled(tuple(item.split(b"\0")), label, probability) for item, label, probability, _, _ in before]
    assert len(before) > 100 and sorted(store.all(model, digest)) == sorted(expected)
    with sqlite3.connect(path) as database:
        after = database.execute("SELECT item, text, time FROM answers").fetchall()
    assert sorted(after) == sorted((item, text, time) for item, _, _, text, time in before)
    store.put_many(model, digest, [(labelled((b"never said",), 1), "")])
    assert LabelStore(path).count(model, digest) == len(before) + 1


OPENER = """
import sys
from oni_jax.annotation.label_store import LabelStore
from tests.support.labelled import labelled
print("ready", flush=True)
sys.stdin.readline()
store = LabelStore(sys.argv[1])
store.put_many("m", "d", [(labelled((sys.argv[2].encode(),), 1), "")])
print("open", flush=True)
"""


def opener(path: str, name: str) -> subprocess.Popen:
    """A process that will open the store, and write a label, when it is sent a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", OPENER, path, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


def test_kill_during_an_upgrade_leaves_the_store_whole(path):
    held = write_labels(path, 60_000)
    kills = 0
    for delay in (0.01, 0.03, 0.06, 0.1, 0.15):
        process = opener(path, "killed")
        process.stdin.write("\n")  # type: ignore
        process.stdin.flush()  # type: ignore
        time.sleep(delay)
        process.kill()
        process.wait()
        with sqlite3.connect(path) as database:
            (tables,) = database.execute("SELECT group_concat(name) FROM sqlite_master WHERE type = 'table'").fetchone()
            (table,) = set(tables.split(",")) - {"prompts", "checksums"}
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] >= len(held)
        database.close()
        kills += table == "labels"
    assert kills > 0
    assert {*held} <= {*LabelStore(path).all("m", "d")}


def test_runs_that_open_it_at_once_upgrade_it_once(path):
    held = write_labels(path, 20_000)
    processes = [opener(path, f"run {i}") for i in range(3)]
    for process in processes:
        process.stdin.write("\n")  # type: ignore
        process.stdin.flush()  # type: ignore
    assert [process.communicate(timeout=60)[0] for process in processes] == ["open\n"] * 3
    added = [labelled((f"run {i}".encode(),), 1) for i in range(3)]
    assert sorted(LabelStore(path).all("m", "d")) == sorted([*held, *added])


def test_upgrade_waits_for_a_writer_of_the_earlier_form(path):
    held = write_labels(path, 100)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    database.execute("INSERT INTO labels VALUES (1, x'6d696e65', 1, 0.5, '', 0)")
    process = opener(path, "new")
    process.stdin.write("\n")  # type: ignore
    process.stdin.flush()  # type: ignore
    time.sleep(0.3)
    database.execute("COMMIT")
    assert process.communicate(timeout=60)[0] == "open\n"
    expected = [*held, labelled((b"mine",), 1, 0.5), labelled((b"new",), 1)]
    assert sorted(LabelStore(path).all("m", "d")) == sorted(expected)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):  # the run asks again, and gets this error
        database.execute("INSERT INTO labels VALUES (1, x'00', 1, 0.5, '', 0)")
    database.close()
