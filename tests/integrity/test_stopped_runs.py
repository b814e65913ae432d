"""Runs whose processes are killed or stopped: they go on, and SIGTERM ends them within ten seconds."""

import signal
import time

import psutil
import pytest

from tests.support.launched import last_row
from tests.support.processes import RETRIEVAL, SMALL, Launched, summary
from tests.support.trials import trial

pytestmark = pytest.mark.slow

OBEYS_SECS = 10.0
JUDGED = [*SMALL, *RETRIEVAL, "--answers=judge", "--experiment=run"]


def children(run: Launched, *names: str) -> list[psutil.Process]:
    """Returns a run's processes whose name begins with one of these."""
    return [process for process in run.descendants() if process.name().startswith(names)]


def ends_in_time(run: Launched) -> str:
    """Has SIGTERM end a run. Returns its output."""
    started = time.monotonic()
    run.process.send_signal(signal.SIGTERM)
    output = run.finish(60)
    assert time.monotonic() - started < OBEYS_SECS and run.process.returncode == 0, output
    assert "Traceback" not in output and run.leftovers() == []
    return output


@trial("SIGTERM with stopped processes")
@pytest.mark.parametrize("names", [("actor-",), ("judge",), ("annotation",), ("actor-", "judge", "annotation")])
def test_sigterm_is_obeyed_whatever_a_child_does(names, tmp_path):
    run = Launched("launch.train", *JUDGED, f"--train_dir={tmp_path}")
    run.wait_for(lambda: last_row(tmp_path / "run").get("labels_held", 0) > 10, 300)
    assert (found := children(run, *names))
    for process in found:
        process.suspend()
    time.sleep(2.0)
    ends_in_time(run)
    assert summary(tmp_path / "run")["state"] == "stopped"


@trial("answering process lost")
@pytest.mark.parametrize("name", ["judge", "annotation"])
def test_killed_process_that_answers_is_started_again_and_counted(name, tmp_path):
    run = Launched("launch.train", *JUDGED, f"--train_dir={tmp_path}")
    folder = tmp_path / "run"
    run.wait_for(lambda: last_row(folder).get("labels_held", 0) > 10, 300)
    (process,) = children(run, name)
    process.kill()
    held = last_row(folder)["labels_held"]
    run.wait_for(lambda: last_row(folder).get("annotation/restarts") == 1, 60)
    run.wait_for(lambda: last_row(folder)["labels_held"] > held + 20, 120)
    assert f"(pid {process.pid}) died, killed by SIGKILL: started again (restart 1 of 10" in ends_in_time(run)


STUCK = """
def compute_reward(obs, past_obs, past_actions):
    n = 3
    for i in range(30):
        n = n * n
    return 1.0, {}
"""


@trial("generated code stuck")
def test_run_whose_generated_potential_has_to_be_killed_each_time_ends_with_a_line(tmp_path):
    (tmp_path / "potential.py").write_text(STUCK)
    words = (
        f"--llm_reward_type=bk-code --llm_reward_coeff=1 --reward_dir={tmp_path} --train_dir={tmp_path} "
        "--root_env=BabyAI-Text-GoToLocal-Pretraining-S20 --hidden_size=16 --encoder_custom=mlp_encoder "
        "--batch_size=512 --experiment=run"
    ).split()
    run = Launched("launch.train", *words)
    output = run.finish(120)
    assert run.process.returncode == 2 and run.leftovers() == [], output
    assert "potential.py: it fails on every window: TimeoutError: " in output
