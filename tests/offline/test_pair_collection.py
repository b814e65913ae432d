"""Drawing sub-episodes while games are played."""

import collections
import functools
import os
import pathlib
import subprocess
import sys
import time
from typing import NamedTuple

import jax
import numpy as np
import pytest

from launch import collect_pairs
from oni_jax.envs.registry import env_spec
from oni_jax.host.runtime import StopRequest
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.offline.dataset import PairDataset
from oni_jax.offline.pair_collection import SubepisodeSampler
from oni_jax.runs.checkpointing import Checkpoints, Saved
from oni_jax.runs.experiment import write_settings
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values
from oni_jax.types import PyTree
from tests.support.full_disk import full_disk


def sample(directory: pathlib.Path, num_pairs: int, length: int, num_steps: int, seed: int = 0) -> np.ndarray:
    """[P, 2, L, 3]: (game, episode, step in it), of three games with episodes of different lengths."""
    directory.mkdir()
    blstats = np.zeros((3, 27), np.int64)
    sampler = SubepisodeSampler(str(directory), {"blstats": blstats}, num_pairs, length, np.random.default_rng(seed))
    lengths = np.array([5, 7, 11])
    for step in range(num_steps):
        blstats[:, 0], blstats[:, 1], blstats[:, 2] = range(3), step // lengths, step % lengths
        blstats[:, 9] = 100 * step
        sampler.add(step % lengths == 0)
    dataset = PairDataset(str(directory), ["data/blstats", "info/score"])
    np.testing.assert_array_equal(dataset["info/score"], dataset["data/blstats"][:, :, -1, 9])
    return np.array(dataset["data/blstats"][..., :3])


def test_sub_episodes_are_whole_and_of_one_episode(tmp_path):
    drawn = sample(tmp_path / "x", num_pairs=40, length=4, num_steps=200)
    np.testing.assert_array_equal(drawn[..., :2], drawn[:, :, :1, :2].repeat(4, 2))
    np.testing.assert_array_equal(np.diff(drawn[..., 2], axis=2), 1)


def test_each_sub_episode_is_as_likely_as_another_and_drawn_once(tmp_path):
    counts, num_draws = collections.Counter(), 300
    for seed in range(num_draws):
        drawn = sample(tmp_path / str(seed), num_pairs=5, length=3, num_steps=35, seed=seed)
        begins = [tuple(begin) for begin in drawn[:, :, 0].reshape(-1, 3).tolist()]
        assert len(set(begins)) == 10
        counts.update((half, begin) for half, begin in zip((i % 2 for i in range(10)), begins))
    num_subepisodes = 7 * 3 + 5 * 5 + 3 * 9 + 0  # 35 steps: 7 episodes of 5, 5 of 7, 3 of 11 and 2 steps
    assert len({begin for _, begin in counts}) == num_subepisodes
    expected = num_draws * 10 / num_subepisodes / 2
    assert 0.3 * expected < min(counts.values()) and max(counts.values()) < 2 * expected


def collect(directory: pathlib.Path, *words: str) -> int:
    return collect_pairs.main(["--directory", str(directory), "--num_pairs", "20", "--num_envs", "3", *words])


@pytest.mark.parametrize("policy, view", [("random", "map"), ("scripted", "terminal")])
def test_games_become_a_data_set(tmp_path, policy, view):
    words = ("--subepisode_length", "3", "--policy", policy, "--view", view, "--num_env_steps", "600")
    assert collect(tmp_path / "a", *words) == 0
    screens = {"map": ["chars", "colors"], "terminal": ["tty_chars", "tty_colors"]}[view]
    data = ["message", "blstats", "rewards", *screens]
    info = ["score", "turns", "experience_level", "depth", "gold", "hit_points"]
    assert {path.stem for path in (tmp_path / "a" / "data").iterdir()} == set(data)
    assert {path.stem for path in (tmp_path / "a" / "info").iterdir()} == set(info)
    dataset = PairDataset(str(tmp_path / "a"), [f"data/{key}" for key in data] + [f"info/{key}" for key in info])
    assert (dataset.num_pairs, dataset.num_steps) == (20, 3)
    blstats = dataset.blstats(slice(None))
    assert (np.diff(blstats[..., 20], axis=2) >= 0).all() and blstats[..., 20].max() > 1  # turns
    np.testing.assert_array_equal(dataset["info/turns"], blstats[:, :, -1, 20])
    assert dataset.messages(slice(None)).any() and dataset[f"data/{screens[0]}"].any()
    assert collect(tmp_path / "b", *words) == 0  # equal seeds give equal data
    for key in data:
        np.testing.assert_array_equal(np.load(tmp_path / "b" / "data" / f"{key}.npy"), dataset[f"data/{key}"])


def test_glyphs_when_asked_for(tmp_path):
    assert collect(tmp_path / "a", "--record_glyphs", "--num_env_steps", "60") == 0
    assert np.load(tmp_path / "a" / "data" / "glyphs.npy").shape == (20, 2, 1, 21, 79)


class State(NamedTuple):
    """A checkpoint's, as a training writes it."""

    params: PyTree
    opt_state: PyTree


