"""Recordings of an evaluation: files that show what happened."""

import pathlib
import shutil
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from launch import evaluate
from oni_jax.envs.registry import env_spec
from oni_jax.evaluation import program
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.evaluation.episodes import Episode
from oni_jax.evaluation.intrinsic import beside_states
from oni_jax.evaluation.players import chosen_players, load_player, with_scoring
from oni_jax.evaluation.results import Evaluation
from oni_jax.evaluation.step_rewards import StepScorer
from oni_jax.host.runtime import StopRequest
from oni_jax.rewards.base import Reward
from oni_jax.rewards.registry import observations_read
from oni_jax.rewards.terms import RewardSum, Term
from oni_jax.runs.rewards import RunRewards
from oni_jax.runs.run import Run
from oni_jax.settings.worlds import EnvConfig
from oni_jax.show import panel, recordings
from oni_jax.show.recordings import reward_notes, shown_steps
from oni_jax.types import RewardOutput
from tests.evaluation.runs import NETHACK, write_run
from tests.evaluation.steps import scored
from tests.show.games import screens
from tests.show.runs import write_labelled_run

LABELS = {b"You see here a rock.": 0, b"A message": 1, b"Another": 1}


@pytest.fixture(scope="module")
def train_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_labelled_run(folder / "labelled", LABELS)
    write_labelled_run(folder / "later", LABELS, intrinsic_reward_at="next_obs", beta_count_exponent=1.0)
    return folder


def scorer(run: RunRewards) -> StepScorer:
    return StepScorer(run, range(len(run.rewards.terms)), env_spec(run.config.env, observations_read(run.config)))


def beside(step_scorer: StepScorer, *given: Any) -> list[list[float]]:
    return beside_states(scored(step_scorer, *given), step_scorer.pays_before).tolist()


def test_rewards_are_those_of_the_labels(train_dir):
    rewards = scorer(Run(str(train_dir / "labelled")).rewards())
    messages = [b"", b"A message", b"You see here a rock.", b"A message", b"", b"A message", b"Another"]
    assert scored(rewards, messages, counts=[1] * 7).tolist() == [[0, 1, 0, 1, 0, 1]]
    np.testing.assert_allclose(scored(rewards, messages, num_at_once=4), [[0, 1, 0, 1 / 8, 0, 1 / 27]], rtol=1e-6)
    later = scorer(Run(str(train_dir / "later")).rewards())
    np.testing.assert_allclose(scored(later, messages, num_at_once=4), [[1, 0, 1 / 2, 0, 1 / 3, 1]], rtol=1e-6)
    assert beside(later, messages[:3]) == [[0, 1, 0]]  # the first was before all steps
    assert beside(rewards, messages[:2]) == [[0, 0]]  # and the last is behind them


class StrengthReward(Reward):
    """Rewards the strength seen after the action."""

    other_observations = ("vector_obs",)

    def score(self, state, trajectory, features, key):
        return RewardOutput(trajectory.observations["vector_obs"][1:, :, 0], state)


SEEN = {"vector_obs": np.pad(np.arange(0, 8, 2, dtype=np.float32)[:, None], ((0, 0), (0, 26)))}


@pytest.mark.parametrize("num_at_once", [2, 3, 4, 8])
def test_every_step_sees_the_observations_of_its_environment(train_dir, num_at_once):
    known = Run(str(train_dir / "labelled")).rewards()
    rewards = scorer(known._replace(rewards=RewardSum([Term("strength", StrengthReward(), 1.0)]), state=()))
    assert scored(rewards, [b""] * 4, SEEN, num_at_once=num_at_once).tolist() == [[2, 4, 6]]
    assert beside(rewards, [b""] * 4, SEEN) == [[0, 2, 4, 6]]


def test_a_reward_stands_beside_what_it_is_paid_for(train_dir):
    """Some are of the caption before the step, others of what the step led to."""
    known = Run(str(train_dir / "labelled")).rewards()
    terms = [*known.rewards.terms, Term("strength", StrengthReward(), 1.0)]
    rewards = scorer(known._replace(rewards=RewardSum(terms), state=(known.state, ())))
    messages = [b"A message", b"You see here a rock.", b"", b""]
    assert scored(rewards, messages, SEEN).tolist() == [[1, 0, 0], [2, 4, 6]]
    assert beside(rewards, messages, SEEN) == [[1, 0, 0, 0], [0, 2, 4, 6]]


