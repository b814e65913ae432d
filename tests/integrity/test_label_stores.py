"""Rows of a label store that are damaged, and a store that is lost, cut or overwritten while it is used."""

import os
import pathlib
import shutil
import sqlite3
import time
from collections.abc import Callable

import numpy as np
import pytest

from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.store_log import is_damaged
from oni_jax.annotation.watched_store import FOLDER_SECS, LOOK_SECS, WatchedStore
from oni_jax.settings.fields import UserError
from tests.support.labelled import labelled
from tests.support.trials import trial

ROWS = [(labelled((b"caption %d" % i,), i % 2, 0.5), f"answer {i}") for i in range(200)]
HELD = {annotation.item: annotation.answer for annotation, _ in ROWS}


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    path = tmp_path / "runs" / "labels.sqlite"
    store = LabelStore(str(path))
    store.put_many("m", "d", ROWS)
    store.close()
    return path


def change(path: pathlib.Path, statement: str) -> None:
    database = sqlite3.connect(path)
    with database:
        database.execute(statement)
    database.close()


DAMAGES = {
    "answer": "UPDATE answers SET answer = x'3020302e35' WHERE item = CAST('caption 7' AS BLOB)",
    "item": "UPDATE answers SET item = CAST('caption X' AS BLOB) WHERE item = CAST('caption 7' AS BLOB)",
    "text": "UPDATE answers SET text = CAST(x'ff' AS TEXT) WHERE item = CAST('caption 7' AS BLOB)",
    "checksum": "DELETE FROM checksums WHERE sum = (SELECT sum FROM checksums LIMIT 1)",
}


@trial("damaged rows")
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_row_is_left_out_counted_and_replaced(path, damage):
    change(path, DAMAGES[damage])
    store = LabelStore(str(path))
    found = {annotation.item: annotation.answer for annotation in store.all("m", "d")}
    assert len(found) == len(HELD) - 1 and found.items() <= HELD.items()
    assert f"{path}: 1 damaged rows are left out" in store.damage
    assert len(store.get_many("m", "d", [*HELD])) == len(HELD) - 1
    store.put_many("m", "d", ROWS)
    assert {x.item: x.answer for x in store.all("m", "d")}.items() >= HELD.items()
    assert damage == "item" or not store.damage


def test_rows_of_an_earlier_version_get_checksums(path):
    change(path, "DROP TABLE checksums")
    store = LabelStore(str(path))
    assert {x.item: x.answer for x in store.all("m", "d")} == HELD and not store.damage


def test_no_damaged_store_gives_a_wrong_row(path, tmp_path):
    """The store is closed, so that all of it is in the file."""
    content, rng, num_read = path.read_bytes(), np.random.default_rng(0), 0
    for number in range(40):
        spoilt, size = bytearray(content), int(rng.integers(1, 65))
        first = int(rng.integers(0, len(content) - size))
        spoilt[first : first + size] = rng.bytes(size)
        copy = tmp_path / f"{number}.sqlite"
        copy.write_bytes(spoilt)
        try:
            store = LabelStore(str(copy))
            rows = store.all("m", "d")
        except (UserError, OSError):
            continue
        assert {x.item: x.answer for x in rows}.items() <= HELD.items(), f"{size} bytes at {first}"
        num_read += 1
        store.close()
    assert num_read > 5


@pytest.fixture
def killed(tmp_path) -> pathlib.Path:
    """A store whose process was killed: its answers are in its log."""
    path, source = tmp_path / "killed.sqlite", tmp_path / "live.sqlite"
    store = LabelStore(str(source))
    for row in ROWS[:20]:
        store.put_many("m", "d", [row])
    for suffix in ("", "-wal"):
        shutil.copy(f"{source}{suffix}", f"{path}{suffix}")
    store.close()
    return path


def read(path: pathlib.Path) -> int:
    """Returns the number of answers, none of which is wrong."""
    store = LabelStore(str(path))
    found = store.all("m", "d")
    store.close()
    assert all(HELD[row.item] == row.answer for row in found)
    return len(found)


def flipped(place: float) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        spoilt = bytearray(content)
        spoilt[int(place * (len(content) - 1))] ^= 1
        return bytes(spoilt)

    return change


LOGS: dict[str, Callable[[bytes], bytes]] = {
    **{f"bit at {place}": flipped(place) for place in (0.0, 0.0001, 0.2, 0.5, 0.99, 1.0)},
    "text": lambda content: b"a text" * 99,
    "zeros": lambda content: bytes(len(content)),
    "zeros within": lambda content: content[:9000] + bytes(9000) + content[18000:],
}


@trial("log damaged")
@pytest.mark.parametrize("damage", LOGS)
def test_damaged_log_is_noticed_and_kept(killed, damage, capsys):
    log = pathlib.Path(f"{killed}-wal")
    log.write_bytes(content := LOGS[damage](log.read_bytes()))
    assert read(killed) < 20
    assert capsys.readouterr().out.count("its log is damaged") == 1
    copy = pathlib.Path(f"{log}.damaged")
    assert copy.read_bytes() == content
    read(killed)
    assert capsys.readouterr().out == "" and len([*killed.parent.glob("killed*damaged*")]) == 1


