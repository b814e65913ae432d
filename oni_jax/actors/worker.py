"""What an actor process does: wait for a command, step a group of games, say so."""

import contextlib
import os
import struct
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection

from oni_jax.actors.group import Group, MakeEnv
from oni_jax.buffers.ring import TrajectoryRing

COMMAND = struct.Struct("=iii")  # unit, slot, row t to write
ANSWER = struct.Struct("=i")  # unit


def run_worker(
    connection: Connection, make_env: MakeEnv, ring: TrajectoryRing, units: Sequence[int], scratch: str, restarts: int
) -> None:
    """Serves commands for `units` until the connection closes (EOFError, which ends the process quietly).

    Games keep their files in the folder `scratch`, beside those of other actors; the last to leave removes the lot.
    `restarts` processes had this one's place before: its games are others than theirs.
    """
    tempfile.tempdir = scratch
    groups = {unit: Group(make_env, ring, unit, restarts) for unit in units}
    parent_is_gone = False
    try:
        while True:
            unit, slot, t = COMMAND.unpack(connection.recv_bytes())
            groups[unit].advance(slot, t)
            connection.send_bytes(ANSWER.pack(unit))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        parent_is_gone = True
        raise
    finally:
        for group in groups.values():
            group.close()
        if parent_is_gone:  # else it goes on with another in this one's place
            with contextlib.suppress(OSError):
                os.rmdir(scratch)
                os.rmdir(os.path.dirname(scratch))
