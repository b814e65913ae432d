"""The embedded judge's parsing of prompts, its verdicts, and its answers in the form of the OpenAI protocol."""

import dataclasses
import functools
import hashlib
import importlib
import math
import pathlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from oni_jax.annotation.prompt_files import DEFAULT_ANSWER_KEY, read_prompt_file
from oni_jax.annotation.prompts import LINES_OPENING, unescape
from oni_jax.annotation.queries.base import Judgement, QueryKind, Rules
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.envs.base import Language
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from oni_jax.types import Item

JUDGE_MODEL = "rule-based-judge"
MAX_EARLIER = 256  # answers that are kept to be given wrongly
CERTAINTY = 0.95  # the probability of its label
_KNOWLEDGE = "A stand-in's written rules, no LLM's knowledge."

Payload = dict[str, Any]


class Instructions(NamedTuple):
    """Goal and form of answer that a prompt asks for."""

    goals: tuple[str, ...]  # several: the answer has a line for each
    one_word: bool  # the answer is the label alone
    answer_key: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    kind: QueryKind
    goal: str
    item: Item
    word: str  # the answer itself
    text: str  # the whole answer
    one_word: bool

    @property
    def label(self) -> int | str:
        """The answer's index among the choices; the answer itself where it is free."""
        return self.kind.choices.index(self.word) if self.kind.choices else self.word


def judge_model(config: AnnotationConfig) -> str:
    """Returns the embedded judge's name as a model, under which its answers are stored: wrong ones apart."""
    if not config.judge.wrong_fraction:
        return JUDGE_MODEL
    seed = f"-seed-{config.judge.wrong_seed}" if config.judge.wrong_seed else ""
    return f"{JUDGE_MODEL}-{config.judge.wrong_fraction:g}-wrong{seed}"


def describe_judge(model: str) -> str:
    """Returns in words who answers under a judge's name, see `judge_model`; empty: another model."""
    if not model.startswith(JUDGE_MODEL):
        return ""
    wrong = model.removeprefix(JUDGE_MODEL).strip("-").partition("-wrong")[0]
    return "rule-based judge, not an LLM" + (f", a fraction of {wrong} made wrong" if wrong else "")


def load_rules(language: Language | None) -> Rules:
    """Imports an environment's rules. Raises UserError: it has none."""
    if not (language and language.judge_rules):
        raise UserError("this --root_env has no rules for the rule-based judge: name an LLM with --llm_server_addr")
    return cast(Rules, importlib.import_module(language.judge_rules))


def goal_of_words(rules: Rules, words: str) -> str:
    """Returns the key of the goal that is nearest to one in free text; else the default."""
    return rules.goal_of_words(words) if hasattr(rules, "goal_of_words") else "defaultgoal"


