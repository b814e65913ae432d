"""A plugin's kind of query that raises errors: its fault by name and place, not the server's, and paid for once."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

from oni_jax.settings.fields import UserError
from tests.annotation.fake_server import texts
from tests.annotation.rating import PROMPT, Rating
from tests.annotation.test_labeller import CONFIG, all_messages, flat, quick_pauses, run, store
from tests.annotation.test_queries import rating
from tests.support.asking import LANGUAGE, start_judge

__all__ = ["quick_pauses", "rating", "store"]  # fixtures


def rate(request):
    """Rates numbered messages by their number."""
    return texts(*[f"Rating: {int(message.rpartition(b' ')[2]) % 10}" for message in request.messages])


def run_rating(store, rating, num_messages=20):
    """Asks about numbered messages by a plugin's kind of query."""
    config = dataclasses.replace(CONFIG, llm_timeout_secs=9.0, llm_max_retries=2, **rating)
    return run(rate, store, num_messages, config, kind=(LANGUAGE, "rating"))


@pytest.mark.parametrize("method, text", [("read", "Rating: 3"), ("render", "message 3"), ("is_answer", b"\x03")])
def test_question_that_a_kind_raises_for_is_put_aside(store, rating, monkeypatch, capsys, method, text):
    """It costs no other its answer, is not asked about again, and is said once, by name and place."""
    real = getattr(Rating, method)

    def raises(self, said, *args):
        if said == text:
            raise ZeroDivisionError("bad luck")
        return real(self, said, *args)

    monkeypatch.setattr(Rating, method, raises)
    outcome = run_rating(store, rating)
    bad = [b"message 3"] if method == "render" else [b"message 13", b"message 3"]
    assert outcome.unknown == bad and outcome.messages == sorted(set(all_messages(20)) - set(bad))
    assert sorted(flat(outcome.asked)) == [
        b"> " + message for message in all_messages(20) if message not in bad or method != "render"
    ]
    assert outcome.stats["failures/kind_raises"] >= len(bad) and outcome.stats["put_aside"] == len(bad)
    assert (outcome.stats["state"], outcome.stats["problem"]) == ("ok", "") and outcome.readmitted == []
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"plugin {Rating.__module__}: its `{method}` of the query rating failed")
    assert "ZeroDivisionError: bad luck" in line and line.endswith("; what it raises for is put aside")


@pytest.mark.parametrize("method", ["read", "render"])
def test_kind_that_raises_for_everything_ends_it(store, rating, monkeypatch, method):
    def raises(self, *args):
        raise KeyError("no such rule")

    monkeypatch.setattr(Rating, method, raises)
    with pytest.raises(UserError, match=f"its `{method}` of the query rating failed.*for each of the first") as error:
        run_rating(store, rating, 40)
    assert str(error.value).isprintable()


def test_ask_names_a_plugin_that_raises(tmp_path):
    (tmp_path / "prompt.json").write_text(json.dumps(PROMPT))
    text = (pathlib.Path(__file__).parent / "rating.py").read_text()
    register = "from oni_jax.annotation.queries.registry import register_query\nregister_query(Rating())\n"
    (tmp_path / "rated.py").write_text(
        text.replace("found = re.findall", "int(text)\n        found = re.findall") + register
    )
    judge = start_judge()
    command = [sys.executable, "-m", "launch.ask", "--plugin", "rated", "--query", "rating", "--message", "You fall."]
    command += ["--prompt_file", str(tmp_path / "prompt.json"), "--llm_server_addr", judge.address]
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"}
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    judge.close()
    named = "plugin rated: its `read` of the query rating failed in line "
    assert result.returncode == 1 and f"failed: kind_raises: {named}" in result.stdout
    assert "the LLM server" not in result.stdout + result.stderr and "Traceback" not in result.stderr