def save_run(folder: pathlib.Path) -> None:
    values = dict(encoder_custom="mlp_encoder", hidden_size=8, root_env="NetHackScoreExtendedActions-v1", view="map")
    config = with_values(Config(), values)
    spec = env_spec(config.env)
    policy = make_policy(config.network, spec)
    shapes = jax.eval_shape(functools.partial(init_params, policy, spec), jax.random.key(0))
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    folder.mkdir(parents=True)
    write_settings(config, str(folder))
    checkpoints = Checkpoints(str(folder / "checkpoints"))
    checkpoints.save(1000, Saved(State(params, (np.zeros(3),)), {}, {"env_steps": 1000}))
    checkpoints.close()


def test_a_checkpoint_plays(tmp_path, capsys):
    save_run(tmp_path / "train_dir" / "run")
    words = ("--policy", "checkpoint", "--train_dir", str(tmp_path / "train_dir"), "--experiment", "run")
    words += ("--num_env_steps", "300")
    assert collect(tmp_path / "a", *words) == 2
    assert "other actions" in capsys.readouterr().err
    assert collect(tmp_path / "a", *words, "--root_env", "NetHackScoreExtendedActions-v1") == 0
    assert "the policy after 1,000 environment steps plays" in capsys.readouterr().out
    assert (tmp_path / "a" / "data" / "chars.npy").exists()  # the run's view
    assert collect(tmp_path / "b", *words[:-4], "--experiment", "none") == 2
    assert "none/config.json" in capsys.readouterr().err


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path, capsys):
    folder = tmp_path / "run"
    save_run(folder)
    words = ("--policy", "checkpoint", "--train_dir", str(tmp_path), "--experiment", "run", "--root_env")
    words += ("NetHackScoreExtendedActions-v1",)
    settings = (folder / "config.json").read_text()
    (folder / "config.json").write_text(settings.replace('"hidden_size": 8', '"hidden_size": 16'))
    assert collect(tmp_path / "a", *words) == 2
    assert "checkpoints/1000 can't be read (" in capsys.readouterr().err
    (folder / "config.json").write_text(settings)
    (folder / "checkpoints").rename(folder / "elsewhere")
    assert collect(tmp_path / "a", *words) == 2
    assert "holds no checkpoint" in capsys.readouterr().err


def test_an_interrupted_run_leaves_nothing(tmp_path, capsys, monkeypatch):
    from oni_jax.offline import pair_collection

    stop = StopRequest()
    add = SubepisodeSampler.add

    def interrupt(self, is_first):
        add(self, is_first)
        stop.reason = "SIGINT" if self.num_seen > 10 else ""

    monkeypatch.setattr(SubepisodeSampler, "add", interrupt)
    config = with_values(pair_collection.CollectPairs(), {"directory": str(tmp_path / "a"), "num_envs": 2})
    assert pair_collection.collect_pairs(config, stop) == 130
    assert "was not written" in capsys.readouterr().out
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "words, text",
    [
        (["--root_env", "Catch-v0"], "Catch-v0"),
        (["--root_env", "NetHackScor-v1"], "NetHackScore-v1"),
        (["--num_pairs", "0"], "--num_pairs"),
        (["--policy", "expert"], "scripted"),
        (["--policy", "checkpoint", "--train_dir", "/nowhere"], "/nowhere"),
        (["--directory", "/proc/x/y"], "/proc/x"),
    ],
)
def test_refused_in_one_line(tmp_path, capsys, words, text):
    assert collect(tmp_path / "a", *words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and text in lines[0]
    assert os.listdir(tmp_path) == []


def test_a_directory_that_holds_something_is_refused(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    assert collect(tmp_path) == 2
    assert "holds something already" in capsys.readouterr().err
    (tmp_path / "data").rmdir()
    assert collect(tmp_path, "--num_env_steps", "60", "--policy", "random") == 0
    assert (tmp_path / "info" / "score.npy").exists()


def test_a_full_disk_is_told_in_a_line_before_anything_is_played(tmp_path, capsys):
    with full_disk(20_000_000):
        assert collect(tmp_path / "a", "--num_pairs", "100000") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "can't be written" in lines[0] and str(tmp_path / "a") in lines[0]
    with full_disk():
        assert collect(tmp_path / "a") == 2
    (line,) = capsys.readouterr().err.splitlines()  # NLE's engine, unlike the built one, writes files at once
    assert "TMPDIR" in line or ("can't be written" in line and str(tmp_path / "a") in line)
    assert os.listdir(tmp_path) == []


def test_leftovers_of_a_killed_collection_are_removed_by_the_next(tmp_path):
    words = [f"--directory={tmp_path / 'a'}", "--num_env_steps=1000000000"]
    with subprocess.Popen([sys.executable, "-m", "launch.collect_pairs", *words], stdout=subprocess.DEVNULL) as killed:
        while not list(tmp_path.glob("*/data/*.npy")):
            assert killed.poll() is None
            time.sleep(0.05)
        killed.kill()
    assert len(os.listdir(tmp_path)) == 1
    assert collect(tmp_path / "a", "--num_env_steps", "60", "--policy", "random") == 0
    assert os.listdir(tmp_path) == ["a"]
