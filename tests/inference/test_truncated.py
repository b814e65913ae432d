"""Truncated steps that wait for their values."""

import numpy as np

from oni_jax.inference.truncated import TruncatedSteps


def test_steps_are_kept_with_their_final_observations_while_there_is_room():
    finals = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    waiting = TruncatedSteps.empty(np.zeros((4, 2), np.uint8))
    steps = np.array([[group, 7, t, t % 2, 0] for group, t in [(0, 0), (2, 1), (1, 1), (2, 2), (0, 3)]])
    assert waiting.add(steps, finals).tolist() == steps[4:].tolist() and waiting.size == 4
    waiting.drop(2)
    assert waiting.steps[: waiting.size].tolist() == steps[[0, 2]].tolist()
    assert waiting.packed[: waiting.size].tolist() == finals[[0, 1], [0, 1]].tolist()
    assert len(waiting.add(steps[3:], finals)) == 0
    assert waiting.packed[: waiting.size].tolist() == finals[[0, 1, 2, 0], [0, 1, 0, 1]].tolist()
