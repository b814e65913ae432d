"""llama.cpp's server with the tiny model."""

import pathlib
from typing import Any

from benchmarks import llama_cpp
from tests.servers.tiny_model import CONTEXT_SIZE, write_gguf


class LlamaServer(llama_cpp.LlamaServer):
    """The server with the tiny model, at `address`. Killed at the end of a `with`.

    Args:
        folder: for the model and the log.
        key: that requests must bring; empty: none.
    """

    num_messages = 1000  # a test can have as many labelled in seconds
    settings: dict[str, Any] = dict(llm_model="tiny", llm_answer="label", llm_constraint="llamacpp")

    def __init__(self, folder: pathlib.Path, key: str = ""):
        model = folder / "tiny.gguf"
        write_gguf(model)
        words = f"--model={model} --context={CONTEXT_SIZE} --threads=2".split()
        super().__init__(folder, *words, *([f"--key={key}"] if key else []))

    def num_prompts(self) -> int:
        """Prompts that it has begun to work on, over all starts."""
        return self.log.read_text(errors="replace").count("| processing task")