def test_a_run_is_recorded(train_dir, capfd, monkeypatch):
    play_episodes = program.play_episodes

    def play(*arguments):
        shutil.rmtree(train_dir / "labelled" / "checkpoints")  # as training does with old ones
        return play_episodes(*arguments)

    monkeypatch.setattr(program, "play_episodes", play)
    words = ["--train_dir", str(train_dir), "--experiment", "labelled", "--num_workers", "1", "--episodes", "3"]
    assert evaluate.main([*words, "--record", "1"]) == 0
    out = capfd.readouterr().out
    assert "the replay of" not in out and "without intrinsic" not in out
    folder = train_dir / "labelled" / "recordings"
    names = sorted(path.name for path in folder.iterdir())
    assert [name.partition("-")[0] for name in names] == ["best1", "best1", "median1", "median1", "worst1", "worst1"]
    assert all("-labelled-NetHackScore-v1-sample-640-seed1-episode" in name for name in names)
    assert all(str(folder / name) in out for name in names)
    for path in folder.glob("*.gif"):
        image = Image.open(path)
        assert image.size[0] > 1000 and 2 <= len(list(ImageSequence.all_frames(image))) <= 41
    for path in folder.glob("*.ttyrec3.bz2"):
        shown = screens(path)
        assert len(shown) >= 40 and b"Agent the Candidate" in shown[-1].chars.tobytes()


def test_long_episodes_are_thinned_out():
    assert shown_steps(3) == [0, 1, 2, 3]
    for num_steps in (599, 600, 5000, 100_000):
        shown = shown_steps(num_steps)
        assert len(shown) <= 600 and shown[0] == 0 and shown[-1] == num_steps
        assert len(set(np.diff(shown[:-1]).tolist())) == 1


@pytest.mark.parametrize(
    "words, message",
    [
        (("--experiment", "nobody"), "nobody; choose a folder with --recordings_dir"),
        (("--experiment", "labelled", "--record_format", "mp4"), "needs the package imageio-ffmpeg"),
        (("--recordings_dir", "/proc/films"), "/proc/films: can't be written"),
    ],
)
def test_impossible_recording_is_refused_before_play(train_dir, capfd, monkeypatch, words, message):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    base = ["--train_dir", str(train_dir), "--policy", "random", "--root_env", "NetHackScore-v1", "--record", "1"]
    assert evaluate.main([*base, *words]) == 2
    out, err = capfd.readouterr()
    assert out == "" and message in err and err.count("\n") == 1


def test_chance_is_recorded_where_it_is_told_to(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(recordings, "MAX_PICTURES", 6)
    texts: list[str] = []

    def beside(screen, lines):
        texts.extend(line.text for line in lines)
        return panel.beside(screen, lines)

    monkeypatch.setattr(recordings, "beside", beside)
    folder = tmp_path / "films"
    words = ["--policy", "random", "--root_env", "NetHackScore-v1", "--episodes", "1", "--max_episode_steps", "20"]
    assert evaluate.main([*words, "--num_workers", "1", "--record", "2", "--recordings_dir", str(folder)]) == 0
    (path,) = pathlib.Path(folder).glob("*.gif")
    assert path.name == "best1-NetHackScore-v1-random-seed1-episode0.gif"
    assert len(list(ImageSequence.all_frames(Image.open(path)))) <= 6
    assert "no intrinsic reward: the actions are random" in texts
    assert not [text for text in texts if text.startswith(("intrinsic ", "total "))]


@pytest.mark.slow
def test_a_room_is_recorded(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(recordings, "MAX_PICTURES", 6)
    seen: list[tuple] = []

    def beside(screen, lines):
        seen.append((screen, [line.text for line in lines]))
        return panel.beside(screen, lines)

    monkeypatch.setattr(recordings, "beside", beside)
    words = ["--policy", "random", "--root_env", "BabyAI-Text-PickUp-RedBall-S20", "--episodes", "1", "--record", "1"]
    words += ["--max_episode_steps", "20", "--num_workers", "1", "--recordings_dir", str(tmp_path)]
    assert evaluate.main(words) == 0
    assert [path.suffix for path in tmp_path.iterdir()] == [".gif"] and "success: 0.0 %" in capfd.readouterr().out
    first, last = ("\n".join(bytes(row).decode() for row in screen.chars) for screen, _ in (seen[0], seen[-1]))
    assert "pick up" in first and first.count("#") >= 60 and first != last
    assert any(text.startswith("action") and text.endswith(")") for text in seen[-1][1])


def test_a_run_without_an_intrinsic_reward_says_so(tmp_path, capfd):
    write_run(tmp_path / "plain", {**NETHACK, "llm_reward_type": "none"})
    player = load_player(EvaluationConfig(str(tmp_path)), "plain", None, EnvConfig("NetHackScore-v1"))
    (note,) = reward_notes(with_scoring(player))
    assert note == "no intrinsic reward: the run has only the environment's"
    assert capfd.readouterr().out == ""


def test_a_stop_request_ends_it(train_dir):
    stop = StopRequest()
    stop.reason = "SIGINT"
    config = EvaluationConfig(str(train_dir), policy="random")
    (player,) = chosen_players(config, EnvConfig(root_env="NetHackScore-v1"), None, "latest")
    recorder = recordings.Recorder(EvaluationConfig(str(train_dir), "labelled", record=1), stop)
    episode = Episode(0, {"return": 0.0}, b"", "death")
    evaluation = Evaluation("x", "labelled", 640, "sample", "NetHackScore-v1", 40, 1, 1, [episode])
    assert recorder.record(player, evaluation) == []
