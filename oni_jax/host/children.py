"""Children that are heard of every few seconds: one that is stopped, or hangs, is noticed."""

import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from oni_jax.host.inbox import Inbox
from oni_jax.host.restarts import how_it_ended
from oni_jax.host.runtime import stop_child

BEAT = b""  # a message that says nothing but that its sender lives
BEAT_SECS = 5.0  # longest interval of a child's messages
SILENT_SECS = 60.0  # after which a child counts as stopped
START_SECS = 600.0  # the same, until it is ready
MAX_UNWATCHED_SECS = 10.0  # bound on a time in which nobody asked: this process may have been stopped, too


class ChildLost(Exception):
    """A child died or is silent; the text says which."""


class Child:
    """A process of `start_child` that sends something at least every BEAT_SECS, once `is_ready`."""

    def __init__(self, process: BaseProcess, connection: Connection):
        self.process, self.connection, self.is_ready = process, connection, False
        self._inbox = Inbox(connection)
        self._silent_secs, self._asked_at = 0.0, time.monotonic()

    def receive(self) -> list[bytes]:
        """Returns the messages that have arrived. Raises ChildLost."""
        try:
            messages = self._inbox.receive()
        except EOFError:
            self.process.join(1.0)
            raise ChildLost(how_it_ended(self.process.exitcode)) from None
        now = time.monotonic()
        self._silent_secs += min(now - self._asked_at, MAX_UNWATCHED_SECS)
        self._asked_at = now
        if messages:
            self._silent_secs = 0.0
        limit_secs = SILENT_SECS if self.is_ready else START_SECS
        if self._silent_secs > limit_secs:
            raise ChildLost(f"has not been heard of for {limit_secs:.0f} s")
        return [message for message in messages if message != BEAT]

    def wait(self, timeout_secs: float) -> list[bytes]:
        """Returns the messages that have arrived, after waiting for some. Raises ChildLost, see `receive`."""
        self._inbox.wait_for_some(timeout_secs)
        return self.receive()

    def stop(self, timeout_secs: float) -> None:
        """Closes the connection, by which the child is to end, and kills it after the time-out."""
        self._inbox.close()
        stop_child(self.process, self.connection, timeout_secs)
