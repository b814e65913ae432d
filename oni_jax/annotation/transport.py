"""HTTP to one or several servers: a request's bytes go out, an answer's come back, and each failure has a name."""

import re
import socket
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp

from oni_jax.annotation.address import CONNECT_TIMEOUT_SECS
from oni_jax.annotation.event_stream import MAX_STREAM_BYTES
from oni_jax.annotation.failures import MAX_DETAIL_CHARS, WEB_PAGE, RequestError, one_line, read_refusal
from oni_jax.annotation.pages import PAGE_ADVICE, PAGE_STATUSES, page_words
from oni_jax.annotation.routes import Route
from oni_jax.annotation.servers import Servers
from oni_jax.settings.annotation import AnnotationConfig

KEEPALIVE_SECS = 4.0  # servers close an idle connection after 5 s
MAX_TEXT_CHARS = 20_000  # characters of an error, which may name what is wrong late
# A dead peer (power, network) is detected within 20 s.
_TCP_OPTIONS = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}
Answer = TypeVar("Answer")


class Transport:
    """Posts requests. Used as an asynchronous context manager, inside a running loop.

    Args:
        routes: one to each server.
        headers: headers of each request.
        secrets: never repeated in the text of a failure.
        events: counts stale connections.
        names_field: True if an error's text names a field of the request.
    """

    def __init__(
        self,
        config: AnnotationConfig,
        routes: Sequence[Route],
        headers: Mapping[str, str],
        secrets: Sequence[str],
        events: Counter[str],
        names_field: Callable[[str], bool],
    ):
        self._config, self._headers, self._secrets, self._events = config, headers, secrets, events
        self._names_field = names_field
        self.servers = Servers(routes)

    async def __aenter__(self) -> "Transport":
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_record_reuse)
        total_secs = self._config.llm_timeout_secs
        timeout = aiohttp.ClientTimeout(total=total_secs, connect=min(CONNECT_TIMEOUT_SECS, 0.9 * total_secs))
        options: dict[str, Any] = {"headers": self._headers, "timeout": timeout, "cookie_jar": aiohttp.DummyCookieJar()}
        options["auto_decompress"] = False  # not requested, and could be a decompression bomb
        pool = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECS, socket_factory=_open_socket)
        fresh = aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=_open_socket)
        self._session = aiohttp.ClientSession(connector=pool, trace_configs=[trace], **options)
        self._fresh_session = aiohttp.ClientSession(connector=fresh, **options)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._fresh_session.close()

    async def ask(self, body: bytes, max_bytes: int, read: Callable[[bytes, Mapping[str, str]], Answer]) -> Answer:
        """Posts a request to one of the servers, and reads its answer.

        Args:
            body: body of the request.
            max_bytes: limit of the answer.
            read: reads an answer of status 200 and its headers; raises RequestError.

        Raises:
            RequestError: the request failed.
        """

        async def request(route: Route) -> Answer:
            reuse = types.SimpleNamespace(reused=False)
            try:
                found = await self._post(self._session, route, body, max_bytes, reuse)
            except RequestError as error:
                # A stale pooled connection: the server never read the request, so retry on a new one.
                if error.name != "disconnected" or not reuse.reused:
                    raise
                self._events["stale_connections"] += 1
                found = await self._post(self._fresh_session, route, body, max_bytes, None)
            return read(*found)

        return await self.servers.ask(request)

    async def _post(
        self, session: aiohttp.ClientSession, route: Route, body: bytes, max_bytes: int, reuse: object
    ) -> tuple[bytes, Mapping[str, str]]:
        """Posts a request; returns body and headers of a 200 answer, at most `max_bytes` long."""
        answered = False
        options: dict[str, Any] = {"data": body, "allow_redirects": False, "trace_request_ctx": reuse}
        try:
            async with session.post(route.url, **options, **route.options()) as response:
                answered = True
                is_stream = response.content_type == "text/event-stream"
                max_bytes = max(max_bytes, MAX_STREAM_BYTES) if is_stream else max_bytes
                raw = bytearray()
                async for chunk in response.content.iter_any():
                    raw += chunk
                    if len(raw) > max_bytes:
                        response.close()
                        raise RequestError("too_large", f"an answer of more than {max_bytes} bytes")
                self._refuse(route, response, bytes(raw))
                return bytes(raw), response.headers
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise self._failure(route, error, answered) from None

    def _refuse(self, route: Route, response: aiohttp.ClientResponse, raw: bytes) -> None:
        """Raises RequestError: the answer is a refusal, or a page for people."""
        page = page_words(raw)
        if response.status == 407 and route.proxy:
            raise self._sanitised(route.refused_by_proxy(407, response.reason or ""))
        if page and response.status in PAGE_STATUSES:
            error = RequestError(WEB_PAGE, f"{page}: {PAGE_ADVICE}", response.status, server_at_fault=True)
            raise self._sanitised(error)
        if response.status != 200:
            said = page or raw.decode("utf-8", "replace")
            by = f" (by {route.proxy_words}; list {route.host} in NO_PROXY to pass it by)" if route.proxy else ""
            text = self.text(f"{response.headers.get('Location', '')} {said}{by}")
            names_field = self._names_field(text)
            raise read_refusal(response.status, response.headers, text, self._config.llm_model, names_field)

    def _failure(self, route: Route, error: Exception, answered: bool) -> RequestError:
        if failure := route.failure(error):
            return self._sanitised(failure)
        if isinstance(error, TimeoutError):
            name = "too_slow" if answered else "timed_out"
            return RequestError(name, f"no complete answer within {self._config.llm_timeout_secs:g} s")
        lost = isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError)
        return RequestError("disconnected" if lost else "bad_http", self.line(f"{type(error).__name__}: {error}"))

    def _sanitised(self, error: RequestError) -> RequestError:
        error.detail = self.line(error.detail, MAX_DETAIL_CHARS + 100)
        return error

    def text(self, text: str) -> str:
        """Sanitises untrusted text to one line that is long enough to be searched; JSON's \\u escapes are read."""
        return self.line(re.sub(r"\\u([0-9a-fA-F]{4})", lambda code: chr(int(code[1], 16)), text), MAX_TEXT_CHARS)

    def line(self, text: str, max_chars: int = MAX_DETAIL_CHARS) -> str:
        """Sanitises untrusted text to one short printable line, without the key."""
        return one_line(self.without_key(text), max_chars)

    def without_key(self, text: str) -> str:
        """Redacts the key and secret headers. To be called before truncation: a part of one would not be found."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


async def _record_reuse(session: aiohttp.ClientSession, context: types.SimpleNamespace, _: object) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.reused = True


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS.items():
        if hasattr(socket, name):  # not on every platform
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened
