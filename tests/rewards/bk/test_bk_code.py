"""Shaping by a code's potential: recorded values, and what it adds up to over episodes of a running world."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
import pytest

from oni_jax.envs.babyai.levels import LEVELS
from oni_jax.envs.history import past_name
from oni_jax.envs.registry import env_spec
from oni_jax.rewards.bk.sandbox import Sandbox
from oni_jax.rewards.bk.windows import Windows
from oni_jax.rewards.registry import check_rewards, make_rewards, observations_read
from oni_jax.rewards.terms import RewardSum
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.worlds import EnvConfig
from tests.golden import data_file
from tests.worlds.device.device_worlds import CONFIG, N, T, collect, make_world

KEY = np.zeros(2, np.uint32)
H, GAMMA = 2, 0.9
# The code of the recording, on lists by column, row and channel.
RECORDED = """
def compute_reward(obs, past_obs, past_actions):
    image = obs["image"]
    front = image[3][5][0]
    seen = 0
    for column in image:
        for cell in column:
            seen += cell[0] > 0
    info = {
        "bump": -0.5 * (past_actions[-1] == 2 and front == 2),
        "object": 0.3 * (front in (5, 6, 7)),
        "spin": -0.2 * (past_actions[-3] <= 1 and past_actions[-2] <= 1 and past_actions[-1] <= 1),
        "seen": 0.01 * seen,
    }
    return sum(info.values()), info
"""
CODE = """
def compute_reward(obs, past_obs, past_actions):
    value = obs["signal"][0] + 0.5 * obs["parity"]
    for i in range(2):
        value += 0.1 * (i + 1) * past_obs[i]["signal"][0] + 0.01 * (i + 1) * past_actions[i]
    return value, {}
"""


def phi(signals: list[float], actions: list[int]) -> float:
    """The code's value of the newest state, after these of an episode and the actions between."""
    now = signals[-1]
    past = ([signals[0]] * H + signals)[-1 - H : -1]
    taken = ([-1] * H + actions)[-H:]
    value = now + 0.5 * (now % 2)
    return value + sum(0.1 * (i + 1) * past[i] + 0.01 * (i + 1) * taken[i] for i in range(H))


def test_values_are_the_recorded_ones():
    assert list(LEVELS)  # whose codes the numbers are
    with np.load(data_file("bk_potentials.npz")) as recorded:
        scaled, actions, expected = (recorded[name] for name in ("windows_obs", "windows_actions", "code_scaled"))
    codes = np.rint(scaled * np.array([10, 5, 3])[:, None, None]).astype(np.uint8)
    windows = Windows({"image": np.moveaxis(codes, 2, -1)}, actions[:, :-1])
    sandbox = Sandbox(RECORDED)
    found = sandbox.call(windows)
    sandbox.close()
    assert not any(result.problem for result in found)
    np.testing.assert_allclose([result.value for result in found], expected, atol=1e-6)


def shaped(kind: str, folder, **settings) -> Config:
    """Settings of a run that a potential shapes, whose files are in a folder."""
    given = {"llm_reward_type": kind, "llm_reward_coeff": 1.0, "reward_dir": str(folder), "potential_warmup_steps": 0}
    return with_values(CONFIG, {"gamma": GAMMA, **given, **settings})


def config_of(folder, **settings) -> Config:
    (folder / "potential.py").write_text(CODE)
    return shaped("bk-code", folder, **{"potential_horizon": H, **settings})


Phi = Callable[[list[float], list[int]], float]


class Episodes:
    """Follows the episodes of a world through its batches, and what shaping pays in each."""

    def __init__(self, phi: Phi):
        self._phi = phi
        self.signals: list[list[float]] = [[] for _ in range(N)]
        self.actions: list[list[int]] = [[] for _ in range(N)]
        self.paid: list[list[float]] = [[] for _ in range(N)]
        self.ended: list[tuple[float, float, bool]] = []  # the sum paid, the expected one, and whether it terminated
        self.values: list[float] = []  # values of all states before actions

    def add(self, batch, rewards: np.ndarray) -> None:
        for t in range(T):
            for i in range(N):
                if batch.is_first[t, i]:
                    self.signals[i], self.actions[i], self.paid[i] = [], [], []
                self.signals[i].append(float(batch.observations["signal"][t, i, 0]))
                self.values.append(self._phi(self.signals[i], self.actions[i]))
                self.actions[i].append(int(batch.actions[t, i]))
                self.paid[i].append(float(rewards[t, i]))
                if batch.terminations[t, i] or batch.truncations[t, i]:
                    self._end(i, float(batch.final_observations["signal"][t, i, 0]), bool(batch.terminations[t, i]))

    def _end(self, i: int, final: float, terminated: bool) -> None:
        signals, actions, paid = self.signals[i], self.actions[i], self.paid[i]
        total = sum(GAMMA**k * x for k, x in enumerate(paid))
        last = 0.0 if terminated else GAMMA ** len(paid) * self._phi([*signals, final], actions)
        self.ended.append((total, last - self._phi(signals[:1], []), terminated))


