"""Recorded episodes are those of the environment, and files of them are checked."""

from contextlib import suppress

import numpy as np
import pytest

from launch import collect_segments
from oni_jax.envs.base import make_step_output
from oni_jax.envs.registry import make_vector_env
from oni_jax.offline.segment_episodes import Segment, read_episodes, write_episodes
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from tests.evaluation.runs import write_run
from tests.support import signals_plugin


def episode(length: int, seed: int) -> Segment:
    rng = np.random.default_rng(seed)
    states = {"image": rng.integers(0, 9, (length + 1, 2, 2), np.uint8), "place": rng.normal(size=length + 1)}
    captions = [b"You see %d." % i for i in rng.integers(0, 3, length + 1)]
    return Segment(states, captions, rng.integers(0, 5, length), rng.normal(size=length).astype(np.float32), seed == 1)


def test_files_hold_what_was_written(tmp_path):
    episodes = [episode(length, seed) for seed, length in enumerate((3, 1, 7))]
    write_episodes(str(tmp_path / "b.npz"), episodes)
    write_episodes(str(tmp_path / "a.npz"), episodes[::-1])
    for found, expected in zip(read_episodes(str(tmp_path)), [*episodes[::-1], *episodes], strict=True):
        assert list(found.captions) == list(expected.captions) and found.terminated == expected.terminated
        np.testing.assert_array_equal(found.actions, expected.actions)
        np.testing.assert_array_equal(found.rewards, expected.rewards)
        for name, x in expected.observations.items():
            np.testing.assert_array_equal(found.observations[name], x)
            assert found.observations[name].dtype == x.dtype
    part = episodes[2].part(2, 3)
    np.testing.assert_array_equal(part.observations["image"], episodes[2].observations["image"][2:6])
    assert part.captions == episodes[2].captions[2:6] and part.length == 3 and not part.terminated
    assert episodes[1].part(0, 1).terminated


@pytest.mark.parametrize("change", ["lengths", "actions", "captions", "caption_index", "observations/image"])
def test_a_damaged_file_is_refused(tmp_path, change):
    path = tmp_path / "a.npz"
    write_episodes(str(path), [episode(4, 0)])
    with np.load(path) as file:
        arrays = dict(file)
    for damaged in ({change: arrays[change][:-1]}, {change: None}):
        kept = {name: x for name, x in {**arrays, **damaged}.items() if x is not None}
        np.savez(path, **kept)
        if (change, change in kept) in [("captions", True), ("observations/image", False)]:
            continue  # a letter less; an observation less
        with pytest.raises(UserError, match="is no file of episodes"):
            read_episodes(str(path))


def test_no_file_and_no_episodes(tmp_path):
    with pytest.raises(UserError, match="holds no episodes"):
        read_episodes(str(tmp_path))
    path = tmp_path / "a.npz"
    write_episodes(str(path), [episode(4, 0)])
    whole = path.read_bytes()
    for damaged in (b"", b"PK no", whole[:-40], *(whole[:i] + b"\xff" + whole[i + 1 :] for i in range(40, 200, 8))):
        path.write_bytes(damaged)
        with suppress(UserError):  # a few are whole to all that is read
            read_episodes(str(tmp_path))
    for damaged in (b"", b"PK no", whole[:-40]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="is no file of episodes"):
            read_episodes(str(tmp_path))


def test_random_play_is_recorded(tmp_path, capsys):
    words = ["--policy", "random", "--root_env", signals_plugin.NAME, "--max_episode_steps", "6", "--episodes", "9"]
    words += ["--num_envs", "4", "--plugin", "tests.support.signals_plugin", "--directory", str(tmp_path / "s")]
    assert collect_segments.main(words) == 0
    assert "9 episodes" in capsys.readouterr().out
    episodes = read_episodes(str(tmp_path / "s"))
    assert len(episodes) == 9 and {segment.terminated for segment in episodes} == {True, False}
    for segment in episodes:
        signals = segment.observations["signal"][:, 0]
        assert segment.captions == [b"The signal is %d." % signal for signal in signals]
        np.testing.assert_array_equal(segment.rewards, segment.actions == signals[:-1] % 2)
        assert segment.terminated == (signals[-1] == 0) and (signals[:-1] > 0).all()
        assert segment.length <= 6 and (segment.terminated or segment.length == 6)
    # The actions lead through the same states again.
    env = make_vector_env(EnvConfig(root_env=signals_plugin.NAME, max_episode_steps=6), 4, _seed(), 0, ["signal"])
    out = make_step_output(env.spec, 4)
    env.reset(out)
    for i in range(4):
        assert out.records["signal"][i] == episodes[i].observations["signal"][0]
    assert collect_segments.main(words) == 2
    assert "is there already" in capsys.readouterr().err
    assert collect_segments.main(words[:-2]) == 2
    assert "--directory: is required" in capsys.readouterr().err


def _seed() -> int:
    return int(np.random.SeedSequence([1, 0]).generate_state(1)[0])


def test_a_policy_that_reads_captions(tmp_path):
    """The environment does not show captions itself."""
    settings = {"root_env": "Catch-v0", "encoder_custom": "generic_encoder", "hidden_size": 8, "language_state": True}
    write_run(tmp_path / "run", {**settings, "llm_reward_type": "none"})
    words = f"--train_dir={tmp_path} --experiment=run --episodes=2 --directory={tmp_path / 'made'} --root_env=Catch-v0"
    assert collect_segments.main(words.split()) == 0
    assert {*read_episodes(str(tmp_path / "made"))[0].observations} == {"board", "message"}
