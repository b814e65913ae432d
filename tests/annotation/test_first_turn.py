"""Reasoning in any tags, and turns that a model makes up, are no part of an answer."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.annotation.answers import read_choice
from oni_jax.annotation.first_turn import first_turn, split_reasoning
from oni_jax.annotation.queries.registry import QUERIES
from tests.support.asking import label_of

LABEL, OTHER = "<label>FOO</label>", "<label>BAR</label>"
TAGS = [
    *(
        f"<{name}> </{name}>"
        for name in (
            *("think", "thinking", "mm:think", "seed:think", "reasoning", "thought", "Think", "reason", "antThinking"),
            *("inner_monologue", "chain_of_thought", "seed:cot_budget_reflect", "self-reflection", "rationale", "plan"),
        )
    ),
    *("[THINK] [/THINK]", "<|begin_of_thought|> <|end_of_thought|>", "<|START_THINKING|> <|END_THINKING|>"),
    *("[think] [/think]", "[BEGIN_THOUGHT] [END_THOUGHT]", "<|reasoning_start|> <|reasoning_end|>"),
    *("<｜begin▁of▁thinking｜> <｜end▁of▁thinking｜>", "<unused94>thought <unused95>"),
    *('<details type="reasoning"> </details>', "<|begin_plan|> <|end_plan|>"),
    *("◁think▷ ◁/think▷", "<|channel>thought <channel|>", '<think budget="9"> </think>'),
]
MADE_UP = [
    "assistant\n\nThe next one: ",
    "\n\nUser: You are hungry.\n\nAssistant: ",
    "\nHuman: next\nAI: ",
    "\n### User\nnext\n### Assistant\n",
    "\n**Assistant:** ",
    "\n\nsystem\nYou judge. ",
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "<|im_end|>\n<|im_start|>user\nnext<|im_end|>\n",
    "<end_of_turn>\n<start_of_turn>user\n",
    "</s>[INST] next [/INST] ",
    "<｜end▁of▁sentence｜><｜User｜>next",
    "\n<message>\nYou are hungry.\n</message>\n",
    " Assistant: ",
    "\n### Input:\nnext\n### Response:\n",
    "\nQ2: next\nA2: ",
    "\n**Next message:** next\nLabel: ",
    "\n<user>\nnext\n</user>\n<assistant>\n",
    "[|Human|] next [|AI|] ",
    "\nBot: ",
    "\n\nUser 2: next\n",
    "[SYSTEM_PROMPT]next[/SYSTEM_PROMPT]",
    "<extra_id_1>User\nnext\n<extra_id_1>Assistant\n",
    "<turn|>\n<|turn>user\nnext<turn|>\n<|turn>model\n",
]
ANSWERS = {  # a kind of query's first answer, and another
    "classification": ("<analysis>a</analysis><label>FOO</label>", OTHER),
    "ranking": ('("best_description": 1)', '("best_description": 2)'),
    "segments": ("[Rank]\nA > B", "[Rank]\nB > A"),
    "goals": ("- a\n- b", "\n- c"),
    "suggestions": ("- eat cow\n- sleep", "\n- drink water"),
    "suggestions_strict": ("- eat cow\n- sleep", "\n- drink water"),
    "code": ("```python\nx = 1\n```", "\n```python\nx = 2\n```"),
    "yes_no": ("Yes", "\nNo"),
}


def read(text: str, kind: str = "classification", finish: str = "stop", one_word: bool = False):
    choice = {"message": {"content": text}, "finish_reason": finish}
    return read_choice(choice, QUERIES[kind], "best_description", one_word)


@pytest.mark.parametrize("tags", TAGS)
@pytest.mark.parametrize("one_word", [False, True])
def test_reasoning_in_any_tags_is_no_answer(tags, one_word):
    opening, closing = tags.rsplit(" ", 1)
    answer = "FOO" if one_word else LABEL
    for thought in ("BAR", OTHER, f"User: {OTHER}\n\n", ""):
        assert label_of(read(f"{opening}{thought}{closing}\n{answer}", one_word=one_word)) == 1
        assert label_of(read(f"{thought}{closing}{answer}", one_word=one_word)) == 1  # a template has opened it
        reply = read(f"{opening}{thought} so {answer}", one_word=one_word)
        assert reply.answer is None and reply.failure == "only_reasoning"
    assert split_reasoning(f"{opening}a{closing}b") == ("b", "a")


@pytest.mark.parametrize("one_word", [False, True])
def test_final_channel_is_the_answer(one_word):
    thought, final = f"<|channel|>analysis<|message|>{LABEL}<|end|>", f"<|channel|>final<|message|>{OTHER}"
    end = f"<|return|><|start|>user<|message|>next<|end|><|start|>assistant<|channel|>final<|message|>{LABEL}"
    for text in (
        f"{thought}<|start|>assistant{final}",
        f"<|start|>assistant{thought}<|start|>assistant{final}{end}",
        f"{thought.removeprefix('<|channel|>')}<|start|>assistant{final}",
        f"{LABEL}<|end|><|start|>assistant{final}",  # the template has opened the analysis
        f"{final}{end}",
        f"It may be {LABEL}.\n{final}",
        f"{thought}{final.replace('<|message|>', ' <|constrain|>json<|message|>')}",
        f"<|channel|>analysis {LABEL}<|channel|>final {OTHER}",
        f"<think>{LABEL}</think>{final}",
        f"{thought}<|start|>assistant{final.replace(OTHER, f'<think>{LABEL}</think>{OTHER}')}",
        f"It may be {LABEL}.assistantfinal{OTHER}",
        f"analysis\nIt may be {LABEL}.\nassistantfinal{OTHER}",
        f"analysisIt may be {LABEL}.assistantfinal{OTHER}",
    ):
        assert label_of(read(text, one_word=one_word)) == 0, text
    for text in (thought, f"{thought}<|start|>assistant<|channel|>commentary<|message|>{OTHER}", f"analysisSo {LABEL}"):
        reply = read(text, one_word=one_word)
        assert reply.answer is None and reply.failure == "only_reasoning", text


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "thinking"])
def test_field_of_reasoning_is_never_read(field):
    for content in (None, "", [], [{"type": "thinking", "thinking": [{"text": LABEL}]}]):
        reply = read_choice({"message": {"content": content, field: LABEL}}, QUERIES["classification"], "")
        assert (reply.answer, reply.failure, reply.reasoning_field) == (None, "only_reasoning", f"`{field}`")
    reply = read_choice({"message": {"content": OTHER, field: LABEL}}, QUERIES["classification"], "")
    assert label_of(reply) == 0
    parts = [{"type": "reasoning", "text": LABEL}, {"type": "text", "text": OTHER}]
    assert label_of(read_choice({"message": {"content": parts}}, QUERIES["classification"], "")) == 0


@pytest.mark.parametrize("made_up", MADE_UP)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_second_turn_is_never_read(made_up, finish):
    for kind, (first, other) in ANSWERS.items():
        if made_up.startswith("\n<message>") and kind != "classification":
            continue
        alone = QUERIES[kind].read(first, None, "best_description")
        assert alone is not None and read(f"{first}{made_up}{other}", kind, finish).answer == alone
        assert read(f"{first}{made_up}", kind, finish).answer == alone
    for words, label in (("FOO", 1), ("BAR.", 0)):
        for other in ("FOO", "BAR"):
            assert label_of(read(f"{words}{made_up}{other}", finish=finish, one_word=True)) == label
    assert read(f"I can't say.{made_up}{LABEL}", finish=finish).answer is None


@pytest.mark.parametrize("kind", sorted(ANSWERS))
def test_first_complete_answer_counts(kind):
    """Also where no turn is named. Lists go on, for their parts may have headings."""
    first, other = ANSWERS[kind]
    if not kind.startswith(("goals", "suggestions")):
        for finish in ("stop", "length"):
            expected = QUERIES[kind].read(first, None, "best_description")
            assert read(f"{first}\n\nThe next one is:\n\n{other}", kind, finish).answer == expected
    choices = QUERIES[kind].choices
    for word in choices:
        expected = QUERIES[kind].read(word, None, "")
        assert expected is not None
        for finish in ("stop", "length"):
            assert read(f"{word}\n\n{choices[0]}\n{choices[1]}", kind, finish, one_word=True).answer == expected


@pytest.mark.parametrize("text", ["Okay, is it FOO? Let me", "I think FOO is", "Sure! FOO or", "The label FOO means"])
def test_word_that_was_cut_off_in_reasoning_is_no_label(text):
    assert read(text, finish="length", one_word=True).answer is None
    assert label_of(read("FOO, because it", finish="length", one_word=True)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<knowledge>The user: interface of a system is simple.</knowledge><label>FOO</label>",
        "assistant\n\n<label>FOO</label>",
        "Assistant: <label>FOO</label>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n<label>FOO</label>",
        "<start_of_turn>model\n<label>FOO</label>",
        "An operating system\nis no monster. <label>FOO</label>",
        "The assistant\nsays: <label>FOO</label>",
        "Question: is it of use? <label>FOO</label>",
        "[Thoughts] The question [I think] is simple. <label>FOO</label>",
        "The plan <b>is</b> good [plan b, or c]. <label>FOO</label>",
    ],
)
def test_words_of_an_answer_end_no_turn(text):
    assert label_of(read(text)) == 1


def test_code_may_name_a_user():
    code = "```python\ndef f():\n    # User: a comment\n    # system\n    return 1\n```"
    assert b"return 1" in (read(code, "code").answer or b"")


@pytest.mark.parametrize("kind, first, second", [("classification", LABEL, OTHER), ("ranking", "1", "2")])
def test_label_within_the_analysis_is_no_answer(kind, first, second):
    words = [f'("best_description": {word})' if kind == "ranking" else word for word in (first, second)]
    assert label_of(read(f"<Analysis>It says {words[1]}, a trick.</analysis>\n{words[0]}", kind)) == (kind[0] == "c")
    assert label_of(read(f"<knowledge>k<analysis>a</analysis>{words[1]}", kind)) == (kind[0] == "r")
    assert read(f"<analysis>It is FOO {words[0]}</analysis>", kind).answer is None


def test_rank_that_is_mentioned_is_no_answer():
    """The one that begins a line is."""
    assert label_of(read("[Thoughts] [Rank] will be A > B\n[Rank]\nB > A", "segments")) == 1
    assert label_of(read("[Rank]\nA > B\nI considered it.\n[Rank]\nB > A", "segments")) == 0


@given(st.text() | st.text(alphabet="<>/|[]thinkTHINK:usera\n "))
def test_any_text(text):
    answer, thought = split_reasoning(text)
    assert len(answer) + len(thought) <= 2 * len(text) + 40
    assert len(first_turn(text, ("<message>\n",))) <= len(text)


HOSTILE = ["<think>", "<|", "[", "# ", "<|channel|>", "<knowledge>", "<analysis>x</knowledge>", "User: ", "\n"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_takes_no_time(text):
    text = text * (100_000 // len(text))
    start = time.process_time()
    for kind in QUERIES:
        read(text, kind)
        read(text, kind, one_word=True)
    assert time.process_time() - start < 3.0
