"""Rewards that a plugin asks an LLM for in the plugin's words, and whose fault it is when the plugin fails."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from launch import ask, train
from oni_jax.annotation.queries.base import QueryKind
from oni_jax.annotation.queries.registry import QUERIES, register_query
from oni_jax.rewards.registry import REWARD_TYPES, RewardContext, register_llm_reward
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.settings.rewards import RewardConfig
from oni_jax.types import Annotation, EnvSpec
from tests.support.asking import load_prompt
from tests.support.llm_server import Serving, llm_server
from tests.test_docs import ROOT, commands
from tests.test_readme import SHORT, files_of

PAGE = ROOT / "docs" / "extending.md"
KILL, DARK = "You kill the newt!", "It is dark."


def answer(prompt: str) -> str:
    steps = sum(map(int, re.findall(r"(\d+) steps", prompt)))
    return f"Well. Placed: {10 - steps}"


def run(line: str, folder: pathlib.Path, more: str) -> subprocess.CompletedProcess:
    python, *words = shlex.split(line, comments=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *words, *more.split()]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with llm_server(answer) as serving:
        yield serving


@pytest.fixture
def registries():
    """Registries whose new entries last for a test."""
    before = dict(QUERIES), dict(REWARD_TYPES)
    yield
    for registry, entries in zip((QUERIES, REWARD_TYPES), before):
        for name in {*registry} - {*entries}:
            del registry[name]


def test_example_of_extending_is_asked_and_paid(tmp_path, server):
    files_of(PAGE, tmp_path)
    to_ask, to_train = [line for line in commands(PAGE) if "lake_question" in line]
    address = f"--llm_server_addr {server.address}"
    asked = run(to_ask, tmp_path, address)
    assert asked.returncode == 0 and "9" in asked.stdout and "Placed: 9" in asked.stdout, asked.stdout + asked.stderr
    trained = run(to_train, tmp_path, f"{SHORT['launch.train']} --train_for_env_steps 4096 {address}")
    assert trained.returncode == 0, trained.stdout + trained.stderr
    summary = json.loads((tmp_path / "train_dir/placed/summary.json").read_text())
    assert summary["labels_held"] > 3 and summary["rewarded_steps"] > 0
    inspected = run("python -m launch.inspect_reward --experiment placed", tmp_path, "")
    assert re.search(r"0\.6\d* .*The goal is 3 steps south and 1 steps east", inspected.stdout), inspected.stdout


def ask_about(server: Serving, name: str, *words: str) -> int:
    return ask.main(["--query", name, "--llm_server_addr", server.address, "--message", KILL, *words])


def test_answer_is_kept_as_read_returns_it(registries, server, capsys):
    register_llm_reward("steps", "How near? {caption}", lambda text: {"text": text, "number": [1, 2.5]})
    kept = QUERIES["steps"].read("so", None, "")
    assert kept and QUERIES["steps"].is_answer(kept)
    assert QUERIES["steps"].to_record(kept) == {"text": "so", "number": [1, 2.5]}
    assert QUERIES["steps"].from_record(QUERIES["steps"].to_record(kept)) == kept
    assert [QUERIES["steps"].is_answer(other) for other in (b"", b"{", b"null", b"\xff")] == [False] * 4


def test_caption_and_goal_are_written_into_the_prompt(registries):
    register_llm_reward("near", "You want {goal}\nHow near? {caption}", float)
    prompt = load_prompt(AnnotationConfig(goal="gold {caption}."), "near")
    assert prompt.user((b"It is <dark>.",)) == "You want gold {caption}.\nHow near? It is \\x3cdark>."
    with pytest.raises(UserError, match="the prompt of the query near: its `goals` has no text for `defaultgoal`"):
        load_prompt(AnnotationConfig(), "near")


def test_prompt_file_replaces_the_prompt(registries, tmp_path):
    register_llm_reward("near", "How near? {caption}", float)
    path = tmp_path / "users.json"
    path.write_text(json.dumps({"kind": "near", "system": "s", "user": "Far? {caption}"}))
    assert load_prompt(AnnotationConfig(prompt_file=str(path)), "near").user((b"x",)) == "Far? x"


def test_unreadable_answer_is_no_fault(registries, server, capsys):
    register_llm_reward("near", "How near? {caption}", lambda text: None)
    assert ask_about(server, "near") in (0, 1)
    assert "plugin" not in capsys.readouterr().err
    register_llm_reward("far", "How far? {caption}", lambda text: 1 / 0)
    assert ask_about(server, "far") == 1


FAULTS = {
    "raises": lambda text: int("ten\n\x1b[2J"),
    "of_the_system": lambda text: open("/no/such/file"),
    "not_json": lambda text: b"bytes",
    "not_finite": lambda text: float("nan"),
    "endless": lambda text: endless(text),
}


def endless(text: str) -> str:
    return endless(text)


def failures(capsys) -> list[str]:
    """The lines of launch.ask about questions that failed; none blames the server."""
    shown = capsys.readouterr()
    lines = [line for line in shown.out.splitlines() if "failed: " in line]
    lines += [line for line in shown.err.splitlines() if "plugin" in line]
    assert not any("the LLM server" in line for line in lines)
    return lines


@pytest.mark.parametrize("fault", FAULTS)
def test_failing_read_is_the_plugin_s_fault(registries, server, capsys, fault):
    register_llm_reward("near", "How near? {caption}", FAULTS[fault])
    assert ask_about(server, "near") == 1
    (told,) = failures(capsys)
    assert told.isprintable() and f"plugin {__name__}: its `read` of the query near failed" in told


@pytest.mark.parametrize("method", ["render", "read", "is_answer", "describe"])
def test_failing_kind_is_the_plugin_s_fault(registries, server, capsys, method):
    def fail(self, *args):
        raise LookupError("nothing there")

    class Own(QueryKind):
        name = "users"
        prompt = {"system": "s", "user": "{caption}"}

        def read(self, text, logprobs, answer_key):
            return text.encode()

    setattr(Own, method, fail)
    register_query(Own())
    assert ask_about(server, "users") == 1 + (method == "render")  # the prompt is shown before anybody is asked
    (told,) = failures(capsys)
    assert f"plugin {__name__}: its `{method}` of the query users failed in line " in told and "nothing there" in told


def test_failing_read_ends_a_training_by_name(tmp_path, server):
    (tmp_path / "faulty.py").write_text(
        "from oni_jax.rewards.registry import register_llm_reward\n"
        "register_llm_reward('near', 'How near? {caption}', lambda text: text.no_such_method())\n"
    )
    line = "python -m launch.train --plugin faulty --plugin tests.support.corridor_plugin --root_env Corridor-v0"
    more = "--llm_reward_type near --llm_reward_coeff 1 --encoder_custom mlp_encoder --experiment run"
    limits = f"{SHORT['launch.train']} --train_for_env_steps 1000000000 --llm_server_addr {server.address}"
    done = run(line, tmp_path, f"{more} {limits}")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    *_, told = [line for line in done.stderr.splitlines() if "error: " in line]
    assert "plugin faulty: its `read` of the query near failed in line 2 of " in told and "no_such_method" in told


@pytest.mark.parametrize("value", [lambda answer: float("nan"), lambda answer: "many", lambda answer: 1 / 0])
def test_failing_value_is_the_plugin_s_fault(registries, value):
    register_llm_reward("near", "How near? {caption}", str, value)
    config = Config(reward=RewardConfig(llm_reward_type="near", llm_reward_coeff=1.0))
    made = REWARD_TYPES["near"].make(RewardContext(config, EnvSpec({}, 2, True, ())))
    with pytest.raises(UserError, match=rf"plugin {re.escape(__name__)}: its `value` of the query near failed"):
        made.learning.ingest([Annotation((b"x",), b'"answer"')])


def test_no_answer_without_a_server(registries, capsys):
    register_llm_reward("near", "How near? {caption}", float)
    assert train.main(["--llm_reward_type", "near", "--llm_reward_coeff", "1", "--train_for_env_steps", "1"]) == 2
    told = capsys.readouterr().err
    assert "can't answer queries of the kind near" in told and "--llm_server_addr" in told and told.count("\n") == 1


@pytest.mark.parametrize(
    "name, prompt, told",
    [
        ("near", "How near?", "the prompt of near has no {caption}"),
        ("online_cls", "{caption}", "the reward online_cls is registered already"),
        ("ranking", "{caption}", "the query ranking is registered already"),
        ("a,b", "{caption}", "without commas"),
    ],
)
def test_reward_that_can_not_be_registered_leaves_nothing(name, prompt, told):
    before = dict(QUERIES), dict(REWARD_TYPES)
    with pytest.raises(UserError, match=told):
        register_llm_reward(name, prompt, float)
    assert before == (QUERIES, REWARD_TYPES)


def test_kind_of_ten_lines_is_asked(tmp_path, server):
    files_of(PAGE, tmp_path)
    address = f"--llm_server_addr {server.address}"
    done = run("python -m launch.ask --plugin short --query short --message x", tmp_path, address)
    assert done.returncode == 0 and "Well. Placed: 10" in done.stdout, done.stdout + done.stderr
