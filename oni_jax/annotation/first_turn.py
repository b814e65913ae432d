"""The answer in a model's text: without its reasoning, and up to a turn that the model made up.

Servers leave reasoning in the text in many tags, closed or not, and special tokens of chat templates as plain text.
Every search is bounded, for the text is a server's.
"""

import re
from collections.abc import Iterable

_REASONING = r"(?:\w{1,20}:)?(?:thinking|think|thoughts?|reasoning|reflection|scratchpad)(?:\s[^<>]{0,80})?"
# <think>, <mm:think>, <|begin_of_thought|>, <|START_THINKING|>, [THINK]; group `ends` is there in a closing one.
_TAG = re.compile(
    rf"<\|?(?P<ends>/|end_(?:of_)?)?(?:begin_of_|start_(?:of_)?)?{_REASONING}\|?>"
    r"|\[(?P<ends_bracket>/)?(?:THINK|THINKING|REASONING)\]|◁(?P<ends_triangle>/)?think▷|<\|channel>thought|"
    r"(?P<ends_channel><channel\|>)",
    re.IGNORECASE,
)
# gpt-oss: channels of analysis, commentary and the final answer; with their special tokens, or without.
_CHANNEL = re.compile(
    r"<\|channel\|>\s{0,3}(\w{1,20})[^<]{0,80}(?:<\|constrain\|>\w{0,20})?<\|message\|>(.*?)"
    r"(?=<\|(?:end|return|call|start|channel)\|>|\Z)",
    re.DOTALL,
)
_CHANNELS = re.compile(r"\s*(?:<\|start\|>assistant\s*)?<\|channel\|>")
_OPENED_CHANNEL = re.compile(
    r"\s*(?:(?P<name>analysis|commentary|final)<\|message\|>|(?!<\|)\S(?:(?!<\|).)*<\|end\|>\s*<\|start\|>assistant\s*"
    r"<\|channel\|>final)",
    re.DOTALL,
)
_BARE_CHANNEL = re.compile(r"\s*(?:assistant)?(?:analysis|commentary)(?=[A-Z])")
_BARE_FINAL = "assistantfinal"

# Special tokens of chat templates: <|eot_id|>, <｜end▁of▁sentence｜>, </s>, <end_of_turn>, [INST], <<SYS>>.
_TOKEN = r"<\|[\w▁ ]{1,40}\|>|<｜[^｜<>\n]{1,40}｜>|</?s>|<(?:start|end)_of_turn>|<[be]os>|\[/?INST\]|<</?SYS>>"
_SPEAKER = r"(?:user|assistant|system|human|model)"
_TURN = re.compile(
    rf"(?P<token>{_TOKEN})"
    # a line such as "User:", "### Assistant", "**Human:** ..."
    rf"|^[ \t#*_>\[(]{{0,6}}(?i:{_SPEAKER}[\])*_ \t]{{0,4}}(?:\r?$|:)|(?:ai|instructions?)[*_ ]{{0,3}}:)"
    # Llama's header without its special tokens, right after the answer
    r"|(?<=\S)assistant(?=\r?\n)|(?<=[^\sa-z])(?:user|system)(?=\r?\n)"
    r"|(?<=\s)(?:User|Assistant|USER|ASSISTANT)\s{0,2}:(?=\s)",
    re.MULTILINE,
)
# What may come before an answer: special tokens, and the header of an assistant's turn.
_OPENING = re.compile(rf"(?:\s|{_TOKEN}|(?i:assistant|model)(?=\s*(?::|\n|<))\s*:?)+")
_FENCE = "```"


def split_reasoning(text: str) -> tuple[str, str]:
    """Returns a text without a model's reasoning, and the reasoning.

    Of channels the final one is the answer. A tag that opens without one that closes: all that follows is reasoning;
    the other way round, all before it.
    """
    if opened := _OPENED_CHANNEL.match(text):  # by the chat template
        text = f"<|channel|>{'' if opened['name'] else 'analysis<|message|>'}{text.lstrip()}"
    if _CHANNELS.match(text):
        channels = _CHANNEL.findall(text.partition("<|start|>user")[0])
        final = next((said for name, said in channels if name == "final"), "")
        return final, "".join(said for name, said in channels if name != "final") or text.replace(final, "")
    if _BARE_CHANNEL.match(text):
        thought, _, final = text.partition(_BARE_FINAL)
        return final, thought
    answer, thought, start, is_open = "", "", 0, False
    for tag in _TAG.finditer(text):
        before, closes = text[start : tag.start()], any(tag.groupdict().values())
        if is_open or closes:
            thought += before if is_open else answer + before
            answer = answer if is_open else ""
        else:
            answer += before
        is_open, start = not closes, tag.end()
    return (answer, thought + text[start:]) if is_open else (answer + text[start:], thought)


def first_turn(text: str, openings: Iterable[str] = ()) -> str:
    """Returns a text up to the turn that a model made up after its answer, or up to the prompt that it repeated.

    openings: texts right before the captions in a prompt, see `QueryKind.openings`; those that are tags mark a prompt.
    """
    if opening := _OPENING.match(text):
        text = text[opening.end() :] if opening[0].strip() else text
    ends = [text.find(tag) for tag in openings if tag.startswith("<")]
    for turn in _TURN.finditer(text):
        if turn["token"] or text.count(_FENCE, 0, turn.start()) % 2 == 0:  # a block of code may hold "user:"
            ends.append(turn.start())
            break
    end = min((end for end in ends if end >= 0), default=-1)
    return text if end < 0 else text[:end].rstrip()


def first_line(text: str) -> str:
    """Returns the first line of a text that is not blank."""
    return text.strip().partition("\n")[0].strip()
