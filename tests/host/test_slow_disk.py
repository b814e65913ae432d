"""A disk that stalls: who waits is said, and nothing is lost."""

import contextlib
import os
import shutil
import subprocess
import time

import pytest

from oni_jax.host.run_files import saved_steps
from oni_jax.host.slow_disk import reported_if_slow
from tests.support.launched import Launched, rows
from tests.support.processes import summary

FLAGS = (
    "--root_env=Catch-v0 --llm_reward_type=online_cls --llm_reward_coeff=0.1 --answers=judge --num_workers=1 "
    "--num_envs_per_worker=4 --batch_size=256 --encoder_custom=mlp_encoder --hidden_size=32 --log_every_sec=0.5 "
    "--save_every_sec=2 --device=cpu --experiment=run --train_for_seconds=45"
)
STALL_SECS = 20.0


def test_wait_is_reported_while_it_lasts_and_at_its_end(capsys):
    with reported_if_slow("writing", slow_secs=0.05):
        time.sleep(0.3)
        assert "warning: writing takes longer than 0.05 s: training waits for the disk" in capsys.readouterr().out
    assert "writing took 0 s; training goes on" in capsys.readouterr().out


def test_quick_write_is_not_reported(capsys):
    with pytest.raises(OSError), reported_if_slow("writing", slow_secs=0.2):
        raise OSError
    time.sleep(0.3)
    assert not capsys.readouterr().out


@contextlib.contextmanager
def small_disk(folder):
    """A file system in a file, which can be frozen: whoever writes to it waits."""
    place, image = folder / "disk", folder / "image"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(256 << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["fsfreeze", "-u", place], capture_output=True)
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("fsfreeze"), reason="needs root and fsfreeze")
def test_run_whose_disk_stalls_says_who_waits_and_loses_nothing(tmp_path):
    with small_disk(tmp_path) as disk:
        run = Launched("launch.train", *FLAGS.split(), f"--train_dir={disk}")
        run.wait_for(lambda: saved_steps(str(disk / "run")))
        subprocess.run(["fsfreeze", "-f", disk], check=True)
        time.sleep(STALL_SECS)
        subprocess.run(["fsfreeze", "-u", disk], check=True)
        output = run.finish()
        assert run.process.returncode == 0 and run.leftovers() == [], output
        assert "training waits for the disk" in output and "training goes on" in output
        found = rows(disk / "run")
        steps = [row["env_steps"] for row in found]
        assert steps == sorted(steps) and saved_steps(str(disk / "run"))[-1] == steps[-1]
        assert summary(disk / "run")["labels_held"] == found[-1]["labels_held"] > 0
