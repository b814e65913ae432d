"""Captions of segments, and draws of segments, are the recorded ones."""

import json

import numpy as np
import pytest

from oni_jax.envs.babyai.levels import ACTION_WORDS
from oni_jax.offline.segment_episodes import Segment, SegmentSampler
from oni_jax.rewards.bk.segment_captions import action_name, history_caption, segment_caption
from oni_jax.settings.fields import UserError
from tests.golden import data_file

CAPTIONS = json.loads(data_file("bk_segment_captions.json").read_text())
SAMPLING = json.loads(data_file("bk_segment_sampling.json").read_text())


@pytest.mark.parametrize("case", [case for case in CAPTIONS if case["env"] == "minigrid"])
def test_captions_of_rooms(case):
    actions = [action_name(ACTION_WORDS, action) for action in case["actions"]]
    assert segment_caption(case["descriptions"], actions) == case["caption"]
    if case["caption_for_code"] is not None:
        assert history_caption(case["descriptions"], actions) == case["caption_for_code"]


def test_an_action_without_words():
    assert action_name((), 3) == "action 3"


def episode(length: int) -> Segment:
    states = np.arange(length + 1)
    return Segment({"x": states}, [b""] * (length + 1), states[:-1], np.zeros(length, np.float32))


@pytest.mark.parametrize("length", [3, 5])
def test_draws_are_the_recorded_ones(length):
    episodes = [episode(n) for n in SAMPLING["episode_lengths"]]
    recorded = SAMPLING["by_sequence_length_episode_start_numobs_numactions_numtimesteps"][str(length)]
    sampler = SegmentSampler(episodes, length, SAMPLING["numpy_seed"])
    assert [sampler.draw_index() for _ in recorded] == [(index, start) for index, start, *_ in recorded]
    sampler = SegmentSampler(episodes, length, SAMPLING["numpy_seed"])
    for _, start, num_states, num_actions, _ in recorded:
        segment = sampler.draw()
        assert segment.observations["x"].tolist() == [*range(start, start + num_states)]
        assert segment.actions.tolist() == [*range(start, start + num_actions)] and num_actions == segment.length


def test_none_is_long_enough():
    with pytest.raises(UserError, match="none of the 2 episodes has 4 steps"):
        SegmentSampler([episode(3), episode(1)], 4, 0)
