"""FastChat, the server of the published system: a controller, a worker with the tiny model, and an API server.

It wants libraries older than this project's, and has a separate environment.
"""

import pathlib
import shutil
import sys
from typing import Any

from tests.servers.tiny_model import write_transformers
from tests.support.faults import free_port
from tests.support.server_process import CACHE, ServerProcess, run

VERSION = "0.2.36"
REQUIREMENTS = (f"fschat[model_worker]=={VERSION}", "transformers<5", "torch==2.13.0", "setuptools<81")
MODEL = "tiny"


class FastChat:
    """The three processes, at `address`. Killed at the end of a `with`.

    Args:
        folder: folder of the model and the logs.
        key: key that requests must bring; empty: none.

    Raises:
        subprocess.CalledProcessError: FastChat can't be installed here.
    """

    num_messages = 60  # a test can have as many labelled in seconds
    settings: dict[str, Any] = dict(llm_model=MODEL, llm_answer="label")

    def __init__(self, folder: pathlib.Path, key: str = ""):
        write_transformers(folder / MODEL)
        controller, worker, api = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.address, self._headers = api, {"Authorization": f"Bearer {key}"} if key else {}
        self._url = f"http://{api}/v1/models"
        python = install() / "bin" / "python"

        def program(name: str, address: str, *words: str) -> ServerProcess:
            host, port = address.split(":")
            command = [python, "-m", f"fastchat.serve.{name}", "--host", host, "--port", port, *words]
            environment = dict(LOGDIR=str(folder), HF_HUB_OFFLINE="1", OMP_NUM_THREADS="2")
            return ServerProcess(folder / f"{name}_output.log", command, **environment)

        at = ("--controller-address", f"http://{controller}")
        model = ("--model-path", MODEL, "--model-names", MODEL, "--device", "cpu")
        self._controller = program("controller", controller)
        self._worker = program("model_worker", worker, "--worker-address", f"http://{worker}", *at, *model)
        self._api = program("openai_api_server", api, *at, *(("--api-keys", key) if key else ()))

    def __enter__(self) -> "FastChat":
        self._controller.start()
        self._api.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._api, self._worker, self._controller):
            process.kill()

    def start(self) -> None:
        self._worker.start()
        self._worker.wait_for(self._url, MODEL, self._headers)

    def kill(self) -> None:
        """Kills the worker; the API server goes on, and answers for it with a status of 400 or 500."""
        self._worker.kill()


def install() -> pathlib.Path:
    """The environment. The first time it is made, of 1.2 GB with PyTorch for CPUs."""
    folder = CACHE / f"fastchat-{VERSION}"
    if (folder / "installed").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", *"-m pip install --quiet --disable-pip-version-check".split(), *REQUIREMENTS)
    (folder / "installed").touch()
    return folder


if __name__ == "__main__":
    print(install())
