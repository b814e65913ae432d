"""From episodes to a trained Preference Transformer, by the programs: pairs, labels, training; resumes and refusals."""

import pathlib
import shutil

import numpy as np
import pytest

from launch import annotate_segments, train_potential
from oni_jax.envs.babyai.judge_rules import judge_segments, segment_value
from oni_jax.host.run_files import TRAINED
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_comparison import SEGMENTS, caption_of
from oni_jax.offline.play import random_episodes
from oni_jax.offline.segment_episodes import read_episodes, write_episodes
from oni_jax.rewards.bk.preference_model import load_preference_model
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import TIE, UNKNOWN

TASK = "BabyAI-Text-GoToLocal-RedBall-S20"
SMALL = "--encoder_custom mlp_encoder --hidden_size 16 --width 16 --batch_size 16 --num_epochs 2 --learning_rate 3e-3"


@pytest.fixture(scope="module")
def segments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segments")
    config = EnvConfig(root_env=TASK, max_episode_steps=30)
    write_episodes(str(folder / "a.npz"), random_episodes(config, 8, 1, StopRequest()))
    return str(folder)


def annotate(folder, segments, words: str = "") -> int:
    given = f"--root_env {TASK} --segments {segments} --reward_dir {folder} --num_pairs 64 --answers=judge {words}"
    return annotate_segments.main(given.split())


def train(folder, words: str = "") -> int:
    return train_potential.main(f"--root_env {TASK} --reward_dir {folder} {SMALL} {words}".split())


@pytest.fixture(scope="module")
def labelled(tmp_path_factory, segments):
    folder = tmp_path_factory.mktemp("labelled") / "new"
    assert annotate(folder, segments) == 0
    return folder


def labels_of(folder) -> np.ndarray:
    return np.load(folder / "preference" / "labels.npy")


def test_labels_are_the_judge_s(labelled):
    pairs, labels = read_episodes(str(labelled / SEGMENTS)), labels_of(labelled)
    assert len(pairs) == 2 * len(labels) == 128 and {pair.length for pair in pairs} == {5}
    assert any(pair.start for pair in pairs)
    texts = [caption_of(pair, ()) for pair in pairs]
    for i, label in enumerate(labels.tolist()):
        first, second = texts[2 * i : 2 * i + 2]
        assert label == (TIE if first == second else judge_segments(first, second))
    assert {0, 1} <= set(labels.tolist())


def test_the_same_command_goes_on(labelled, segments, capsys):
    before = labels_of(labelled)
    np.save(labelled / "preference" / "labels.npy", np.where(np.arange(64) < 50, before, UNKNOWN).astype(np.int8))
    assert annotate(labelled, segments) == 0
    np.testing.assert_array_equal(labels_of(labelled), before)
    assert "50 of 64 pairs are done already" in capsys.readouterr().out
    assert annotate(labelled, segments, "--seed 3") == 2
    assert "its labels have another seed; choose another folder" in capsys.readouterr().err
    assert annotate(labelled, segments, "--answers= --llm_server_addr 127.0.0.1:1") == 2  # an LLM's after the judge's
    assert "its labels have another llm_model; choose another folder" in capsys.readouterr().err
    assert annotate(labelled, segments, "--llm_max_labels 5") == 2
    assert "--llm_max_labels 5: limits what a training asks for; leave it out" in capsys.readouterr().err


def test_training(tmp_path, labelled, capsys):
    assert train(labelled) == 0
    model = load_preference_model(str(labelled))
    assert (model.settings.horizon, model.settings.num_actions, model.settings.is_scaled) == (5, 7, True)
    assert "epoch 2 of 2: loss" in capsys.readouterr().out
    assert train(labelled) == 2
    told = capsys.readouterr().err.strip()
    assert "holds a trained network already" in told
    removed = pathlib.Path(told.partition("remove ")[2].removesuffix(" to train another"))
    removed.rename(tmp_path / "earlier")
    assert train(labelled) == 0


def test_actions_that_the_environment_lacks_are_refused(tmp_path, labelled, capsys):
    shutil.copytree(labelled, tmp_path / "changed", ignore=shutil.ignore_patterns(TRAINED))
    path = tmp_path / "changed" / SEGMENTS
    with np.load(path) as file:
        arrays = dict(file)
    arrays["actions"][3] = 7
    np.savez(path, **arrays)
    assert train(tmp_path / "changed") == 2
    assert f"a segment has the action 7, and {TASK} has 0 to 6: name the" in capsys.readouterr().err


@pytest.mark.slow
def test_training_learns(tmp_path, segments, capsys):
    """The trained model agrees with the rule on pairs that it was not trained on."""
    assert annotate(tmp_path, segments, "--num_pairs 1500") == 0
    assert train(tmp_path, "--num_epochs 6 --batch_size 32") == 0
    accuracy = float(capsys.readouterr().out.split("test accuracy ")[-1].split(",")[0])
    assert accuracy > 0.7


def test_refusals(tmp_path, labelled, capsys):
    assert train(tmp_path / "nothing") == 2
    assert "holds no labels; launch.annotate_segments writes them" in capsys.readouterr().err
    assert train_potential.main(["--root_env", TASK]) == 2
    assert "--reward_dir: is required" in capsys.readouterr().err
    assert annotate_segments.main(["--root_env", TASK]) == 2
    assert "--reward_dir: is required" in capsys.readouterr().err
    assert annotate_segments.main(["--root_env", "Catch-v0", "--reward_dir", str(tmp_path / "catch")]) == 2
    assert "segments_default.json" in capsys.readouterr().err
    assert train(labelled, "--encoder_custom nle_torchbeast_encoder --preferences nowhere.npy") == 2
    assert "\n" not in capsys.readouterr().err.strip()


def segment(*seen: str) -> bytes:
    steps = "".join(f"Step {i}: {text}. You choose the action: forward.\n" for i, text in enumerate(seen[:-1], 1))
    return f"Agent history:\n{steps}Current observation: {seen[-1]}. \n".encode()


@pytest.mark.parametrize("name", ["red key", "blue box", "grey ball"])
def test_new_things_near_are_good(name):
    far, near, wall = (
        f"You see a {name} 3 steps forward",
        f"You see a {name} 1 step forward",
        "You see a wall 1 step left",
    )
    assert segment_value(segment(far, near)) == 1 and segment_value(segment(far, far)) == 1 / 3
    assert segment_value(segment(near, far)) == segment_value(segment(far, wall)) == segment_value(b"") == 0
    assert segment_value(segment(near, f"{far}. You see a green key 1 step left and 1 step forward")) == 1 / 2
    assert judge_segments(segment(far, near), segment(far, far)) == 0
    assert judge_segments(segment(near, far), segment(far, far)) == 1
    assert judge_segments(segment(wall), segment(near, far)) == TIE
