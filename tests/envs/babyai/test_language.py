"""BabyAI-Text in words: its prompts, and rules of the judge that know the world and not the task."""

import dataclasses
import itertools
import json
import pathlib

import jax
import numpy as np
import pytest

from oni_jax.annotation.judge_answers import Reader
from oni_jax.annotation.prompts import load_prompt
from oni_jax.envs.babyai import ENVIRONMENT
from oni_jax.envs.babyai.cells import COLOURS
from oni_jax.envs.babyai.env import BabyAI
from oni_jax.envs.babyai.judge_rules import KINDS, caption_value, judge_caption, judge_pair, write_potential
from oni_jax.envs.registry import find_environment
from oni_jax.rewards.bk.sandbox import Sandbox
from oni_jax.rewards.bk.windows import Windows
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import BabyAIConfig, EnvConfig
from oni_jax.types import TIE
from tests import golden
from tests.support.processes import Launched, rows, summary

RECORDED = pathlib.Path(golden.__file__).with_name("data")
NAME = "BabyAI-Text-GoToLocal-RedBall-S20"
ORDERED = [  # ordered from bad to good
    b"You see a wall 1 step forward",
    b"You see nothing in front.",
    b"You see a wall 2 steps left. You see a red ball 3 steps left and 4 steps forward",
    b"You see a wall 1 step forward. You see a blue box 1 step left and 2 steps forward",
    b"You see a blue box 1 step left and 2 steps forward",
    b"You see a blue box 1 step left and 2 steps forward. You see a grey key 6 steps forward",
    b"You see a green closed door 1 step right and 1 step forward",
    b"You see a key 1 step forward",
    b"You carry a purple key. You see a wall 1 step forward",
]
HELPFUL = 6  # index of the first one


@pytest.fixture(scope="module")
def captions() -> list[bytes]:
    """Captions of the recorded levels."""
    recorded = [json.loads(path.read_text()) for path in sorted(RECORDED.glob("minigrid_BabyAI-*.json"))]
    pairs = [pair for file in recorded for run in file.values() for pair in run["mission_and_description"]]
    return sorted({description.encode() for _, description in pairs})


def test_the_judge_prefers_what_is_near():
    for (i, first), (j, second) in itertools.product(enumerate(ORDERED), repeat=2):
        assert judge_pair("defaultgoal", first, second) == (TIE if i == j else int(j > i))
    assert [judge_caption("defaultgoal", caption)[0] for caption in ORDERED] == [i >= HELPFUL for i in range(9)]


def test_the_judge_reads_no_colour_and_no_kind(captions):
    assert len({*map(caption_value, captions)}) > 20
    for colours, kinds in (("blue", "box"), ("grey", "key")):
        for caption in captions:
            words = [colours if word in COLOURS else kinds if word in ("key", "ball", "box") else word
                     for word in caption.decode().split(" ")]  # fmt: skip
            other = " ".join(words).encode()
            assert caption_value(other) == caption_value(caption) and judge_pair("", caption, other) == TIE


@pytest.mark.parametrize("version", ["default", "reworded"])
@pytest.mark.parametrize("answer", ["reasoned", "label"])
def test_the_judge_answers_the_prompts(version, answer, captions):
    reader = Reader(ENVIRONMENT.language)
    for goal in ("defaultgoal", "zeroknowledge", "keys", "balls", "boxes"):
        config = AnnotationConfig(prompt_version=version, llm_answer=answer, goal_key=goal)
        prompt = load_prompt(config, ENVIRONMENT.language)
        for caption in captions[::50]:
            verdict = reader.judge_prompt(prompt.user((caption,)))
            assert verdict.item == (caption,) and verdict.goal == goal and verdict.one_word == (answer == "label")
            assert verdict.word == ("FOO" if judge_caption(goal, caption)[0] else "BAR")
        pair = tuple(captions[:2])
        verdict = reader.judge_prompt(load_prompt(config, ENVIRONMENT.language, "ranking").user(pair))
        assert verdict.item == pair and verdict.label == judge_pair(goal, *pair)


