"""The sides of `worlds` play the same game, and the peer computes its advantages right."""

import math
import statistics

import numpy as np
import pytest

from benchmarks.device_steps import DeviceSteps
from benchmarks.peers import crafter_worlds, minigrid_levels
from oni_jax.envs.babyai.env import BabyAI
from oni_jax.envs.babyai.levels import LEVELS, sized

SMALL = sized(LEVELS["BabyAI-Text-GoToLocal-RedBall-S20"], 6, 2)  # random actions often succeed there


@pytest.mark.slow
def test_both_sides_play_the_same_game():
    """Mean returns and success of random actions, and lengths."""
    played = minigrid_levels.play(SMALL, 0, 200)
    for _ in range(2):
        next(played)
    with pytest.raises(StopIteration) as stopped:
        next(played)
    theirs = stopped.value.value
    ours = DeviceSteps(BabyAI(SMALL), 512, 12).first_stats(77)[:, 0]
    assert ours.shape == (512,) and not np.isnan(ours).any() and 0.1 < (ours > 0).mean() < 0.9
    for read in (lambda x: x, lambda x: x > 0):
        one, other = read(ours.astype(float)) * 1.0, read(np.array(theirs.returns)) * 1.0
        error = math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))
        assert abs(one.mean() - other.mean()) < 4 * error
    assert len(theirs.returns) == 200 and 200 <= theirs.num_steps <= 200 * SMALL.max_steps


@pytest.mark.slow
def test_steps_go_on_from_call_to_call():
    steps = DeviceSteps(BabyAI(SMALL), 4, 3)
    (shown, first), (_, second) = steps.run(), steps.run()
    assert shown.observations["image"].shape == (3, 4, 7, 7, 3) and not np.array_equal(first.stats, second.stats)
    lengths = np.asarray(second.stats)[-1, :, 1]
    assert ((lengths == 6) | np.asarray(first.ended).any(0) | np.asarray(second.ended).any(0)).all()


def test_the_peer_s_advantages_are_gae_s():
    torch = pytest.importorskip("torch")
    from benchmarks.peers import torch_ppo

    rng = np.random.default_rng(0)
    values, rewards = rng.normal(size=(2, 5, 3)).astype(np.float32)
    ended, last = rng.random((5, 3)) < 0.3, rng.normal(size=3).astype(np.float32)
    nothing = np.zeros((5, 3), np.float32)
    batch = torch_ppo.Batch(*map(torch.from_numpy, (nothing, nothing, nothing, values, rewards, ended)))
    actual = torch_ppo.generalised_advantages(batch, torch.from_numpy(last)).numpy()
    trace, expected, after = 0.0, [], last
    for t in reversed(range(5)):
        goes_on = 1 - ended[t]
        trace = rewards[t] + 0.99 * goes_on * after - values[t] + 0.99 * 0.95 * goes_on * trace
        expected.append(trace)
        after = values[t]
    np.testing.assert_allclose(actual, expected[::-1], rtol=1e-5)


def test_the_peer_reads_crafter_s_cells_and_inventory():
    env = crafter_worlds.SymbolsEnv()
    shown, _ = env.reset(seed=3)
    cells, items = shown[: -crafter_worlds.NUM_ITEMS].reshape(crafter_worlds.VIEW), shown[-crafter_worlds.NUM_ITEMS :]
    assert cells[4, 3] == cells.max() and (cells == cells.max()).sum() == 1  # the player, in the middle
    assert items[:4].tolist() == [9, 9, 9, 9] and not items[4:].any()
    again, _ = env.reset(seed=3)
    assert np.array_equal(shown, again) and env.observation_space.contains(env.step(0)[0])
