"""Every program that writes a folder, killed, started again, and stopped."""

import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.integrity.test_double_starts import BEGINS, PROGRAMS
from tests.offline.pairs import random_dataset
from tests.support.launched import Launched
from tests.support.trials import trial

OBEYS_SECS = 10.0
DIES_SECS = 60.0  # after which no process of a killed program lives, some of which may be starting up
SAYS = {**BEGINS, "write_potential": "trying again", "write_goals": "trying again"}
QUICK = ("annotate_pairs",)


def words(tmp_path: pathlib.Path, program: str) -> list[str]:
    """Returns a program's words, for a new folder `new`."""
    data, at = random_dataset(tmp_path / "data"), tmp_path / "above" / "new"
    (data / "preference").mkdir()
    shutil.copy(data / "info" / "score.npy", data / "preference" / "none.npy")
    if program == "annotate_pairs":
        random_dataset(at)
    if program == "train_reward":
        command = [sys.executable, "-m", "launch.annotate_pairs", f"--directory={data}", "--annotator=score"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return PROGRAMS[program].format(at=at, above=at.parent, name=at.name, data=data).split()


def started(tmp_path: pathlib.Path, program: str, given: list[str]) -> Launched:
    """Starts a program, and waits until it holds its folder: it says something, or there is something new."""
    above, text = tmp_path / "above", SAYS.get(program, "")
    before = {*above.glob("*")}
    run = Launched(f"launch.{program}", *given)
    run.wait_for(lambda: text in run.output() if text else {*above.glob("*")} - before, 240)
    return run


@trial("program killed or stopped")
@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in PROGRAMS]
)
def test_program_that_was_killed_starts_again_and_obeys_sigterm(tmp_path, program):
    given = words(tmp_path, program)
    killed = started(tmp_path, program, given)
    killed.kill()
    deadline = time.monotonic() + DIES_SECS
    while left := killed.descendants():  # which find out
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    again = started(tmp_path, program, given)
    time.sleep(1.0)
    asked = time.monotonic()
    again.process.send_signal(signal.SIGTERM)
    output = again.finish(60)
    assert time.monotonic() - asked < OBEYS_SECS and "Traceback" not in output and "in use" not in output, output
    assert again.process.returncode in (0, 130) and again.leftovers() == [], output
