"""Every program that writes a folder, killed, started again, stopped, and left without its folder."""

import signal
import time

import pytest

from tests.integrity.programs import HELD, prepared, started
from tests.integrity.test_vanished import LOSSES
from tests.support.trials import trial

OBEYS_SECS = 10.0
DIES_SECS = 60.0  # after which no process of a killed program lives, some of which may be starting up
QUICK = ("annotate_pairs",)
programs = pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in HELD]
)


@trial("program killed or stopped")
@programs
def test_program_that_was_killed_starts_again_and_obeys_sigterm(tmp_path, program):
    given = prepared(tmp_path, program)
    killed = started(tmp_path, program, given)
    killed.kill()
    deadline = time.monotonic() + DIES_SECS
    while left := killed.descendants():  # they find out
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    again = started(tmp_path, program, given)
    time.sleep(1.0)
    asked = time.monotonic()
    again.process.send_signal(signal.SIGTERM)
    output = again.finish(60)
    assert time.monotonic() - asked < OBEYS_SECS and "Traceback" not in output and "in use" not in output, output
    assert again.process.returncode in (0, 130) and again.leftovers() == [], output


@trial("program's folder lost")
@programs
@pytest.mark.parametrize("loss", LOSSES)
def test_program_without_its_folder_ends_with_a_line_and_makes_none(tmp_path, program, loss):
    lose, words, ending = LOSSES[loss]
    above = tmp_path / "above"
    run = started(tmp_path, program, prepared(tmp_path, program))
    time.sleep(1.0)
    # A collection plays in a folder beside its new one.
    at = above / "new" if (above / "new").is_dir() else next(path for path in above.iterdir() if path.is_dir())
    lose(at)
    output = run.finish(60)
    assert "Traceback" not in output, output
    last = output.splitlines()[-1]
    assert run.process.returncode == 1 and last.startswith("error: ") and words in last, output
    assert {path.name for path in above.iterdir()} <= {f"{at.name}{ending}", at.name} and run.leftovers() == []
    if at.exists():  # a sweep's: what its runs have saved
        assert all(path.name.endswith(".saved") for path in at.iterdir())
