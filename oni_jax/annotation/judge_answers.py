"""The embedded judge's reading and writing: prompts in, verdicts, answers in the shapes of the OpenAI protocol."""

import dataclasses
import functools
import math
import time
from collections.abc import Sequence
from typing import Any

from oni_jax.annotation.answers import HELPFUL, UNHELPFUL
from oni_jax.annotation.judge_rules import judge_message
from oni_jax.annotation.prompts import PROMPT_DIR, read_prompt_file, unescape

JUDGE_MODEL = "rule-based-judge"
CERTAINTY = 0.95  # the probability that it gives to its label
_OPEN, _CLOSE = "<message>\n", "\n</message>"

Payload = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Verdict:
    goal: str
    message: bytes
    helpful: bool
    text: str  # the answer
    one_word: bool  # the answer is the label alone


def judge_prompt(prompt: str) -> Verdict:
    """Reads a prompt and judges its message."""
    before, opened, after = prompt.rpartition(_OPEN)
    if opened:
        message = unescape(after.partition(_CLOSE)[0])
        goal, one_word = _read_instructions(before)
    else:
        message, goal, one_word = unescape((prompt.strip().splitlines() or [""])[-1]), "defaultgoal", False
    helpful, words = judge_message(goal, message)
    label = HELPFUL if helpful else UNHELPFUL
    if one_word:
        return Verdict(goal, message, helpful, label, True)
    analysis = f"The message tells of {words}, which is {'' if helpful else 'not '}helpful for this player."
    knowledge = "A stand-in's written rules, no LLM's knowledge."
    text = f"<knowledge>{knowledge}</knowledge>\n<analysis>{analysis}</analysis>\n<label>{label}</label>"
    return Verdict(goal, message, helpful, text, False)


@functools.lru_cache(maxsize=64)
def _read_instructions(text: str) -> tuple[str, bool]:
    """The goal, and whether a single word is wanted, from all that stands before the message."""
    goals, one_word = _known_texts()
    goal = next((goal for goal, wording in goals if wording in text), "defaultgoal")
    return goal, any(wording in text for wording in one_word)


@functools.cache
def _known_texts() -> tuple[list[tuple[str, str]], list[str]]:
    files = [read_prompt_file(path) for path in sorted(PROMPT_DIR.glob("*.json"))]
    goals = [(goal, text) for file in files for goal, text in file["goals"].items()]
    return goals, [file["answers"]["label"] for file in files]


def read_prompts(body: Payload, chat: bool) -> list[str]:
    """The prompts of a request; of a chat, its turns' texts in one."""
    if chat:
        return ["\n\n".join(str(turn["content"]) for turn in body["messages"])]
    prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
    if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
        raise ValueError("prompt must be a text, or a list of texts")
    return prompts


def make_choice(index: int, verdict: Verdict, chat: bool, with_logprobs: bool) -> Payload:
    logprobs = None
    if with_logprobs and verdict.one_word:
        other = UNHELPFUL if verdict.helpful else HELPFUL
        tops = {verdict.text: math.log(CERTAINTY), other: math.log(1 - CERTAINTY)}
        logprobs = _chat_logprobs(verdict.text, tops) if chat else _completion_logprobs(verdict.text, tops)
    said: dict[str, Any] = (
        {"message": {"role": "assistant", "content": verdict.text}} if chat else {"text": verdict.text}
    )
    return {"index": index, **said, "logprobs": logprobs, "finish_reason": "stop"}


def _chat_logprobs(token: str, tops: dict[str, float]) -> Payload:
    entries = [{"token": word, "logprob": value, "bytes": list(word.encode())} for word, value in tops.items()]
    return {"content": [{**entries[0], "token": token, "top_logprobs": entries}]}


def _completion_logprobs(token: str, tops: dict[str, float]) -> Payload:
    return {"tokens": [token], "token_logprobs": [tops[token]], "top_logprobs": [tops], "text_offset": [0]}


def make_payload(body: Payload, chat: bool, prompts: Sequence[str], choices: list[Payload]) -> Payload:
    num_words = sum(len(prompt) for prompt in prompts) // 4
    usage = {"prompt_tokens": num_words, "completion_tokens": len(choices), "total_tokens": num_words + len(choices)}
    kind = "chat.completion" if chat else "text_completion"
    head = {"id": "judge", "object": kind, "created": int(time.time()), "model": body.get("model", JUDGE_MODEL)}
    return {**head, "choices": choices, "usage": usage}
