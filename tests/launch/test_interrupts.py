"""Ctrl-C at any moment of a program's life, any number of times: a line at most, never a traceback."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tests.support.processes import COMPILES_SOON, ROOT

CATCH = (
    "--root_env=Catch-v0 --encoder_custom=mlp_encoder --llm_reward_type=none --actor_pool=serial --hidden_size=8 "
    "--num_envs_per_worker=4 --batch_size=64 --rollout=8 --recurrence=8 --train_for_env_steps=128"
).split()


def started(*words: str) -> subprocess.Popen:
    environment = {**os.environ, **COMPILES_SOON, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    command = [sys.executable, *words]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def ended(process: subprocess.Popen) -> tuple[int, str]:
    """(exit code, stderr) of a process."""
    errors = process.communicate(timeout=60)[1]
    assert "Traceback" not in errors and "Exception ignored" not in errors, errors
    return process.returncode, errors


@pytest.mark.parametrize("program", ["train", "evaluate", "play", "sweep", "report", "ask", "plot"])
def test_program_that_starts_leaves_with_a_line(program, tmp_path):
    # The first thing that a program imports; Python's start, before it, is not ours.
    (tmp_path / "ready").write_text("")
    hook = f"import sys; sys.argv[0] = '-m'; import launch; open({str(tmp_path / 'ready')!r}, 'w').write('x')"
    process = started("-c", f"{hook}; import time; import launch.{program}; time.sleep(60)")
    while not (tmp_path / "ready").read_text():
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "interrupted\n")


@pytest.mark.parametrize("module", ["launch.programs", "typing", "dataclasses"])
def test_program_whose_imports_begin_leaves_with_a_line(module):
    stop = f"os.kill(os.getpid(), signal.SIGINT) if name == {module!r} else None"
    hook = f"import os, signal, sys; sys.argv[0] = '-m'; sys.modules.pop({module!r}, None)"
    finder = f"sys.meta_path.insert(0, type('', (), {{'find_spec': staticmethod(lambda name, *_: {stop})}}))"
    process = started("-S", "-c", f"{hook}; {finder}; import launch, launch.train")
    assert ended(process) == (130, "interrupted\n")


@pytest.mark.parametrize("secs", [0.3, 0.8])
def test_program_of_no_state_leaves_with_a_line(secs):
    process = started("-m", "launch.ask", "--llm_reward_type=online_cls", "--message=You kill the newt!")
    time.sleep(secs)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
    code, errors = ended(process)
    assert code == 130 and errors.splitlines()[-1:] == ["interrupted"] or code == 0


def test_second_interrupt_after_saving_prints_no_traceback(tmp_path):
    process = started("-m", "launch.train", *CATCH, f"--train_dir={tmp_path}")
    assert process.stdout
    lines = iter(process.stdout.readline, "")
    assert any("saved at" in line for line in lines)
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    code, errors = ended(process)
    assert code in (0, 130) and errors in ("", "interrupted\n")


FAILS_AS_ANOTHER = """
    import os, signal
    from launch.interrupts import leave_quietly
    from launch.program import run_program
    from oni_jax.show.config import PlayConfig
    leave_quietly()
    def run(config, stop):
        try:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("an error in a callback, which hides the interrupt")
    import sys
    sys.argv[1:] = []
    sys.exit(run_program("play", None, PlayConfig(), lambda config: None, run))
"""


def test_interrupt_that_comes_back_as_another_error_is_one():
    assert ended(started("-c", textwrap.dedent(FAILS_AS_ANOTHER))) == (130, "interrupted twice: left at once\n")


LOSES_ONE = """
    import contextlib, gc, os, signal, sys, time
    from launch.interrupts import leave_quietly
    from launch.program import run_brief_program
    from oni_jax.show.config import PlayConfig
    leave_quietly()
    def interrupt(*_):
        gc.callbacks.clear()
        os.kill(os.getpid(), signal.SIGINT)
    def replace():
        try:
            interrupt()
        except KeyboardInterrupt:
            raise RuntimeError("an error of a callback, which hides the interrupt")
    def run(config):
        try:
            LOSE
            time.sleep(30)
        finally:
            time.sleep(0.5)
            print("cleaned up")
    sys.argv[1:] = []
    sys.exit(run_brief_program("play", None, PlayConfig(), lambda config: None, run))
"""
LOSSES = {
    "by a garbage collection": "gc.callbacks[:] = [interrupt]; gc.collect()",
    "by a finalizer": "type('', (), {'__del__': interrupt})()",
    "by code that suppresses it": "with contextlib.suppress(BaseException): interrupt()",
    "by code that replaces it": "replace()",
}


@pytest.mark.parametrize("loss", LOSSES)
def test_interrupt_that_is_lost_ends_the_program(loss):
    process = started("-c", textwrap.dedent(LOSES_ONE).replace("LOSE", LOSSES[loss]))
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (130, "cleaned up\n", "interrupted\n")
