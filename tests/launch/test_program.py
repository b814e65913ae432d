"""Programs that a signal ends at once, since they have nothing to save."""

import errno
import signal
import subprocess
import sys

import pytest

from launch import program
from launch.ls import ListConfig
from tests.support.trials import trial

PROGRAM = """
import time
from launch import program
from launch.ls import ListConfig
program.sys.exit(program.run_brief_program("ls", None, ListConfig(), print, lambda config: time.sleep(60)))
"""


@pytest.mark.parametrize("number, code, told", [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, -15, "")])
def test_a_signal_ends_it(number, code, told):
    process = subprocess.Popen(
        [sys.executable, "-uc", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline().startswith("ListConfig")
    process.send_signal(number)
    assert process.communicate(timeout=20)[1] == told and process.returncode == code


@pytest.mark.parametrize("name", ["inspect_reward", "report", "plot", "import_checkpoint", "ls", "submit"])
def test_brief_programs_run_as_such(name, monkeypatch):
    module = __import__(f"launch.{name}", fromlist=["main"])
    for target in (program, module):  # the module makes others' `main`, or has imported it
        monkeypatch.setattr(target, "run_brief_program", lambda *words: 77, raising=False)
    assert module.main([]) == 77


@trial("program's disk full")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("path", ["/somewhere/a\nfile", None])
def test_full_disk_ends_it_with_a_line_wherever_it_is_noticed(capsys, number, path):
    def run(config):
        raise OSError(number, "no room", path)

    assert program.run_brief_program("ls", [], ListConfig(), lambda config: None, run) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and "make room" in error
    assert path is None or "/somewhere/a" in error
