import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from oni_jax.config import UserError
from oni_jax.rewards.label_store import MAX_ANSWER_CHARS, LabelStore
from oni_jax.types import Annotation

NEWT = Annotation((b"You kill the newt!",), 1, 0.75)
WALL = Annotation((b"It's a wall.\xff",), 0, 0.25)
PAIR = Annotation((b"a", b""), 2, 0.5)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "runs" / "labels.sqlite")


def test_round_trip(path):
    store = LabelStore(path)
    store.put_many("llama", "d1", [(NEWT, "<label>FOO</label>"), (WALL, ""), (PAIR, "tie")])
    assert store.get_many("llama", "d1", [NEWT.item, PAIR.item, (b"new",)]) == {NEWT.item: NEWT, PAIR.item: PAIR}
    assert store.get_many("llama", "d2", [NEWT.item]) == {} == store.get_many("gpt", "d1", [NEWT.item])
    assert sorted(store.all("llama", "d1")) == sorted([NEWT, WALL, PAIR])
    assert (store.count("llama", "d1"), store.count("llama", "d2")) == (3, 0)
    store.close()
    assert pickle.loads(pickle.dumps(store)).count("llama", "d1") == 3


def test_first_label_stays(path):
    store = LabelStore(path)
    store.put_many("m", "d", [(NEWT, "")])
    store.put_many("m", "d", [(NEWT._replace(label=0), ""), (WALL, "")])
    assert store.get_many("m", "d", [NEWT.item])[NEWT.item] == NEWT and store.count("m", "d") == 2


def test_many_items_at_once(path):
    store = LabelStore(path)
    labelled = [Annotation((b"%d" % i,), i % 2, float(i % 2)) for i in range(1700)]
    store.put_many("m", "d", [(annotation, "") for annotation in labelled])
    assert len(store.get_many("m", "d", [annotation.item for annotation in labelled])) == 1700


def test_answers_are_bounded_and_clean(path):
    store = LabelStore(path)
    store.put_many("m", "d", [(NEWT, "<knowledge>" + "x" * 10_000 + "\ud800</label>")])
    (answer,) = sqlite3.connect(path).execute("SELECT answer FROM labels").fetchone()
    assert len(answer) <= MAX_ANSWER_CHARS + 10 and answer.startswith("<know") and answer.endswith("?</label>")


def test_bad_labels_are_refused(path):
    store = LabelStore(path)
    with pytest.raises(sqlite3.IntegrityError):
        store.put_many("m", "d", [(WALL, ""), (NEWT._replace(label=7), "")])
    assert store.count("m", "d") == 0
    with pytest.raises(ValueError, match="zero byte"):
        store.put_many("m", "d", [(Annotation((b"a\0b",), 1, 1.0), "")])


def _garbage(path):
    with open(path, "wb") as file:
        file.write(b"not a database at all " * 100)


def _foreign(path):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE songs (name)")


def _with_trigger(path):
    LabelStore(path).close()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TRIGGER t AFTER INSERT ON labels BEGIN DELETE FROM labels; END")


def _damaged(path):
    store = LabelStore(path)
    store.put_many("m", "d", [(Annotation((b"%d" % i,), 1, 1.0), "x" * 500) for i in range(200)])
    store.close()
    with open(path, "r+b") as file:
        file.seek(4096 * 4)
        file.write(b"\xff" * 4096 * 4)


def _truncated(path):
    _damaged(path)
    os.truncate(path, 4096 * 5)


def _folder(path):
    os.makedirs(path)


@pytest.mark.parametrize("spoil", [_garbage, _foreign, _with_trigger, _damaged, _truncated, _folder])
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
    from oni_jax.rewards.label_store import LabelStore
    from oni_jax.types import Annotation
    store = LabelStore(sys.argv[1])
    for i in itertools.count() if sys.argv[3] == "0" else range(int(sys.argv[3])):
        store.put_many("m", "d", [(Annotation((f"{sys.argv[2]} {i}".encode(),), 1, 1.0), "answer")])
        print(i, flush=True)
""")


def _writer(path, name, num_labels=0):
    return subprocess.Popen([sys.executable, "-c", WRITER, path, name, str(num_labels)], stdout=subprocess.PIPE)


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