class Reader:
    """Parses the prompts of an environment, and judges their items.

    Args:
        language: the environment's.
        wrong_fraction: fraction of the items answered wrongly: by another choice, or by the right answer to an earlier
            item.
        wrong_seed: seed of their choice.

    Raises:
        UserError: the environment has no rules.
    """

    def __init__(self, language: Language | None, wrong_fraction: float = 0.0, wrong_seed: int = 0):
        self._rules, self._wrong_fraction, self._wrong_seed = load_rules(language), wrong_fraction, wrong_seed
        self._earlier: dict[str, Judgement] = {}  # words of a free answer -> judgement
        paths = sorted(pathlib.Path(language.prompts).glob("*.json")) if language else ()
        self._files = [read_prompt_file(path) for path in paths]
        self._read_instructions = functools.lru_cache(maxsize=64)(self._instructions)

    def judge_prompt(self, prompt: str) -> Verdict:
        """Parses a prompt and judges its item, of the kind whose opening comes last in it; else its last line.

        Raises:
            ValueError: the environment's rules judge no items of this kind.
        """
        known = (kind for kind in QUERIES.values() if kind.openings)
        kind = max(known, key=lambda kind: prompt.rfind(kind.openings[-1]))
        before, item = _split(prompt, kind.openings)
        wanted = self._read_instructions(before) if item else Instructions(("defaultgoal",), False, "")
        if not item:
            kind, item = QUERIES["classification"], (unescape((prompt.strip().splitlines() or [""])[-1]),)
        judged = {goal: self._judge(kind, goal, item, wanted.answer_key) for goal in wanted.goals}
        (goal, found), *others = judged.items()
        text = f"<knowledge>{_KNOWLEDGE}</knowledge>\n<analysis>{found.analysis}</analysis>\n{found.ending}"
        answer = found.word if wanted.one_word else text
        if others:
            answer = "\n".join(f"{goal}: {judgement.word}" for goal, judgement in judged.items())
        return Verdict(kind, goal, item, found.word, answer, wanted.one_word)

    def _judge(self, kind: QueryKind, goal: str, item: Item, answer_key: str) -> Judgement:
        try:
            found = kind.judge(self._rules, goal, item, answer_key)
        except AttributeError as error:
            if error.obj is not self._rules:
                raise
            raise ValueError(f"the rules of this environment have no {error.name}") from None
        return self._maybe_wrong(kind, item, found) if self._wrong_fraction else found

    def _maybe_wrong(self, kind: QueryKind, item: Item, found: Judgement) -> Judgement:
        """Returns the answer, or for a fraction of the items, always the same ones, a wrong one."""
        key = str(self._wrong_seed).encode()
        number = int.from_bytes(hashlib.blake2b(b"\0".join(item), digest_size=4, key=key).digest())
        is_wrong = number < self._wrong_fraction * 2**32
        if kind.choices:
            others = [choice for choice in kind.choices if choice != found.word]
            other = others[number % len(others)]
            wrong = found._replace(word=other, ending=other.join(found.ending.rsplit(found.word, 1)))
            return wrong if is_wrong else found
        others = [judgement for word, judgement in self._earlier.items() if word != found.word]
        if len(self._earlier) < MAX_EARLIER:
            self._earlier[found.word] = found
        return others[number % len(others)] if is_wrong and others else found

    def _instructions(self, text: str) -> Instructions:
        """Parses the instructions from the text before the captions."""
        known = [goal for file in self._files for goal, wording in file["goals"].items() if wording in text]
        one_word = any(file["answers"].get("label", "\0") in text for file in self._files)
        keys = (file["answer_key"] for file in self._files if f'"{file["answer_key"]}"' in text)
        goals = tuple(dict.fromkeys(known)) or (goal_of_words(self._rules, self._words_of_goal(text)),)
        return Instructions(goals if LINES_OPENING in text else goals[:1], one_word, next(keys, DEFAULT_ANSWER_KEY))

    def _words_of_goal(self, text: str) -> str:
        """The line at the position of the goal in the environment's prompts."""
        heads = (file["user"].partition("{goal}")[0] for file in self._files)
        return next((text.rpartition(head)[2].partition("\n")[0] for head in heads if head in text), "")


def _split(prompt: str, openings: Sequence[str]) -> tuple[str, tuple[bytes, ...]]:
    """The text before the captions, and the captions: each up to the next tag, for none can hold a tag."""
    before, item = prompt, []
    for opening in reversed(openings):
        before, opened, after = before.rpartition(opening)
        if not opened:
            return prompt, ()
        item.append(unescape(after.partition("\n</")[0]))
    return before, tuple(reversed(item))


def read_prompts(body: Payload, chat: bool) -> list[str]:
    """Returns the prompts of a request; the turns of a chat are joined into one."""
    if chat:
        return ["\n\n".join(str(turn["content"]) for turn in body["messages"])]
    prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
    if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
        raise ValueError("prompt must be a text, or a list of texts")
    return prompts


def make_choice(index: int, verdict: Verdict, chat: bool, with_logprobs: bool) -> Payload:
    logprobs = None
    if with_logprobs and verdict.one_word:
        word, others = verdict.text, [other for other in verdict.kind.choices if other != verdict.text]
        tops = {word: math.log(CERTAINTY), **dict.fromkeys(others, math.log((1 - CERTAINTY) / len(others)))}
        entries = [{"token": word, "logprob": value, "bytes": list(word.encode())} for word, value in tops.items()]
        logprobs = (
            {"content": [{**entries[0], "top_logprobs": entries}]}
            if chat
            else {"tokens": [word], "token_logprobs": [tops[word]], "top_logprobs": [tops], "text_offset": [0]}
        )
    answer: dict[str, Any] = (
        {"message": {"role": "assistant", "content": verdict.text}} if chat else {"text": verdict.text}
    )
    return {"index": index, **answer, "logprobs": logprobs, "finish_reason": "stop"}


def make_payload(body: Payload, chat: bool, prompts: Sequence[str], choices: list[Payload]) -> Payload:
    num_tokens = sum(len(prompt) for prompt in prompts) // 4
    usage = {"prompt_tokens": num_tokens, "completion_tokens": len(choices), "total_tokens": num_tokens + len(choices)}
    kind = "chat.completion" if chat else "text_completion"
    head = {"id": "judge", "object": kind, "created": int(time.time()), "model": body.get("model", JUDGE_MODEL)}
    return {**head, "choices": choices, "usage": usage}