@pytest.mark.parametrize("end", [1, 9, 24, 4119, 4120])
def test_log_that_a_kill_cut_off_or_that_was_begun_again_is_no_damaged_one(killed, end, capsys):
    log = pathlib.Path(f"{killed}-wal")
    os.truncate(log, log.stat().st_size - end)
    assert read(killed) == 19 and capsys.readouterr().out == ""
    database = sqlite3.connect(killed)
    database.execute("PRAGMA journal_mode = WAL")
    for _ in range(2):  # the second time over the frames of the first
        database.execute("CREATE TABLE x AS SELECT zeroblob(90000)")
        database.execute("DROP TABLE x")
        database.execute("PRAGMA wal_checkpoint(FULL)")
    database.execute("CREATE TABLE y (z)")
    assert not is_damaged(log.read_bytes()) and len(log.read_bytes()) > 90_000
    database.close()


def overwrite(path: pathlib.Path) -> None:
    with open(path, "r+b") as file:
        file.write(os.urandom(os.path.getsize(path)))


def replace(path: pathlib.Path) -> None:
    path.with_name("other").write_bytes(b"a text" * 999)
    path.with_name("other").replace(path)


def replace_by_a_store(path: pathlib.Path) -> None:
    other = LabelStore(str(path.with_name("other")))
    other.put_many("m", "d", [(labelled((b"of the other",), 1), "")])
    other.close()
    path.with_name("other").replace(path)


LOSSES: dict[str, tuple[Callable[[pathlib.Path], object], str]] = {
    "removed": (os.remove, "was removed"),
    "cut": (lambda path: os.truncate(path, 3000), "was overwritten, or is damaged"),
    "emptied": (lambda path: os.truncate(path, 0), "was overwritten, or is damaged"),
    "overwritten": (overwrite, "was overwritten, or is damaged"),
    "replaced by a text": (replace, "was replaced by another file"),
    "replaced by another store": (replace_by_a_store, "was replaced by another file"),
    "replaced by a pipe": (lambda path: (os.remove(path), os.mkfifo(path)), "was replaced by another file"),
}


@trial("label store lost")
@pytest.mark.parametrize("loss", LOSSES)
def test_store_that_is_lost_in_use_is_noticed_and_written_again(path, loss):
    lose, words = LOSSES[loss]
    lines: list[str] = []
    store = WatchedStore(LabelStore(str(path)), lines.append)
    assert len(store.all("m", "d")) == len(HELD)
    later = [(labelled((b"later",), 1), "")]
    store.put_many("m", "d", later)
    lose(path)
    time.sleep(LOOK_SECS)
    store.look()
    assert len(lines) == 1 and words in lines[0] and str(path) in lines[0], lines
    store.put_many("m", "d", [(labelled((b"after it",), 0), "")])
    found = {x.item for x in LabelStore(str(path)).all("m", "d")}
    assert found >= {*HELD, (b"later",), (b"after it",)} and len(lines) == 1
    assert loss != "replaced by another store" or (b"of the other",) in found
    assert [x.name for x in path.parent.glob("*.damaged")] == ["labels.sqlite.damaged"] * (loss != "removed")


def test_two_runs_that_lose_a_store_share_the_new_one(path):
    lines: list[str] = []
    stores = [WatchedStore(LabelStore(str(path)), lines.append) for _ in range(2)]
    for number, store in enumerate(stores):
        store.all("m", "d")
        store.put_many("m", "d", [(labelled((b"of run %d" % number,), 1), "")])
    replace(path)
    for _ in range(2):
        time.sleep(LOOK_SECS)
        for store in stores:
            store.look()
    assert len(lines) == 2 and {x.item for x in LabelStore(str(path)).all("m", "d")} == {
        *HELD,
        (b"of run 0",),
        (b"of run 1",),
    }


def test_store_that_others_write_is_not_taken_for_lost(path, tmp_path):
    lines: list[str] = []
    store, other = WatchedStore(LabelStore(str(path)), lines.append), LabelStore(str(path))
    store.all("m", "d")
    for number in range(3):
        other.put_many("m", "d", [(labelled((b"of another %d" % number,), 1), "")])
        other.close()
        os.utime(path)
        time.sleep(LOOK_SECS)
        store.look()
    assert lines == []
    shutil.rmtree(path.parent)  # the folder's watch says so
    time.sleep(LOOK_SECS)
    store.look()
    assert lines == [] and not path.parent.exists()


@trial("label store lost")
@pytest.mark.slow
def test_store_is_not_made_at_once_in_another_folder_of_its_path(path):
    """A run's folder that is renamed may be made again by a save that runs; the run then ends."""
    lines: list[str] = []
    store = WatchedStore(LabelStore(str(path)), lines.append)
    store.all("m", "d")
    path.parent.rename(path.parent.with_name("renamed"))
    path.parent.mkdir()
    time.sleep(LOOK_SECS)
    store.look()
    assert lines == [] and not list(path.parent.iterdir())
    time.sleep(FOLDER_SECS)
    store.look()
    assert len(lines) == 1 and {x.item for x in LabelStore(str(path)).all("m", "d")} == {*HELD}
