import sqlite3
import tracemalloc

import pytest

from oni_jax.worlds.actors import captions
from oni_jax.worlds.actors.captions import CaptionTable


def texts(number: int, start: int = 1) -> list[tuple[int, bytes]]:
    return [(i, b"You see here %d zorkmids, and a newt." % i) for i in range(start, start + number)]


def test_memory_is_bounded_and_all_texts_are_found_and_counted_once():
    table, many = CaptionTable(max_held=1000), texts(40_000)
    tracemalloc.start()
    for i in range(0, len(many), 500):
        table.add(many[i : i + 500])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20
    table.add(many[:2000])  # as an actor that has forgotten them says them again
    assert len(table) == len(many)
    assert all(table[i] == text for i, text in many[::37]) and table[0] == b""
    with pytest.raises(KeyError):
        table[len(many) + 1]


def test_texts_and_their_number_are_restored_by_a_table_that_holds_fewer():
    table, restored = CaptionTable(max_held=64), CaptionTable(max_held=10)
    table.add([*texts(500), *texts(100)])
    restored.restore(table.save())
    assert len(restored) == len(table) == 500
    assert [restored[i] for i, _ in texts(500)] == [text for _, text in texts(500)]
    assert {*restored.save()["text_numbers"].tolist()} == {0, *range(1, 501)}


def test_texts_are_kept_in_memory_where_the_disk_is_full(monkeypatch, capsys):
    def full() -> sqlite3.Connection:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(captions, "_opened", full)
    table = CaptionTable(max_held=10)
    table.add(texts(100))
    assert len(table) == 100 and table[1] == texts(1)[0][1]
    assert "disk is full" in capsys.readouterr().out
