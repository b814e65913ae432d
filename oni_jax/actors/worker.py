"""What an actor process does: wait for a command, step a group of games, say so."""

import contextlib
import os
import struct
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection

from oni_jax.actors.group import Group, MakeEnv
from oni_jax.buffers.ring import TrajectoryRing
from oni_jax.envs.captions import NewTexts

COMMAND = struct.Struct("=iii")  # group, slot, row t to write
ANSWER = struct.Struct(
    "=xi"
)  # a zero byte, with which no error's text begins; group; then its new texts, of which each
TEXT = struct.Struct("=qi")  # is its number, its length and itself


def pack_answer(group: int, texts: NewTexts) -> bytes:
    """What a process says when it has stepped a group."""
    return ANSWER.pack(group) + b"".join(TEXT.pack(number, len(text)) + text for number, text in texts)


def unpack_answer(answer: bytes) -> tuple[int, NewTexts]:
    """The inverse."""
    (group,), place, texts = ANSWER.unpack_from(answer), ANSWER.size, []
    while place < len(answer):
        number, length = TEXT.unpack_from(answer, place)
        place += TEXT.size + length
        texts.append((number, answer[place - length : place]))
    return group, texts


def run_worker(
    connection: Connection, make_env: MakeEnv, ring: TrajectoryRing, indices: Sequence[int], scratch: str, restarts: int
) -> None:
    """Serves commands for the groups `indices` until the connection closes (EOFError, which ends the process quietly).

    Games keep their files in the folder `scratch`, beside those of other actors; the last to leave removes the lot.
    `restarts` processes had this one's place before: its games are others than theirs.
    """
    tempfile.tempdir = scratch
    groups = {index: Group(make_env, ring, index, restarts) for index in indices}
    parent_is_gone = False
    try:
        while True:
            index, slot, t = COMMAND.unpack(connection.recv_bytes())
            connection.send_bytes(pack_answer(index, groups[index].advance(slot, t)))
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
