"""Choice of the episodes that are recorded; their replay takes the same steps."""

import functools

import pytest

from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.evaluation.agents import RandomAgent
from oni_jax.evaluation.episodes import NUM_SLOTS, Episode, evaluation_seed
from oni_jax.evaluation.playing import play_episodes
from oni_jax.evaluation.recording import chosen_episodes, replay
from oni_jax.evaluation.results import Evaluation
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import BabyAIConfig, EnvConfig

ENV = EnvConfig(root_env="NetHackScore-v1", max_episode_steps=40)


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    spec = env_spec(ENV)
    make_env = functools.partial(make_vector_env, ENV, seed=evaluation_seed(5))
    episodes = play_episodes(make_env, spec, RandomAgent(spec.num_actions, 5), 3, 40, num_workers=0)
    return Evaluation("random policy", "", None, "random", ENV.root_env, 40, 5, 3, episodes)


def test_a_replay_is_the_episode(evaluation, tmp_path):
    for episode in evaluation.episodes:
        path = tmp_path / f"{episode.index}.ttyrec3.bz2"
        found = replay(ENV, evaluation, episode, str(path), {0, 40})
        assert found.mismatch == "" and len(found.rewards) == 40
        assert found.rewards.sum() == pytest.approx(episode.stats["return"], abs=1e-4)
        assert len(found.captions) == len(found.turns) == 41
        assert found.intrinsic.shape == (0, 40)
        assert found.terminals.keys() == {0, 40} and path.stat().st_size > 0


@pytest.mark.slow
def test_a_room_s_replay_is_the_episode_whatever_came_before_it():
    env = EnvConfig("BabyAI-Text-PickUp-RedBall-S20", 25, babyai=BabyAIConfig(size=7, num_distractors=2))
    spec = env_spec(env)
    make_env = functools.partial(make_vector_env, env, seed=evaluation_seed(5))
    episodes = play_episodes(make_env, spec, RandomAgent(spec.num_actions, 5), NUM_SLOTS + 3, 25, num_workers=0)
    played = Evaluation("random policy", "", None, "random", env.root_env, 25, 5, len(episodes), episodes)
    ends = set()
    for episode in [*episodes[:12], *episodes[NUM_SLOTS:]]:
        length = len(episode.actions)
        found = replay(env, played, episode, "", {0, length})
        assert found.mismatch == "" and len(found.rewards) == length and found.turns == [None] * (length + 1)
        assert found.terminals[0].chars.tobytes().strip().startswith(b"pick up") and length + 1 == len(found.captions)
        carries = b"You carry a red ball" in found.terminals[length].chars.tobytes()
        assert carries == (episode.stats["success"] > 0)  # it shows the end, not the next episode's start
        ends.add(carries)
    assert ends == {False, True}


def test_another_way_is_told(evaluation, tmp_path):
    episode = evaluation.episodes[0]
    path = str(tmp_path / "a.ttyrec3.bz2")
    other = episode._replace(stats={**episode.stats, "gold": 77.0})
    told = replay(ENV, evaluation, other, path, ()).mismatch
    assert told == f"the replay of episode 0 differs: gold {episode.stats['gold']:g} was 77"
    cut = episode._replace(actions=episode.actions[:-1])
    assert "did not end where" in replay(ENV, evaluation, cut, path, ()).mismatch
    longer = episode._replace(actions=episode.actions + b"\0")
    assert len(replay(ENV, evaluation, longer, path, ()).rewards) == 40


def test_a_file_that_cannot_be_written(evaluation):
    with pytest.raises(UserError, match="/nowhere/a: can't be written"):
        replay(ENV, evaluation, evaluation.episodes[0], "/nowhere/a", ())


def episodes(*returns: float) -> list[Episode]:
    return [Episode(i, {"return": value}, b"", "death") for i, value in enumerate(returns)]


@pytest.mark.parametrize(
    "returns, num, expected",
    [
        ((1, 5, 3, 2, 4), 1, {"best": [1], "worst": [0], "median": [2]}),
        ((0, 0, 9, 0, 0), 2, {"best": [2, 0], "worst": [4, 3], "median": [1]}),
        (range(9), 2, {"best": [8, 7], "worst": [0, 1], "median": [4, 5]}),
        ((3,), 2, {"best": [0]}),
        ((3, 4), 1, {"best": [1], "worst": [0]}),
    ],
)
def test_choice_of_recorded_episodes(returns, num, expected):
    found: dict[str, list[int]] = {}
    for choice in chosen_episodes(episodes(*returns), num):
        found.setdefault(choice.rank, []).append(choice.episode.index)
        assert choice.position == len(found[choice.rank])
    assert found == expected
