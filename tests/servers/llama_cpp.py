"""llama.cpp's server, built once from the source that llama-cpp-python's source distribution on PyPI holds."""

import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
from typing import Any

from tests.annotation.test_client import free_port
from tests.servers.process import CACHE, ServerProcess, run
from tests.servers.tiny_model import CONTEXT_SIZE, write_gguf

VERSION = "0.3.36"  # of llama-cpp-python
NUM_SLOTS = 4
BUILD = (
    "-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF "
    "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF "
    "-DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF"
).split()


class LlamaServer:
    """The server with the tiny model, at `address`. Killed at the end of a `with`.

    Args:
        folder: for the model and the log.
        key: that requests must bring; empty: none.
    """

    num_messages = 1000  # that a test can have labelled in seconds
    settings: dict[str, Any] = dict(llm_model="tiny", llm_answer="label", llm_constraint="llamacpp")

    def __init__(self, folder: pathlib.Path, key: str = ""):
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        model = folder / "tiny.gguf"
        write_gguf(model)
        words = f"--port {port} -c {NUM_SLOTS * CONTEXT_SIZE} -np {NUM_SLOTS} -t 2 --cache-ram 0 --seed 0".split()
        command = [build(), "-m", model, *words, *(["--api-key", key] if key else [])]
        self._process = ServerProcess(folder / "llama_server.log", command)

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


def build() -> pathlib.Path:
    """The program. The first time it is compiled, which takes minutes, a C++ compiler and CMake."""
    binary = CACHE / f"llama-server-{VERSION}"
    if binary.exists():
        return binary
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="oni_jax_llama_cpp_") as name:
        folder = pathlib.Path(name)
        requirement = f"llama-cpp-python=={VERSION}"
        run(sys.executable, *"-m pip download --no-deps --no-binary :all: --dest".split(), folder, requirement)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        (source,) = folder.glob("*/vendor/llama.cpp")
        run("cmake", "-S", source, "-B", folder / "build", *BUILD)
        num_jobs = str(len(os.sched_getaffinity(0)))
        run("cmake", "--build", folder / "build", "--target", "llama-server", "--parallel", num_jobs)
        partial = shutil.copy2(folder / "build" / "bin" / "llama-server", f"{binary}.{os.getpid()}")
        os.replace(partial, binary)
    return binary


if __name__ == "__main__":
    print(build())
