"""A second start of what is running: refused in one line, even when the folder is gone, and nothing is lost."""

import contextlib
import errno
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from oni_jax.host.held_folders import held_folder
from oni_jax.settings.fields import UserError
from tests.integrity.programs import HELD, prepared, started
from tests.support.lockless_disk import lockless_environment
from tests.support.trials import trial

HOLDER = """
import sys
from oni_jax.host.held_folders import held_folder
from oni_jax.settings.fields import UserError
try:
    with held_folder(sys.argv[1], "experiment"):
        print("held", flush=True)
        sys.stdin.read()
except UserError as error:
    sys.exit(str(error))
"""
LOSSES: dict[str, Callable[[pathlib.Path], object]] = {
    "there": lambda folder: None,
    "renamed": lambda folder: folder.rename(f"{folder}2"),
    "removed": shutil.rmtree,
    "removed with the folder above": lambda folder: shutil.rmtree(folder.parent),
    "emptied": lambda folder: [path.unlink() for path in folder.iterdir()],
    "replaced": lambda folder: (folder.rename(f"{folder}2"), folder.mkdir()),
}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "train_dir" / "run"


@contextlib.contextmanager
def holder(folder: pathlib.Path, *before: str, **settings) -> Iterator[subprocess.Popen]:
    """A process that holds a folder, stopped, so that it does not notice what becomes of it."""
    command, pipe = [*before, sys.executable, "-c", HOLDER, str(folder)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **settings) as process:
        assert process.stdout and "held\n" in iter(process.stdout.readline, "")
        process.send_signal(signal.SIGSTOP)
        try:
            yield process
        finally:
            process.kill()


def second(folder: pathlib.Path, *before: str, **settings) -> str:
    """Starts a second process. Returns what it is refused with."""
    command = [*before, sys.executable, "-c", HOLDER, str(folder)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **settings).stderr


@trial("second start")
@pytest.mark.parametrize("loss", LOSSES)
def test_second_start_is_refused_whatever_became_of_the_folder(folder, loss):
    with holder(folder):
        LOSSES[loss](folder)
        before = sorted(folder.parent.parent.rglob("*"))
        with pytest.raises(UserError, match="run is in use by another run; choose another --experiment"):
            with held_folder(str(folder), "experiment"):
                pass
        assert set(folder.parent.parent.rglob("*")) - {folder.parent} <= set(before)  # no file is made
    with held_folder(str(folder), "experiment"):
        assert folder.is_dir()


@trial("second start")
def test_renamed_folder_is_refused_under_its_new_name_too(folder):
    with holder(folder):
        folder.rename(folder.with_name("other"))
        with pytest.raises(UserError, match="other is in use by another run"):
            with held_folder(str(folder.with_name("other")), "experiment"):
                pass


def test_links_to_a_folder_are_the_same_folder(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder.parent)
    with holder(folder), pytest.raises(UserError, match="in use by another run"):
        with held_folder(str(tmp_path / "link" / "run"), "experiment"):
            pass


@trial("second start elsewhere")
@pytest.mark.parametrize("loss", ["there", "renamed", "removed", "replaced"])
def test_disk_without_locks_keeps_a_second_start_out_too(folder, tmp_path, loss):
    environment = lockless_environment(tmp_path, "sqlite", errno.ENOLCK)
    with holder(folder, env=environment):
        LOSSES[loss](folder)
        assert "run is in use by another run" in second(folder, env=environment)


@trial("second start elsewhere")
@pytest.mark.parametrize("has_locks", [True, False], ids=["locks", "no locks"])
@pytest.mark.parametrize("loss", ["there", "renamed", "removed", "replaced"])
def test_another_host_is_refused_by_files_alone(folder, tmp_path, loss, has_locks):
    """As another host, or a container: one that sees other disks, apart from this one."""
    elsewhere = ("unshare", "--mount")
    if not shutil.which("unshare") or subprocess.run([*elsewhere, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to unshare mounts")
    environment = dict(os.environ) if has_locks else lockless_environment(tmp_path, "sqlite", errno.ENOLCK)
    with holder(folder, env=environment):
        LOSSES[loss](folder)
        assert "run is in use by another run" in second(folder, *elsewhere, env=environment)


def test_killed_program_holds_nothing(folder):
    with holder(folder) as process:
        process.kill()
        process.wait()
        with held_folder(str(folder), "experiment"):
            pass
    assert [path.name for path in folder.parent.iterdir()] == ["run"]  # no lock file stays beside it


@trial("lock file removed")
def test_lock_file_that_was_removed_is_made_again(folder):
    with held_folder(str(folder), "experiment"):
        (folder / "lock").unlink()
        deadline = time.monotonic() + 10
        while not (folder / "lock").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)


QUICK = ("annotate_pairs",)


@trial("second start")
@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in HELD]
)
@pytest.mark.parametrize("loss", ["there", "renamed"])
def test_second_start_of_a_program_is_refused_in_a_line(tmp_path, program, loss):
    words, at, other = prepared(tmp_path, program), tmp_path / "above" / "new", tmp_path / "above" / "other"
    first = started(tmp_path, program, words)
    first.process.send_signal(signal.SIGSTOP)
    if loss == "renamed" and at.is_dir():
        again = tmp_path / "again"  # the program needs it
        shutil.copytree(at, again)
        at.rename(other)
        again.rename(at)
    command = [sys.executable, "-m", f"launch.{program}", *words]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused
    assert "in use by another run" in refused.stderr or "another process labels" in refused.stderr
    first.process.send_signal(signal.SIGCONT)
    if other.is_dir():
        output = first.finish(60)
        assert first.process.returncode == 1 and output.count("was renamed to") >= 2 and "Traceback" not in output
