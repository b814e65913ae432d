"""BK's published scripts and ours say the same of the same segments, given the same prompts.

The prompts' wording and what was said have no licence: they are read where they lie beside the checkout, and the tests
are skipped elsewhere.
"""

import asyncio
import json
import pathlib
import re

import numpy as np
import pytest

from oni_jax.annotation.prompts import Prompt, Turn, load_prompt
from oni_jax.envs.babyai.levels import ACTION_WORDS
from oni_jax.envs.registry import find_environment
from oni_jax.offline.bk_config import WriteGoalsConfig
from oni_jax.offline.bk_goal_writer import GoalConversation
from oni_jax.offline.bk_writer import sample_text
from oni_jax.offline.segment_episodes import Segment
from oni_jax.rewards.bk.goals import read_library
from oni_jax.rewards.bk.sandbox import Value
from oni_jax.rewards.bk.segment_captions import segment_caption
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.worlds import EnvConfig
from tests.golden.test_babyai import SHARED

pytestmark = pytest.mark.skipif(not (SHARED / "transcripts.json").exists(), reason=f"no {SHARED}/transcripts.json")
STEP = re.compile(r"Step \d+: (.*) You choose the action: (.*)\.\n")
SAMPLE = re.compile(
    r"Sample#(\d+)\n(Agent history:\n(?:.+\n)+)\nThe computed reward is (.*)\. Reward details: (.*)\.\n"
)
LAST = re.compile(r"Current observation: (.*)\. \n")


@pytest.fixture(scope="module")
def published():
    """Conversations, and prompts."""
    return [json.loads((SHARED / name).read_text()) for name in ("transcripts.json", "prompts.json")]


def segment_of(text: str) -> Segment:
    steps, last = STEP.findall(text), LAST.findall(text)
    captions = [said.encode() for said in [*(caption for caption, _ in steps), *last]]
    actions = np.array([ACTION_WORDS.index(action) for _, action in steps])
    assert len(captions) == len(actions) + 1 > 1
    return Segment({}, captions, actions, np.zeros(len(actions), np.float32))


def prompt_of(folder: pathlib.Path, kind: str, **texts: object) -> Prompt:
    path = folder / f"{kind}.json"
    path.write_text(json.dumps({"kind": kind, "again": "again", **texts}))
    language = find_environment(EnvConfig(root_env="BabyAI-Text-GoToLocal-RedBall-S20")).language
    return load_prompt(AnnotationConfig(prompt_file=str(path)), language, kind)


def contents(messages: list[dict]) -> list[Turn]:
    return [(message["role"], message["content"]) for message in messages]


def test_comparisons(published, tmp_path):
    transcripts, prompts = published
    world = prompts["minigrid/descriptions.txt"]
    system = prompts["preference_labeling/system.txt"].replace("{environment_description}", world)
    user = prompts["preference_labeling/user.txt"].replace("{desc_a}", "{first}").replace("{desc_b}", "{second}")
    answers = {"goals": {"defaultgoal": "-"}, "answers": {"reasoned": "-", "label": "-"}}
    prompt = prompt_of(tmp_path, "segments", system=system, user=user, **answers)
    for messages in transcripts["pref_minigrid"]["calls"]:
        texts = re.split(r"Descriptions of Trajectory Segment [AB]:\n", messages[1]["content"])[1:]
        segments = [segment_of(text) for text in texts]
        item = tuple(
            segment_caption([c.decode() for c in segment.captions], [ACTION_WORDS[a] for a in segment.actions]).encode()
            for segment in segments
        )
        assert list(prompt.turns(item)) == contents(messages)


def test_goals(published, tmp_path):
    transcripts, prompts = published
    recorded = transcripts["goals_minigrid"]
    prompt = prompt_of(
        tmp_path, "goals", system="task", user=prompts["goal_suggestion/user.txt"].replace("{desc}", "{segment}")
    )
    calls = [contents(messages)[2:] for messages in recorded["calls"]]
    texts = recorded["files"]["trajectory_text.json"]
    segments = iter([segment_of(text) for text in texts])

    class Recorded:
        def draw(self) -> Segment:
            return next(segments)

    goals = {index: goal for goal, index in recorded["files"]["goal_index.json"].items()}
    answers = [text for role, text in calls[-1] if role == "assistant"]
    answers += ["\n".join(f"- {goals[i]}" for i in recorded["files"]["goal_library.json"][-1])]
    asked = []

    async def ask(turns, item) -> str:
        asked.append(list(turns)[1:])
        return answers[sum(role == "assistant" for role, _ in turns)]

    settings = WriteGoalsConfig(reward_dir=str(tmp_path), num_rounds=len(texts), max_tokens=0)
    asyncio.run(GoalConversation(settings, prompt, Recorded(), ACTION_WORDS).hold(ask))  # type: ignore
    distinct = [call for i, call in enumerate(calls) if call not in calls[:i]]
    assert asked == distinct
    library = read_library(str(tmp_path))
    assert [*library.goals] == [goals[i] for i in range(len(goals))]
    assert [[*indices] for indices in library.indices] == recorded["files"]["goal_library.json"]
    assert [text.strip() for text in library.keys] == [text.strip() for text in texts]


def test_samples_of_a_code(published):
    transcripts, _ = published
    num_samples = 0
    for role, said in contents(transcripts["code"]["calls"][-1]):
        if role != "user":
            continue
        for found in SAMPLE.finditer(said):
            number, text, value, details = found.groups()
            parts = {name: float(part) for name, part in (detail.split(": ") for detail in details.split(", "))}
            num_samples += 1
            given = sample_text(int(number), segment_of(text), Value(float(value), parts), ACTION_WORDS)
            assert given == found[0]
    assert num_samples == 10
