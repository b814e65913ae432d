"""The answer in a model's text: without its reasoning, and up to a turn that the model made up.

Servers leave reasoning in the text in many tags, closed or not, and special tokens of chat templates as plain text.
Every search is bounded, for the text is a server's.
"""

import re
from collections.abc import Iterable

# Stems of the names of reasoning's tags; the whole words are those that other names contain.
_STEMS = (
    r"think|thought|reason|reflect|scratch|monolog|deliberat|rationale|ponder|brainstorm|internal"
    r"|(?<![a-z])(?:cot|plan|planning|draft|details)(?![a-z])"
)
_NAME = rf"(?P<ends>/|end[_▁ ])?[\w:.▁-]{{0,30}}?(?:{_STEMS})[\w:.▁-]{{0,30}}?(?P<ends_last>[_▁]end)?"
# <think>, <mm:think>, <|begin_of_thought|>, <|START_THINKING|>, [THINK]; a group `ends` is there in a closing one.
# [Thoughts] is a heading that prompts ask for. Gemma's tags are a token, and a word after it.
_TAG = re.compile(
    rf"[<\[◁](?!Thoughts\])(?=\s?[|｜]?[\w/])\s?[|｜]?{_NAME}(?:\s[^<>]{{0,80}}(?=>))?\s?[|｜]?(?:>|\]|▷)"
    r"|<(?:\|channel|unused\d{1,4})>thought|(?P<ends_channel><(?:channel\||unused\d{1,4})>)",
    re.IGNORECASE,
)
# gpt-oss: channels of analysis, commentary and the final answer; with their special tokens, or without.
_FINAL = re.compile(
    r"<\|channel\|>\s{0,3}final(?:[^<\n]{0,80}(?:<\|constrain\|>\s?\w{0,20})?<\|message\|>)?|assistantfinal"
    r"|\A\s*final(?:<\|message\|>|(?=[A-Z]))"
)
_CHANNEL = re.compile(
    r"\s*(?:(?:<\|start\|>assistant\s*)?<\|channel\|>"
    r"|(?:assistant)?(?:analysis|commentary)(?:<\|message\|>|(?=[A-Z])))"
)

_SPEAKER = r"(?:user|assistant|system|human|model|bot)"
# Special tokens of chat templates: <|eot_id|>, <|turn>, <｜end▁of▁sentence｜>, </s>, <end_of_turn>, <extra_id_1>,
# [INST], [SYSTEM_PROMPT], <<SYS>>; and tags of speakers: <user>, [|Human|].
_TOKEN = (
    r"<\|[\w▁ ]{1,40}\|?>|<\w{1,40}\|>|<｜[^｜<>\n]{1,40}｜>|</?s>|<(?:start|end)_of_turn>|<[be]os>"
    r"|<(?i:extra_id_|reserved_|special_|unused)\d{1,4}>|\[/?(?:INST|[A-Z]+_[A-Z_]+)\]|<</?SYS>>"
    rf"|[<\[]/?[|_]?(?i:{_SPEAKER}|ai|role)[|_]?[>\]]"
)
_TURN = re.compile(
    rf"(?P<token>{_TOKEN})"
    # a line such as "User:", "### Assistant", "**Human:** ...", "User 2:"
    rf"|^[ \t#*_>\[(]{{0,6}}(?i:{_SPEAKER}(?: \d{{1,3}})?[\])*_ \t]{{0,4}}(?:\r?$|:)|(?:ai|instructions?)[*_ ]{{0,3}}:)"
    # after something was said: "Q:", "Question 2:", "Next message:"
    r"|(?<=\n)[ \t#*_>\[(]{0,6}(?i:q|(?:(?:next|new|another) )?(?:question|input)|(?:next|new|another) message)"
    r"(?: ?\d{1,3})?[*_ \t]{0,4}:"
    # Llama's header without its special tokens, right after the answer
    r"|(?<=\S)assistant(?=\r?\n)|(?<=[^\sa-z])(?:user|system)(?=\r?\n)"
    r"|(?<=\s)(?:User|Assistant|USER|ASSISTANT)\s{0,2}:(?=\s)",
    re.MULTILINE,
)
# Text that may come before an answer: special tokens, and the header of an assistant's turn.
_OPENING = re.compile(rf"(?:\s|{_TOKEN}|(?i:assistant|model)(?=\s*(?::|\n|<))\s*:?)+")
_FENCE = "```"


def split_reasoning(text: str) -> tuple[str, str]:
    """Returns a text without a model's reasoning, and the reasoning.

    What comes before a final channel is reasoning. So is all that follows a tag that opens without one that closes,
    and, the other way round, all before it.
    """
    answer, thought, start, is_open = "", "", 0, False
    if final := _FINAL.search(text.partition("<|start|>user")[0]):
        thought, text = text[: final.start()], text[final.end() :]
    elif _CHANNEL.match(text):
        return "", text
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
