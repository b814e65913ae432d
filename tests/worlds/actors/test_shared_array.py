"""Shared arrays cross a spawn, and leave nothing behind."""

import os
from multiprocessing.connection import Connection

import numpy as np

from oni_jax.host.runtime import start_child, stop_child
from oni_jax.worlds.actors.shared_array import SharedArray


def add_one(connection: Connection, shared: SharedArray) -> None:
    while True:
        connection.recv_bytes()
        shared.array += 1
        connection.send_bytes(b"done")


def test_a_child_writes_what_the_parent_reads():
    shared = SharedArray((3, 4), np.dtype([("a", "<i4"), ("b", "u1", (2,))]))
    plain = SharedArray((5,), np.int64)
    assert not plain.array.any()
    process, connection = start_child("adder", add_one, plain)
    for expected in (1, 2):
        connection.send_bytes(b"go")
        assert connection.recv_bytes() == b"done"
        np.testing.assert_array_equal(plain.array, np.full(5, expected))
    stop_child(process, connection)
    assert process.exitcode == 0
    assert shared.array["b"].shape == (3, 4, 2)


def test_shared_memory_has_no_name_even_after_a_kill():
    before = set(os.listdir("/dev/shm"))
    plain = SharedArray((1 << 20,), np.uint8)
    process, connection = start_child("adder", add_one, plain)
    connection.send_bytes(b"go")
    connection.recv_bytes()
    assert set(os.listdir("/dev/shm")) == before
    process.kill()
    process.join()
    stop_child(process, connection)
    assert set(os.listdir("/dev/shm")) == before


def test_descriptors_and_memory_are_given_back():
    num_open = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        SharedArray((1 << 16,), np.float32)
    assert len(os.listdir("/proc/self/fd")) <= num_open + 1
