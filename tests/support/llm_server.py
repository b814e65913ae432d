"""Servers of OpenAI's protocol whose answers are a function of the request, in a thread of this process."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    path: str
    body: dict[str, Any]
    key: str  # value of the header Authorization


@contextlib.contextmanager
def scripted_server(script: Callable[[Request], tuple[int, Any]], port: int = 0) -> Iterator[str]:
    """Serves while it is open; yields its address.

    script: returns the status of an answer, and the answer: bytes, or what is sent as JSON.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(200, {"data": [{"id": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._reply(*script(Request(self.path, body, self.headers.get("Authorization", ""))))

        def _reply(self, status: int, answer: Any) -> None:
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            with contextlib.suppress(OSError):  # a client that has gone
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class Serving(NamedTuple):
    """A running server."""

    address: str
    asked: list[str]  # the prompts


@contextlib.contextmanager
def llm_server(answer: Callable[[str], str]) -> Iterator[Serving]:
    """Serves while it is open; `answer` returns the text for a prompt, the last turn of a conversation."""
    asked: list[str] = []

    def script(request: Request) -> tuple[int, Any]:
        prompts = request.body.get("prompt") or [request.body["messages"][-1]["content"]]
        asked.extend(prompts)
        texts = [answer(prompt) for prompt in prompts]
        return 200, {"choices": [{"index": i, "text": x, "message": {"content": x}} for i, x in enumerate(texts)]}

    with scripted_server(script) as address:
        yield Serving(address, asked)
