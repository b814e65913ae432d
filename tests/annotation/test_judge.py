import http.client
import json
import math
import signal
import subprocess
import sys
from typing import Any

import pytest

from oni_jax.annotation.answers import read_choice
from oni_jax.annotation.judge import EmbeddedJudge, Judge, JudgeOptions
from oni_jax.annotation.judge_answers import CERTAINTY, JUDGE_MODEL, judge_prompt
from oni_jax.annotation.judge_faults import FAULTS
from oni_jax.annotation.prompts import load_prompt
from oni_jax.config import AnnotationConfig, UserError

GOALS = ("defaultgoal", "zeroknowledge", "combat", "gold", "stairs")

# What NetHack prints, and the goals that it helps.
VERDICTS = [
    (b"You kill the jackal!", "defaultgoal zeroknowledge combat"),
    (b"You destroy the kobold zombie!  The newt bites!", "defaultgoal zeroknowledge combat"),
    (b"You hit the jackal.  The jackal bites!", "zeroknowledge combat"),
    (b"$ - 13 gold pieces.", "defaultgoal zeroknowledge gold"),
    (b"You see here 4 gold pieces.", "defaultgoal zeroknowledge gold"),
    (b"There is a staircase down here.", "defaultgoal zeroknowledge stairs"),
    (b"A trap door opens up under you!", "defaultgoal zeroknowledge stairs"),
    (b"Welcome to experience level 2.", "defaultgoal zeroknowledge"),
    (b"You find a hidden door.", "zeroknowledge"),
    (b"k - a scroll labeled KIRJE.", "zeroknowledge"),
    (b"This orange is delicious!", "zeroknowledge"),
    (b"The kitten picks up a gold piece.", ""),
    (b"You swap places with your kitten.", ""),
    (b"You kill the poor kitten!", ""),
    (b"You hit the kitten.", ""),
    (b"The newt is killed!", ""),
    (b"You miss the newt.", ""),
    (b"The jackal bites!", ""),
    (b"There is a staircase up here.", ""),
    (b"It's a wall.", ""),
    (b"What do you want to eat? [fgh or ?*] ", ""),
    (b"You fall into a pit!", ""),
    (b"", ""),
]


@pytest.mark.parametrize("version", ["default", "reworded"])
@pytest.mark.parametrize("answer", ["reasoned", "label"])
@pytest.mark.parametrize("goal", GOALS)
def test_verdicts(goal, version, answer):
    """The judge finds goal, form of answer and message in the prompt itself."""
    prompt = load_prompt(AnnotationConfig(goal_key=goal, prompt_version=version, llm_answer=answer))
    for message, goals in VERDICTS:
        verdict = judge_prompt(f"{prompt.system}\n\n{prompt.user((message,))}<|eot_id|>")
        assert (verdict.goal, verdict.item) == (goal, (message,))
        assert verdict.label == (goal in goals.split()), message
        assert read_choice({"text": verdict.text}).label == verdict.label
        assert verdict.one_word == (answer == "label")


def test_foreign_prompt():
    verdict = judge_prompt("Is this good?\nYou kill the newt!")
    assert verdict.label == 1 and verdict.item == (b"You kill the newt!",)


@pytest.fixture(scope="module")
def judge():
    judge = EmbeddedJudge()
    yield judge
    judge.close()


def call(address, path, body=None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("GET" if body is None else "POST", path, body if body is None else json.dumps(body))
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    return response.status, json.loads(raw) if raw else None


def test_completions(judge):
    prompt = load_prompt(AnnotationConfig(llm_answer="label"))
    prompts = [prompt.user((message,)) for message in (b"You kill the newt!", b"It's a wall.")]
    status, answer = call(judge.address, "/v1/completions", {"model": "x", "prompt": prompts, "logprobs": 5})
    assert status == 200 and [choice["index"] for choice in answer["choices"]] == [0, 1]
    replies = [read_choice(choice) for choice in answer["choices"]]
    assert [reply.label for reply in replies] == [1, 0]
    assert [reply.probability for reply in replies] == pytest.approx([CERTAINTY, 1 - CERTAINTY])
    assert math.exp(answer["choices"][0]["logprobs"]["token_logprobs"][0]) == pytest.approx(CERTAINTY)
    one = call(judge.address, "/v1/completions", {"prompt": prompts[0]})[1]["choices"]
    assert len(one) == 1 and one[0]["logprobs"] is None


def test_chat(judge):
    prompt = load_prompt(AnnotationConfig(llm_answer="label", goal_key="stairs"))
    turns = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user((b"It's a wall.",))}]
    body = {"messages": turns, "logprobs": True, "top_logprobs": 5}
    choice = call(judge.address, "/v1/chat/completions", body)[1]["choices"][0]
    assert choice["message"]["content"] == "BAR" and len(choice["logprobs"]["content"][0]["top_logprobs"]) == 2
    assert read_choice(choice).probability == pytest.approx(1 - CERTAINTY)


def test_other_endpoints(judge):
    assert call(judge.address, "/health")[0] == 200
    assert call(judge.address, "/v1/models")[1]["data"][0]["id"] == JUDGE_MODEL
    before = call(judge.address, "/stats")[1]
    for _ in range(2):
        call(judge.address, "/v1/completions", {"prompt": ["unique one", "unique two"]})
    after = call(judge.address, "/stats")[1]
    assert [after[key] - before[key] for key in ("requests", "prompts", "repeated")] == [2, 4, 2]


@pytest.mark.parametrize("body", [{}, {"prompt": []}, {"prompt": [1, 2]}, {"prompt": None}, [], "x"])
def test_bad_requests(judge, body):
    status, answer = call(judge.address, "/v1/completions", body)
    assert status == 400 and answer["error"]["message"]


def test_unknown_fault():
    with pytest.raises(UserError, match="unknown fault"):
        Judge(JudgeOptions(faults=("gremlins",)))


def start(*flags):
    command = [sys.executable, "-m", "launch.judge", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_alone(tmp_path, number):
    log = tmp_path / "log.jsonl"
    process = start("--port", "0", "--log", str(log))
    assert process.stdout
    line = process.stdout.readline()
    assert "stand-in" in line
    address = line.strip().removesuffix("/v1").rpartition("//")[2]
    assert address.startswith("127.0.0.1:")
    call(address, "/v1/completions", {"prompt": "You kill the newt!"})
    record = json.loads(log.read_text())
    assert (record["message"], record["label"], record["fault"]) == ("You kill the newt!", 1, None)
    process.send_signal(number)
    assert process.communicate(timeout=10)[1] == "" and process.returncode == 0


@pytest.mark.parametrize(
    "flags", [("--port", "99999"), ("--fault", "gremlins"), ("--log", "/proc/no/log"), ("word",), ("--prot", "1")]
)
def test_bad_flags(flags):
    process = start(*flags)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2 and errors.startswith("error:") and errors.count("\n") == 1


def test_port_taken(judge):
    process = start("--port", judge.address.rpartition(":")[2])
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2 and "can't listen" in errors and errors.count("\n") == 1


def test_every_fault_has_a_name():
    assert len(FAULTS) >= 15
