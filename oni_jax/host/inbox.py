"""Messages of a child process, received without waiting for one that stops in the middle of a message."""

import os
import select
import socket
import struct
import time
from multiprocessing.connection import Connection

_AT_ONCE_BYTES = 1 << 18
_LENGTH, _LONG_LENGTH = struct.Struct("!i"), struct.Struct("!Q")  # `Connection.send_bytes`'s: -1, then the long one


class Inbox:
    """The receiving side of a connection that `start_child` returned. All that is received of it is received here.

    `Connection.recv_bytes` waits for the rest of a message that has begun, for ever where the child was stopped.
    """

    def __init__(self, connection: Connection):
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._received = bytearray()
        self._messages: list[bytes] = []  # whole ones
        self._has_ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> list[bytes]:
        """Returns the messages that have arrived whole.

        Raises:
            EOFError: the child has closed its side, or has ended, and all its messages were returned.
        """
        if not self._has_ended:
            self._read()
        messages, self._messages = self._messages, []
        if not messages and self._has_ended:
            raise EOFError
        return messages

    def wait(self, timeout_secs: float) -> bytes:
        """Returns the next message. Raises EOFError, see `receive`, and TimeoutError."""
        deadline = time.monotonic() + timeout_secs
        while not self._messages:
            if (remaining_secs := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            self.wait_for_some(remaining_secs)
            self._messages = self.receive()
        return self._messages.pop(0)

    def wait_for_some(self, timeout_secs: float) -> bool:
        """Waits until something has arrived, perhaps a part of a message, or the child has ended; False: it did not."""
        poll = select.poll()  # `select` refuses descriptors above 1,024
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(1000 * timeout_secs))

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_AT_ONCE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # reset by a child that died
        self._has_ended = not data
        self._received += data
        while (message := self._whole_message()) is not None:
            self._messages.append(message)

    def _whole_message(self) -> bytes | None:
        """Removes the first message from what was received. None: its end is still to come."""
        received, start = self._received, _LENGTH.size
        if len(received) < start:
            return None
        (length,) = _LENGTH.unpack_from(received)
        if length < 0:
            start += _LONG_LENGTH.size
            if len(received) < start:
                return None
            (length,) = _LONG_LENGTH.unpack_from(received, _LENGTH.size)
        if len(received) < start + length:
            return None
        message = bytes(received[start : start + length])
        del received[: start + length]
        return message
