"""NetHack for potentials: what a generated code sees, the prompts of its kinds, and the judge's rules for them."""

import json

import numpy as np
import pytest

from launch import annotate_segments, check_potential, collect_segments, write_goals, write_potential
from oni_jax.annotation.prompts import load_prompt
from oni_jax.envs.base import make_step_output
from oni_jax.envs.nethack import LANGUAGE
from oni_jax.envs.nethack.tasks import EXTENDED_KEYS, TASKS, nethack
from oni_jax.envs.nethack.vector_env import BLSTATS_NAMES
from oni_jax.envs.registry import make_vector_env
from oni_jax.offline.segment_episodes import read_episodes, write_episodes
from oni_jax.rewards.bk.sandbox import Sandbox
from oni_jax.rewards.bk.windows import Windows
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import with_values
from oni_jax.settings.worlds import EnvConfig

TASK = "NetHackScore-v1"
CODE = """
def compute_reward(obs, past_obs, past_actions):
    text = "".join([chr(code) for code in obs["message"] if code])
    parts = {"hitpoints": obs["hitpoints"], "before": past_obs[-1]["hitpoints"], "hero": obs["chars"][7][6]}
    return float("newt" in text), parts
"""


def collected(folder) -> str:
    words = f"--policy random --root_env {TASK} --max_episode_steps 30 --episodes 3 --num_envs 1 --directory {folder}"
    assert collect_segments.main(words.split()) == 0
    return f"--root_env {TASK} --max_episode_steps 30 --segments {folder}"


@pytest.mark.parametrize("stepper", ["python", "native"])
def test_statistics_are_shown_as_they_are_also_of_final_states(stepper):
    config = with_values(
        EnvConfig(root_env=TASK, max_episode_steps=5), {"stepper": stepper} if stepper == "python" else {}
    )
    env = make_vector_env(config, 2, 1, 0, ("blstats", "vector_obs"))
    out = make_step_output(env.spec, 2)
    hitpoints, turns = (BLSTATS_NAMES.index(name) for name in ("hitpoints", "turns"))
    assert (hitpoints, turns) == (nethack.NLE_BL_HP, nethack.NLE_BL_TIME) and len(BLSTATS_NAMES) == 27
    env.reset(out)
    assert (out.records["blstats"][:, turns] == 1).all() and out.records["blstats"][:, hitpoints].all()
    for _ in range(5):
        env.step(np.full(2, EXTENDED_KEYS.index(nethack.Command.SEARCH), np.int32), out)
    assert out.records["truncated"].all() and (out.records["blstats"][:, turns] == 1).all()
    finals = out.finals["blstats"]
    assert (finals[:, turns] > 1).all()
    np.testing.assert_allclose(finals[:, turns] / 1000, out.finals["vector_obs"][:, turns], rtol=1e-5)
    env.close()


def test_code_sees_statistics_by_name_the_message_and_the_screen():
    blstats = np.arange(2 * 27, dtype=np.int32).reshape(1, 2, 27)
    message = np.zeros((1, 2, 256), np.uint8)
    message[0, 1, :16] = np.frombuffer(b"You hit the newt", np.uint8)
    chars = np.zeros((1, 2, 12, 12), np.uint8)
    chars[0, 1, 7, 6] = ord("@")
    sandbox = Sandbox(CODE, named=LANGUAGE.code)
    (found,) = sandbox.call(Windows({"blstats": blstats, "message": message, "chars": chars}, np.zeros((1, 1), int)))
    sandbox.close()
    index = BLSTATS_NAMES.index("hitpoints")
    assert found == (1.0, {"hitpoints": 27 + index, "before": index, "hero": ord("@")}, "")


def test_actions_of_all_tasks_have_words():
    assert all(task.keys == EXTENDED_KEYS[: len(task.keys)] for task in TASKS.values())
    assert len(LANGUAGE.actions) == len({*LANGUAGE.actions}) == len(EXTENDED_KEYS)


def test_code_prompt_names_only_what_a_code_sees():
    prompt = load_prompt(AnnotationConfig(), LANGUAGE, "code")
    named = {word.partition('"')[0] for word in prompt.turns(())[1][1].split('obs["')[1:]}
    assert named == {*BLSTATS_NAMES, *LANGUAGE.code} - {"blstats"}


def test_three_forms_are_made_of_recorded_games(tmp_path, capsys):
    given = collected(tmp_path / "segments").split()
    for program, kind, words in (
        (write_potential, "potential", "--num_rounds 1 --num_samples 2"),
        (annotate_segments, "preferences", "--num_pairs 6"),
        (write_goals, "goals", "--num_rounds 2"),
    ):
        assert program.main([*given, "--reward_dir", str(tmp_path / kind), *words.split()]) == 0
    assert check_potential.main([str(tmp_path / "potential"), *given, "--num_windows", "20"]) == 0
    assert "health: " in capsys.readouterr().out
    answers = (tmp_path / "potential" / "answers.jsonl").read_text().splitlines()
    assert len(answers) == 1 and "compute_reward" in answers[0]
    (key,) = json.loads((tmp_path / "goals" / "goals.json").read_text())["keys"][:1]
    assert "You choose the action: " in key and "action 1" not in key
    assert set(np.load(tmp_path / "preferences" / "preference" / "labels.npy")) <= {0, 1, 2}


def test_games_recorded_without_statistics_are_refused_in_a_line(tmp_path, capsys):
    given = collected(tmp_path / "segments").split()
    (path,) = (tmp_path / "segments").glob("*.npz")
    episodes = [
        episode._replace(observations={"message": episode.observations["message"]})
        for episode in read_episodes(str(path))
    ]
    write_episodes(str(path), episodes)
    assert write_potential.main([*given, "--reward_dir", str(tmp_path / "potential"), "--num_rounds", "1"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "were recorded without blstats, chars; run launch.collect_segments again" in line
