"""Several servers of one model: the next request goes where the fewest are in flight; one that fails is left out."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from oni_jax.annotation.failures import RequestError
from oni_jax.annotation.pacing import MAX_RETRY_AFTER_SECS, backoff_secs
from oni_jax.annotation.routes import Route

Answer = TypeVar("Answer")
FAILURES_TO_AWAY = 3  # consecutive failures; fewer may be the prompts'


class Server:
    """One server, its requests in flight, and its failures since it answered last."""

    def __init__(self, route: Route):
        self.route = route
        self.num_in_flight = self.num_asked = self.num_failures = 0
        self.problem: RequestError | None = None
        self._resume_at = 0.0

    @property
    def answers(self) -> bool:
        at_fault = self.problem is not None and self.problem.server_at_fault
        return not at_fault and self.num_failures < FAILURES_TO_AWAY

    def takes(self, now: float) -> bool:
        """Returns whether it may be asked; after a failure one request at a time, with backoff."""
        return not self.num_failures or (not self.num_in_flight and now >= self._resume_at)

    def order(self, now: float) -> tuple[float, ...]:
        """Sorts servers: the best to ask next comes first."""
        return (0.0 if self.takes(now) else self._resume_at, self.num_in_flight, self.num_asked)

    async def ask(self, request: Callable[[Route], Awaitable[Answer]]) -> Answer:
        """Makes a request of this server. Raises RequestError."""
        self.num_in_flight += 1
        self.num_asked += 1
        try:
            answer = await request(self.route)
        except RequestError as error:
            self._failed(error)
            raise
        finally:
            self.num_in_flight -= 1
        self.num_failures, self.problem = 0, None
        return answer

    def _failed(self, error: RequestError) -> None:
        if error.is_of_the_items:
            return
        pause = max(backoff_secs(self.num_failures), min(error.retry_after_secs, MAX_RETRY_AFTER_SECS))
        self._resume_at = time.monotonic() + pause
        self.num_failures += 1
        self.problem = error


class Servers:
    """Spreads requests over servers.

    Args:
        routes: one to each server.
    """

    def __init__(self, routes: Sequence[Route]):
        self._servers = [Server(route) for route in routes]

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def num_answering(self) -> int:
        return sum(server.answers for server in self._servers)

    @property
    def problem(self) -> str:
        """Why the first of those that don't answer does not; empty: all answer."""
        away = [server for server in self._servers if server.problem and not server.answers]
        return f"{away[0].route.url}: {away[0].problem}" if away else ""

    async def ask(self, request: Callable[[Route], Awaitable[Answer]]) -> Answer:
        """Makes a request of one server; where that is at fault, of the next one that takes requests.

        Raises:
            RequestError: the last one's.
        """
        left, now = list(self._servers), time.monotonic()
        server = min(left, key=lambda each: each.order(now))
        while True:
            left.remove(server)
            try:
                return await server.ask(request)
            except RequestError as error:
                now = time.monotonic()
                takers = [each for each in left if each.takes(now)]
                if not error.server_at_fault or not takers:
                    raise
                server = min(takers, key=lambda each: each.order(now))
