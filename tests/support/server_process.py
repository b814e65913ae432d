"""A server's processes: started, waited for, killed; and where what they run is kept, once installed."""

import os
import pathlib
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence

from oni_jax.host.runtime import die_with_parent

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oni_jax"
START_SECS = 300.0


class ServerProcess:
    """A process that ends with `kill`, or with this one. Its output is kept in `log`, over all its starts."""

    def __init__(self, log: pathlib.Path, command: Sequence[str | pathlib.Path], **environment: str):
        self.log = log
        self._command, self._environment = command, {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.log.parent,
                env=self._environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wait_for(self, url: str, says: str, headers: Mapping[str, str]) -> None:
        """Returns when an answer of status 200 at `url` holds `says`."""
        deadline = time.monotonic() + START_SECS
        while True:
            assert self._process and self._process.poll() is None, f"ended early:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"waited too long:\n{self.log.read_text()}"
            try:
                request = urllib.request.Request(url, headers=dict(headers))
                with urllib.request.urlopen(request, timeout=5.0) as response:
                    if says in response.read().decode():
                        return
            except OSError:
                pass
            time.sleep(0.05)


def run(*command: str | pathlib.Path) -> None:
    """Runs a step of a build or an installation; it may take minutes, and its output is shown as it comes."""
    print("$", *command, flush=True)
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
