"""A proxy of HTTP, with CONNECT, that takes every host for one address; and a TLS context with a new CA."""

import asyncio
import base64
import contextlib
import pathlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator

import pytest


class Proxy:
    """Forwards to `target` (host, port), and keeps what it was asked for.

    Args:
        target: the address that all hosts are taken for.
        user: "user:password" that it asks for; empty: nobody's.
        status: refuses everything with it; 0: nothing.
    """

    address = ""

    def __init__(self, target: tuple[str, int], user: str = "", status: int = 0):
        self._target, self._user, self._status = target, user, status
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head.split(b"\r\n")[0].decode())
            credentials = base64.b64encode(self._user.encode())
            status = self._status or (407 if self._user and credentials not in head else 0)
            if status:
                writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
                await writer.drain()
                return
            upstream, to_upstream = await asyncio.open_connection(*self._target)
            if head.startswith(b"CONNECT"):
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                to_upstream.write(head)
            with contextlib.closing(to_upstream):
                await asyncio.gather(_pipe(reader, to_upstream), _pipe(upstream, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def proxy_to(address: str, user: str = "", status: int = 0) -> AsyncIterator[Proxy]:
    """A proxy that runs in this event loop."""
    host, _, port = address.rpartition(":")
    proxy = Proxy((host, int(port)), user, status)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()


def tls_context(folder: pathlib.Path, *names: str) -> ssl.SSLContext:
    """Makes a CA (`ca.pem`), and the context of a server whose certificate for these host names it has signed."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is missing, which makes the certificates")
    (folder / "names").write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in names))
    new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -batch"
    for words in (
        f"req -x509 {new_key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca",
        f"req {new_key} -keyout server.key -out server.csr -subj /CN=server",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile names",
    ):
        subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context