def run(config: Config, num_batches: int, phi: Phi = phi) -> tuple[Episodes, RewardSum, list[np.ndarray]]:
    check_rewards(config)
    names = list(dict.fromkeys(["signal", *observations_read(config)]))
    world, task, _ = make_world(config, observations=names)
    rewards = make_rewards(config, env_spec(config.env, names))
    score, state = jax.jit(rewards.score), rewards.init(jax.random.key(0))
    world.start()
    episodes, paid = Episodes(phi), []
    for each in collect(world, num_batches):
        (given,), state = score(state, each.payload, rewards.prepare(each.captions), KEY)
        episodes.add(jax.device_get(each.payload), np.asarray(given))
        paid.append(np.asarray(given))
    assert rewards.metrics(state).get("potential_calls_failed", 0) == 0
    return episodes, rewards, paid


def test_shaping_adds_up_to_the_first_and_the_last_potential(tmp_path):
    """Over rollouts' edges: -phi(h_0) where an episode terminates, gamma^T phi(h_T) - phi(h_0) where it is cut off."""
    episodes, *_ = run(config_of(tmp_path), 6)
    assert {terminated for *_, terminated in episodes.ended} == {True, False} and len(episodes.ended) > 2 * N
    for found, expected, _ in episodes.ended:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_reward_is_zero_before_the_scale_is_fixed(tmp_path):
    num_steps = 2 * N * T
    scaled, rewards, paid = run(config_of(tmp_path, potential_warmup_steps=num_steps), 6)
    plain, _, unscaled = run(config_of(tmp_path), 6)
    scale = np.std(plain.values[:num_steps])
    assert not np.any(paid[0])
    for given, raw in zip(paid[1:], unscaled[1:]):
        np.testing.assert_allclose(given, raw / scale, rtol=1e-4, atol=1e-5)


def test_published_shaping_goes_on_from_rollout_to_rollout(tmp_path):
    """NumPy's account of it, over six rollouts; and it is refused where columns are not environments."""
    episodes, rewards, paid = run(config_of(tmp_path, potential_shaping="published"), 6)
    phi = np.reshape(episodes.values, (6, T, N))
    carried, total, sums = np.zeros(N), np.zeros(N), []
    count, weight = 1e-4, [1e-4 * 1.0]  # the prior: mean 0, variance 1
    for given, potentials in zip(paid, phi):
        rows = np.concatenate([carried[None], potentials])
        for row in rows:
            total = GAMMA * total + row
            sums.append(total)
        values = np.ravel(sums)
        mean = values.sum() / (len(values) + count)
        variance = (np.sum((values - mean) ** 2) + weight[0] + count * mean**2) / (len(values) + count)
        rows = rows / np.sqrt(variance)
        np.testing.assert_allclose(given, GAMMA * rows[1:] - rows[:-1], rtol=1e-3, atol=1e-4)
        carried = rows[-1]
    catch = dataclasses.replace(config_of(tmp_path, potential_shaping="published"), env=EnvConfig(root_env="Catch-v0"))
    with pytest.raises(UserError, match="Catch-v0 is none; leave it out"):
        make_rewards(catch, env_spec(catch.env, list(observations_read(catch))))
    warm = config_of(tmp_path, potential_shaping="published", potential_warmup_steps=7)
    with pytest.raises(UserError, match="--potential_warmup_steps 7: has no meaning with .* published, "):
        make_rewards(warm, env_spec(warm.env, list(observations_read(warm))))


def test_a_window_depends_on_the_past_alone(tmp_path):
    """At an episode's first step no action has been taken: the potential is that of NO_ACTION."""
    names = [past_name(H, "actions")]
    world, *_ = make_world(CONFIG, observations=["signal", *names])
    world.start()
    for each in collect(world, 3):
        batch = each.payload
        assert (np.asarray(batch.observations[names[0]])[np.asarray(batch.is_first)] == -1).all()


def test_windows_that_were_seen_are_not_called_again(tmp_path):
    config = config_of(tmp_path)
    _, rewards, _ = run(config, 6)
    metrics = rewards.metrics(rewards.init(jax.random.key(0)))
    assert 0.5 < metrics["potential_memo_fraction"] < 1
    assert metrics["potential_calls"] == pytest.approx((1 - metrics["potential_memo_fraction"]) * 6 * 2 * N * T)


@pytest.mark.parametrize(
    ("code", "settings", "problem"),
    [
        (CODE, {"reward_dir": ""}, "needs --reward_dir, the code that launch.write_potential wrote"),
        (CODE, {"reward_dir": "/nowhere"}, "/nowhere: can't be read"),
        ("import numpy as np", {}, "No module named 'numpy'"),
        ("x = np.zeros(3)", {}, "uses np, which is not there"),
        ("def compute_reward(o, p, a): return o['nothing'], {}", {}, "it fails on every window: KeyError"),
    ],
)
def test_bad_code_ends_the_run_in_one_line(tmp_path, code, settings, problem):
    config = config_of(tmp_path, **settings)
    (tmp_path / "potential.py").write_text(code)
    with pytest.raises(UserError, match=problem) as refused:
        run(config, 1)
    assert "\n" not in str(refused.value)
