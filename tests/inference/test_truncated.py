"""Truncated steps that wait for their values."""

import numpy as np

from oni_jax.inference.truncated import TruncatedStep, TruncatedSteps


def test_steps_of_a_lost_group_are_dropped_with_their_final_observations():
    finals = np.arange(10, dtype=np.uint8).reshape(5, 2)
    steps = [TruncatedStep(group, 7, t, t % 2, 0) for t, group in enumerate([0, 2, 1, 2, 0])]
    waiting = TruncatedSteps(np.zeros((4, 2), np.uint8))
    for step, final in zip(steps[:4], finals):
        assert not waiting.is_full
        waiting.add(step, final)
    assert waiting.is_full
    waiting.drop(2)
    assert waiting.steps == [steps[0], steps[2]] and waiting.packed[:2].tolist() == finals[[0, 2]].tolist()
    waiting.add(steps[4], finals[4])
    assert waiting.steps == [steps[i] for i in (0, 2, 4)] and waiting.packed[:3].tolist() == finals[[0, 2, 4]].tolist()
