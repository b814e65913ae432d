"""The library's lines go to standard output, or to a sink."""

import ast
import threading

import oni_jax
from oni_jax.host.reporting import report, reported_to
from tests.support.processes import ROOT

# The sink itself; what draws on a terminal; a program of the installation.
PRINTING = ("host/reporting.py", "show/live/live.py", "show/live/view.py", "envs/nethack/engine/__main__.py")


def test_lines_go_to_the_streams_without_a_sink(capsys):
    report("one", "two")
    report("three", to_stderr=True)
    assert capsys.readouterr() == ("one\ntwo\n", "three\n")


def test_sink_takes_the_lines_of_all_threads(capsys):
    taken = []
    with oni_jax.reported_to(lambda text, to_stderr: taken.append((text, to_stderr))):
        thread = threading.Thread(target=report, args=("one",))
        thread.start()
        thread.join()
        with reported_to(lambda text, to_stderr: None):
            report("hidden")
        report("two", to_stderr=True)
    report("three")
    assert taken == [("one", False), ("two", True)] and capsys.readouterr().out == "three\n"


def test_training_says_all_through_the_sink(tmp_path, capsys):
    taken = []
    with oni_jax.reported_to(lambda text, to_stderr: taken.append(text)):
        oni_jax.train(root_env="Catch-v0", llm_reward_type="none", train_dir=str(tmp_path), train_for_env_steps=1)
    assert any("compiling the update" in text for text in taken) and "compiling" not in capsys.readouterr().out


def test_library_prints_in_few_places():
    paths = [path for path in (ROOT / "oni_jax").rglob("*.py") if not str(path).endswith(PRINTING)]
    calls = (node for path in paths for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    assert not [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
