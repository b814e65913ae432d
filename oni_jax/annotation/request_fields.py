"""The fields of a request that a server may refuse, and what is left of them when it does."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.extra_fields import extra_body

MAX_LABEL_TOKENS = 8  # one token as a rule; byte-level models and JSON quotes need more
_NUM_TOP_LOGPROBS = {"chat": 20, "completions": 5}  # the protocol's bounds
# Turns that a model makes up: four at most, by the protocol. None is part of an answer, nor of its reasoning.
_STOP = ("<|start_header_id|>", "<|im_start|>", "assistant\n\n", "\n\nUser:")

# No standard has constrained decoding: each server has other fields.
CONSTRAINTS: Mapping[str, Callable[[Sequence[str]], dict[str, Any]]] = {
    "none": lambda labels: {},
    "vllm": lambda labels: {"structured_outputs": {"choice": list(labels)}},
    "sglang": lambda labels: {"regex": f"({'|'.join(labels)})"},
    # Plain log-probabilities under a grammar are still those of the unrestricted model.
    "llamacpp": lambda labels: {
        "grammar": f"root ::= {_alternatives(labels)}",
        "post_sampling_probs": True,
    },
    "json_schema": lambda labels: {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "label", "strict": True, "schema": {"type": "string", "enum": list(labels)}},
        }
    },
}

# The same for an answer with a line for each goal.
LINES: Mapping[str, Callable[[Sequence[str], Sequence[str]], dict[str, Any]]] = {
    "none": lambda goals, labels: {},
    "vllm": lambda goals, labels: {"structured_outputs": {"regex": _lines_pattern(goals, labels)}},
    "sglang": lambda goals, labels: {"regex": _lines_pattern(goals, labels)},
    "llamacpp": lambda goals, labels: {
        "grammar": "root ::= " + r' "\n" '.join(f'"{goal}: " ({_alternatives(labels)})' for goal in goals)
    },
    "json_schema": lambda goals, labels: {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "labels",
                "strict": True,
                "schema": {
                    "type": "object",
                    "properties": {goal: {"type": "string", "enum": list(labels)} for goal in goals},
                    "required": list(goals),
                    "additionalProperties": False,
                },
            },
        }
    },
}


def _alternatives(labels: Sequence[str]) -> str:
    return " | ".join(f'"{label}"' for label in labels)


def _lines_pattern(goals: Sequence[str], labels: Sequence[str]) -> str:
    return r"\n".join(f"{goal}: ({'|'.join(labels)})" for goal in goals)


# Fields that every server should know: only an error that names one drops it.
_STANDARD = ("temperature", "max_tokens", "max_completion_tokens", "stop")
_REFUSING = (400, 404, 422, 500, 501)  # some answer 404 or 5xx to a field
_CONSTRAINT = (
    r"response[_\s-]?(?:format|schema)|json[_\s-]?(?:schema|mode)|structured[_\s-]?\w{1,20}|guided[_\s-]?\w{1,20}"
    r"|grammar|schema|regular expressions?|text\.format"
)
_NOUN = r"sequences?|words?|strings?|tokens?|param\w{0,8}|fields?"
_VERB = r"is|are|not|must|may|can|cannot|should|does|has|have|exceeds|of|in|at|for|with|value"
_SPELLINGS = {
    "logprobs": r"(?:response[_\s-]?)?log[_\s-]?prob(?:s|abilit(?:y|ies))?",
    "max_tokens": r"max[_\s-]?(?:(?:new|output|completion)[_\s-]?)?tokens|n_predict",
    **{name: rf"{name}|{_CONSTRAINT}" for name in ("response_format", "structured_outputs", "grammar", "regex")},
    # a word of every day: not before another, as in "please stop sending"
    "stop": rf"stop(?:[_\s-]?(?:{_NOUN})|(?!\s+(?!(?:{_VERB})\b)[a-z]))",
}
# "param": "stop", "loc": ["body", "stop"], and the same in JSON within JSON
_POINTER = re.compile(r"(?:param|parameter|field|loc)[\\\"']*:\s*\[?\s*(?:[\\\"']*body[\\\"']*,\s*)?[\\\"']+(\w+)")
_SYSTEM_TURN = re.compile(
    r"(?:system|developer).{0,60}(?:\b|_)(?:roles?|prompts?|messages?|instructions?)\b"
    r"|\broles?\b.{0,80}(?:system|alternate|support|user.{0,10}assistant|allowed|unknown)"
    r"|only .{0,20}user and assistant|(?:first|start).{0,40}\buser\b|instead of system|template ?error|jinja"
    r"|\bsystem\b.{0,20}not (?:permitted|supported|allowed)|(?:unknown|unexpected|invalid|unsupported).{0,20}\brole",
    re.IGNORECASE | re.DOTALL,
)


def first_form(config: AnnotationConfig, choices: Sequence[str], goals: Sequence[str] = ()) -> "Form":
    """Returns the form that is tried first.

    Args:
        config: of the server.
        choices: those that alone are asked for; empty: a reasoned answer is.
        goals: keys of those that have a line each, of one of the choices.
    """
    fields: dict[str, Any] = {"temperature": config.llm_temperature, "max_tokens": config.llm_max_tokens}
    fields["stop"] = list(_STOP)
    if goals:
        fields |= LINES[config.llm_constraint](goals, choices)
    elif choices:
        fields["max_tokens"] = min(config.llm_max_tokens, MAX_LABEL_TOKENS)
        num_top, is_chat = _NUM_TOP_LOGPROBS[config.llm_api], config.llm_api == "chat"
        fields |= {"logprobs": True, "top_logprobs": num_top} if is_chat else {"logprobs": num_top}
        fields |= CONSTRAINTS[config.llm_constraint](choices)
    return Form(fields | extra_body(config.llm_extra_body))


@dataclasses.dataclass(frozen=True)
class Form:
    """Content of a request besides model and prompt."""

    fields: Mapping[str, Any]
    has_system_turn: bool = True  # else the system text opens the user's turn

    def is_named_in(self, text: str) -> bool:
        """Returns whether an error's text names a field, or the system's turn."""
        return bool(self._named(text) or (self.has_system_turn and _SYSTEM_TURN.search(text)))

    def without_refused(self, status: int, text: str, may_guess: bool) -> "Form | None":
        """Returns the form to retry with: without what a refusal names, one thing at a time. None: it can't help.

        may_guess: where the text names nothing, all fields that not every server knows are dropped.
        """
        if status not in _REFUSING:
            return None
        if name := self._named(text):
            new_name = "max_completion_tokens"  # OpenAI's, since 2024
            is_renamed = name == "max_tokens" and re.search(
                rf"(?i)use.{{0,20}}{new_name}|{new_name}.{{0,20}}instead", text
            )
            renamed = {new_name: self.fields[name]} if is_renamed else {}
            return self._with({key: value for key, value in self.fields.items() if key != name} | renamed)
        if self.has_system_turn and _SYSTEM_TURN.search(text):
            return dataclasses.replace(self, has_system_turn=False)
        standard = {name: value for name, value in self.fields.items() if name in _STANDARD}
        return self._with(standard) if may_guess and status in (400, 422) and standard != self.fields else None

    def changes(self, other: "Form") -> str:
        """Returns in words how another form differs from this one."""
        gone = [f"`{name}`" for name in self.fields if name not in other.fields]
        new = [f"`{name}`" for name in other.fields if name not in self.fields]
        words = [f"{how} {', '.join(names)}" for how, names in (("without", gone), ("with", new)) if names]
        if self.has_system_turn and not other.has_system_turn:
            words.append("with the system's text in the user's turn")
        return " and ".join(words)

    def _with(self, fields: Mapping[str, Any]) -> "Form":
        return dataclasses.replace(self, fields=fields)

    def _named(self, text: str) -> str:
        """Returns the field that a text points at, else the one that it names first; empty: it names none.

        Another may be in an echo of the request.
        """
        pointed = [name for name in _POINTER.findall(text) if name in self.fields]
        if pointed:
            return pointed[0]
        found = {name: match.start() for name in self.fields if (match := re.search(_pattern(name), text))}
        return min(found, key=found.__getitem__) if found else ""


def _pattern(name: str) -> str:
    """Returns a pattern of a field's name, as a word: max_tokens, maxTokens, "max tokens"."""
    spelling = _SPELLINGS.get(name) or r"[_\s.-]?".join(map(re.escape, name.split("_")))
    return rf"(?i)(?<![A-Za-z0-9_])(?:{spelling})(?![A-Za-z0-9_])"
