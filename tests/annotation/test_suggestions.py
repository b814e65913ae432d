"""Suggestions: lists of every form are read, nonsense is not; prompts rewrite captions; the judge follows its rules."""

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.annotation.answers import read_choice
from oni_jax.annotation.judge_answers import Reader
from oni_jax.annotation.prompts import load_prompt, render_chat
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.annotation.queries.suggestions import MAX_GOALS, parsed
from oni_jax.envs.registry import find_environment
from oni_jax.evaluation.asking.texts import make_items
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig

KIND = QUERIES["suggestions"]
LANGUAGE = find_environment(EnvConfig(root_env="CrafterTextEnv-v1")).language
PROMPT = load_prompt(AnnotationConfig(), LANGUAGE, "suggestions")
TWO = ["chop tree", "eat cow"]


@pytest.mark.parametrize(
    "text, goals",
    [
        ("- Chop tree\n- Eat cow", TWO),
        ("* chop tree\n* eat cow.", TWO),
        ("1. Chop tree\n2) Eat cow", TWO),
        ("• **Chop tree**\r\n• `eat cow`\r\n", TWO),
        ("  - chop tree\n    - eat cow", TWO),
        ("Here is what the player could do:\n- chop tree\n- eat cow\nGood luck with all of that!", TWO),
        ("```\n- chop tree\n- eat cow\n```", TWO),
        ('["Chop tree", "Eat cow"]', TWO),
        ('```json\n["Chop tree", "Eat cow"]\n```', TWO),
        ("Chop tree\nEat cow", TWO),
        ("- chop tree\n- CHOP TREE\n- eat  cow", TWO),
        ("- make wood-pickaxe\n- make stone_pickaxe", ["make wood pickaxe", "make stone pickaxe"]),
        ("- sleep", ["sleep"]),
    ],
)
def test_lists_of_many_forms_are_read(text, goals):
    kept = KIND.read(text, None, "")
    assert kept is not None and parsed(kept, strict=False) == goals
    assert KIND.is_answer(kept) and KIND.describe(kept) == f"{len(goals)} goals"


@pytest.mark.parametrize("text", ["", " \n", "-", "- \n- .", "[]", "```\n```", "I think:", "word " * 30])
def test_text_without_a_list_is_unreadable(text):
    assert KIND.read(text, None, "") is None


@given(st.text(), st.booleans())
def test_no_answer_breaks_the_parser(text, is_strict):
    kept = text.encode("utf-8", "replace")
    goals = parsed(kept, is_strict)
    assert len(goals) == len({*goals}) and all(goals)
    assert is_strict or len(goals) <= MAX_GOALS


def test_an_answer_as_a_server_sends_it():
    reply = read_choice({"message": {"role": "assistant", "content": "- Eat cow"}}, KIND, "")
    assert reply.answer == b"- Eat cow"
    assert read_choice({"text": "I refuse to answer:"}, KIND, "").answer is None


def test_states_that_read_alike_are_one_query():
    captions = (b"you see cow. you feel hurt, thirsty.", b"you see cow.", b"you see cow. you feel hungry.")
    assert {PROMPT.rewrite(caption) for caption in captions} == {b"you see cow."}
    assert PROMPT.rewrite(b"you see cow. you feel hurt, sleepy.") == b"you see cow. you feel sleepy."


@pytest.mark.parametrize("kind", ["classification", "ranking", "suggestions", "suggestions_strict"])
def test_only_suggestions_are_asked_about_rewritten_captions(tmp_path, kind):
    """A training and a trial of its prompt ask the same."""
    asked = KIND.name if kind.startswith(KIND.name) else kind
    path = pathlib.Path(tmp_path, "users.json")
    user = " ".join(QUERIES[kind].placeholders)
    path.write_text(json.dumps({"kind": asked, "system": "s", "user": user, "rewrite": [["hurt", "well"]]}))
    prompt = load_prompt(AnnotationConfig(prompt_file=str(path)), LANGUAGE, kind)
    captions = [b"you feel hurt.", b"you see cow."]
    expected = [b"you feel well.", b"you see cow."] if asked == KIND.name else captions
    assert [*map(prompt.rewrite, captions)] == expected
    assert [*dict.fromkeys(caption for item in make_items(prompt, captions) for caption in item)] == expected


@pytest.mark.parametrize("pairs", [3, ["a"], [["(", ""]], [["a", "\\2"]], [["a", 1]], [["a", "b", "c"]]])
def test_a_rewriting_that_can_not_be_done_is_refused(tmp_path, pairs):
    path = pathlib.Path(tmp_path, "users.json")
    path.write_text(json.dumps({"kind": "suggestions", "system": "s", "user": "{caption}", "rewrite": pairs}))
    with pytest.raises(UserError, match="users.json: `rewrite` must be a list of pairs"):
        load_prompt(AnnotationConfig(prompt_file=str(path)), LANGUAGE, "suggestions")


@pytest.mark.parametrize(
    "caption, goals",
    [
        (b"you see grass.", {"chop grass"}),
        (b"you see cow, and tree. you are targeting tree.", {"attack cow", "eat cow", "chop tree"}),
        (b"you see sand. you feel sleepy.", {"sleep"}),
        (
            b"you see crafting table, and stone. you have in your inventory wood, wood_pickaxe.",
            {"make crafting table", "mine stone", "make wood pickaxe", "make wood sword"},
        ),
        (b"you see water. you have in your inventory plant.", {"drink water", "place plant"}),
        (b"You see: tree at 2 steps to your left.You face grass at your front. Your status: health: 9/9, food: 9/9, "
         b"drink: 9/9, energy: 4/9. You have nothing in your inventory.", {"chop tree", "chop grass", "sleep"}),
    ],
)  # fmt: skip
def test_the_judge_suggests_what_a_caption_allows(caption, goals):
    reader = Reader(LANGUAGE)
    verdict = reader.judge_prompt("\n\n".join(text for _, text in PROMPT.turns((PROMPT.rewrite(caption),))))
    assert verdict.kind is KIND
    assert {*parsed(verdict.text.encode(), strict=False)} == goals
    template = render_chat("{system}|{user}|", PROMPT.turns((caption,)))
    assert {*parsed(reader.judge_prompt(template).text.encode(), strict=False)} == goals


def test_a_wrong_suggestion_is_an_earlier_state_s():
    right, wrong = Reader(LANGUAGE), Reader(LANGUAGE, wrong_fraction=1.0)
    captions = ["you see grass.", "you see tree, water.", "you see cow. you are hungry."]
    prompts = [PROMPT.user((caption.encode(),)) for caption in captions]
    expected = [right.judge_prompt(f"{PROMPT.system}\n\n{prompt}").word for prompt in prompts]
    given = [wrong.judge_prompt(f"{PROMPT.system}\n\n{prompt}").word for prompt in prompts]
    assert len(set(expected)) == 3 and given[0] == expected[0]  # there was no earlier one
    assert all(word != correct and word in expected for word, correct in zip(given[1:], expected[1:]))
