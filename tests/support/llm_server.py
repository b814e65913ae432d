"""A server of OpenAI's protocol whose answers are a function of the prompt, in a thread of this process."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Serving(NamedTuple):
    """A running server."""

    address: str
    asked: list[str]  # the prompts


@contextlib.contextmanager
def llm_server(answer: Callable[[str], str]) -> Iterator[Serving]:
    """Serves while it is open; `answer` returns the text for a prompt, the last turn of a conversation."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({"data": [{"id": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompts = body.get("prompt") or [body["messages"][-1]["content"]]
            asked.extend(prompts)
            texts = [answer(prompt) for prompt in prompts]
            choices = [{"index": i, "text": x, "message": {"content": x}} for i, x in enumerate(texts)]
            self._reply({"choices": choices})

        def _reply(self, tree: object) -> None:
            data = json.dumps(tree).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Serving(f"127.0.0.1:{server.server_address[1]}", asked)
        server.shutdown()
