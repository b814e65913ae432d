"""Programs that tests start."""

import signal

from tests.support.launched import Launched, kill_the_rest


def test_processes_that_outlast_a_test_are_killed():
    run = Launched("http.server", "0")
    kill_the_rest()
    assert run.process.returncode == -signal.SIGKILL and run.leftovers() == []
