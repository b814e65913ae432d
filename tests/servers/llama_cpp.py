"""llama.cpp's server with the tiny model."""

import pathlib
import sys
from typing import Any

from benchmarks.llama_cpp import install
from tests.annotation.test_client import free_port
from tests.servers.process import ServerProcess
from tests.servers.tiny_model import CONTEXT_SIZE, write_gguf

REPOSITORY = pathlib.Path(__file__).parents[2]


class LlamaServer:
    """The server with the tiny model, at `address`. Killed at the end of a `with`.

    Args:
        folder: for the model and the log.
        key: that requests must bring; empty: none.
    """

    num_messages = 1000  # that a test can have labelled in seconds
    settings: dict[str, Any] = dict(llm_model="tiny", llm_answer="label", llm_constraint="llamacpp")

    def __init__(self, folder: pathlib.Path, key: str = ""):
        install()  # here, rather than within the time that a start may take
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        model = folder / "tiny.gguf"
        write_gguf(model)
        words = f"--model {model} --port {port} --context {CONTEXT_SIZE} --slots 4 --threads 2".split()
        command = [sys.executable, "-m", "benchmarks.llama_cpp", *words, *(["--key", key] if key else [])]
        self._process = ServerProcess(folder / "llama_server.log", command, PYTHONPATH=str(REPOSITORY))

    def __enter__(self) -> "LlamaServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._process.start()
        self._process.wait_for(f"http://{self.address}/health", "ok", {})

    def kill(self) -> None:
        self._process.kill()

    def num_prompts(self) -> int:
        """Prompts that it has begun to work on, over all starts."""
        return self._process.log.read_text(errors="replace").count("| processing task")
