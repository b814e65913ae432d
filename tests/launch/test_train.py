"""The launcher as a program: exit codes, one line on stderr, speed of an error, the list of programs."""

import subprocess
import sys

import pytest

from launch import __main__ as listing
from launch import train
from oni_jax.settings.fields import UserError


def run_train(*words: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "launch.train", *words], capture_output=True, text=True, timeout=60, **options
    )


def test_bad_input_is_one_line_and_exit_code_2():
    result = run_train("--llm_reward_type", "online_cls", "--llm_reward_coeff", "0.4", "--batch_size", "1000")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == ["error: --batch_size 1000: must be a multiple of --rollout 32, such as 992"]


def test_errors_come_before_jax():
    code = (
        "import sys; from launch.train import main; "
        "assert main(['--llm_reward_type', 'none', '--root_env', 'nothing']) == 2; "
        "assert 'jax' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.fixture
def system(monkeypatch):
    """A stand-in for oni_jax.training.build whose `run` is set by the test."""
    import types

    import oni_jax.training

    module = types.ModuleType("oni_jax.training.build")
    monkeypatch.setitem(sys.modules, "oni_jax.training.build", module)
    monkeypatch.setattr(oni_jax.training, "build", module, raising=False)
    return module


def test_a_run_that_ends_exits_with_0(system):
    seen = []
    system.run = lambda config, stop: seen.append(config)
    assert train.main(["--llm_reward_type", "none", "--seed", "5"]) == 0
    assert seen[0].run.seed == 5


def test_a_late_user_error_is_one_line_too(system, capsys):
    def refuse(config, stop):
        raise UserError("a checkpoint is\ncorrupt")

    system.run = refuse
    assert train.main(["--llm_reward_type", "none"]) == 2
    assert capsys.readouterr().err == "error: a checkpoint is corrupt\n"


def test_other_errors_keep_their_traceback(system):
    def fail(config, stop):
        raise ZeroDivisionError

    system.run = fail
    with pytest.raises(ZeroDivisionError):
        train.main(["--llm_reward_type", "none"])


def test_a_second_interrupt_leaves_without_a_traceback(system, capsys):
    def interrupted(config, stop):
        raise KeyboardInterrupt

    system.run = interrupted
    assert train.main(["--llm_reward_type", "none"]) == 130
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_programs_are_listed_with_a_line_each():
    programs = listing.programs()
    assert programs["train"].startswith("Trains an agent")
    assert "flags" not in programs
    assert all(programs.values())