def test_goal_of_a_kind_counts_that_kind_alone():
    near_ball = b"You see a red ball 1 step forward. You see a green key 3 steps left and 2 steps forward"
    carried = b"You carry a grey key. You see a wall 1 step forward"
    events = b"turn left. A blue box lies right ahead", b"pick up a red ball", b"go forward"
    helpful = {goal: [judge_caption(goal, x)[0] for x in (near_ball, carried, *events)] for goal in KINDS}
    assert helpful == {
        "keys": [False, True, False, False, False],
        "balls": [True, False, False, True, False],
        "boxes": [False, False, True, False, False],
    }
    assert judge_pair("keys", near_ball, carried) == 1 and judge_pair("balls", near_ball, carried) == 0


def test_goals_of_other_games_are_refused():
    with pytest.raises(UserError, match="no text for `gold`; it has defaultgoal, zeroknowledge"):
        load_prompt(AnnotationConfig(goal_key="gold"), ENVIRONMENT.language)


def test_rooms_of_other_sizes():
    config = EnvConfig(root_env=NAME, babyai=BabyAIConfig(size=9, num_distractors=3))
    make_device = find_environment(config).device
    assert make_device
    env = make_device(config)
    assert isinstance(env, BabyAI) and env.max_episode_steps == 81
    state = env.reset(jax.random.key(0))
    assert state.grid.shape == (9, 9) and np.count_nonzero(np.asarray(state.grid) & 7 > 4) == 4
    full = dataclasses.replace(config, babyai=BabyAIConfig(size=4, num_distractors=2))
    with pytest.raises(UserError, match="--babyai_size 4: has 4 cells within its walls, too few for 3 objects"):
        make_device(full)
    for size, num_distractors in ((4, 1), (20, 150)):  # no room can have all of them within reach
        config = dataclasses.replace(config, babyai=BabyAIConfig(size, num_distractors))
        with pytest.raises(UserError, match=f"too few for {num_distractors + 1} objects"):
            make_device(config)


@pytest.mark.slow
def test_labels_of_the_judge_pay(tmp_path):
    words = f"--train_dir={tmp_path} --experiment=run --root_env={NAME} --babyai_size=8 --encoder_custom=mlp_encoder "
    words += "--hidden_size=16 --use_rnn=False --batch_size=2048 --train_for_env_steps=81920 --llm_reward_coeff=0.1 "
    run = Launched("launch.train", *words.split(), "--llm_reward_type=online_cls", "--log_every_sec=1")
    output = run.finish(200)
    assert run.process.returncode == 0 and run.leftovers() == [], output
    done = summary(tmp_path / "run")
    assert done["labels_held"] > 20 and done["rewarded_steps"] > 100
    assert 0 <= rows(tmp_path / "run")[-1]["episode/success"] <= 1


def test_the_judge_s_potential_reads_no_colour_and_no_kind():
    """New things near are good: values by hand, and the same with other colours and kinds."""
    things = [(1, 2, (5, 0)), (4, 4, (6, 3)), (3, 5, (7, 5))]  # column, row, type and colour

    def observation(shown, recoloured):
        image = np.ones((7, 7, 3), int)
        for x, y, (kind, colour) in shown:
            image[x, y, :2] = (5 + (kind - 5 + recoloured) % 3, (colour + recoloured) % 6)
        return image

    sandbox = Sandbox(write_potential())
    for recoloured in range(3):
        now, nothing = observation(things, recoloured), observation([], recoloured)
        met = observation(things[2:], recoloured)
        far = observation(things[:1], recoloured)
        images = [
            [*[nothing] * 5, now],  # the box is right ahead
            [nothing, met, *[nothing] * 3, now],  # and was so before: the ball is new
            [*[nothing] * 5, far],
            [nothing] * 6,
        ]
        found = sandbox.call(Windows({"image": np.array(images)}, np.zeros((4, 5), int)))
        assert [(result.value, result.problem) for result in found] == [(1.0, ""), (1 / 3, ""), (1 / 6, ""), (0.0, "")]
    sandbox.close()
