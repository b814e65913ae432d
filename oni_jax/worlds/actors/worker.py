"""Main loop of an actor process: receive a command, step a group, reply."""

import contextlib
import os
import struct
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection

from oni_jax.envs.captions import NewTexts
from oni_jax.host.runtime import has_hung_up
from oni_jax.worlds.actors.group import Group, MakeEnv
from oni_jax.worlds.actors.ring import TrajectoryRing

COMMAND = struct.Struct("=iii")  # group, slot, row t to write
# A reply: a zero byte, with which no error's text begins; the group; then each new text's id, length and bytes.
REPLY = struct.Struct("=xi")
TEXT = struct.Struct("=qi")


def pack_reply(group: int, texts: NewTexts) -> bytes:
    """Encodes the reply of a group that has been stepped."""
    return REPLY.pack(group) + b"".join(TEXT.pack(text_id, len(text)) + text for text_id, text in texts)


def unpack_reply(reply: bytes) -> tuple[int, NewTexts]:
    """Decodes what `pack_reply` encoded."""
    (group,), offset, texts = REPLY.unpack_from(reply), REPLY.size, []
    while offset < len(reply):
        text_id, length = TEXT.unpack_from(reply, offset)
        offset += TEXT.size + length
        texts.append((text_id, reply[offset - length : offset]))
    return group, texts


def run_worker(
    connection: Connection, make_env: MakeEnv, ring: TrajectoryRing, indices: Sequence[int], scratch: str, restarts: int
) -> None:
    """Serves commands for the groups `indices` until the connection closes, which raises EOFError or OSError.

    Environments keep files in the folder `scratch`, a sibling of other actors'; the last to exit removes the parent.
    restarts: processes that this one follows; its episodes differ from theirs.
    """
    tempfile.tempdir = scratch
    os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)  # a later run finds a process that outlives its run by it
    groups = {index: Group(make_env, ring, index, restarts) for index in indices}
    try:
        while True:
            index, slot, t = COMMAND.unpack(connection.recv_bytes())
            connection.send_bytes(pack_reply(index, groups[index].advance(slot, t)))
    finally:
        for group in groups.values():
            group.close()
        if has_hung_up(connection):  # else the pool removes them
            with contextlib.suppress(OSError):
                os.rmdir(scratch)
                os.rmdir(os.path.dirname(scratch))
