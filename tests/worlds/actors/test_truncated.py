"""Truncated steps that wait for their values."""

import numpy as np

from oni_jax.worlds.actors.truncated import TruncatedStep, TruncatedSteps


def test_steps_of_a_lost_group_are_dropped_with_their_final_observations():
    finals = np.arange(10, dtype=np.uint8).reshape(5, 2)
    places = [(0, 0), (2, 1), (1, 0), (2, 0), (0, 1)]
    steps = [TruncatedStep(7, t, 0) for t in range(5)]
    waiting = TruncatedSteps(np.zeros((4, 2), np.uint8))

    def holds(kept: list[int]) -> bool:
        rows = waiting.packed[: len(kept)].tolist()
        return [*waiting.steps.items()] == [(places[i], steps[i]) for i in kept] and rows == finals[kept].tolist()

    for place, step, final in zip(places[:4], steps, finals):
        assert not waiting.is_full
        waiting.add(*place, step, final)
    assert waiting.is_full and holds([0, 1, 2, 3])
    waiting.drop(2)
    assert holds([0, 2])
    waiting.add(*places[4], steps[4], finals[4])
    assert holds([0, 2, 4])
