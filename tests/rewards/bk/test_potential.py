"""Potential shaping telescopes: over an episode only its beginning, and where it was cut off its end, are left."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from contextlib import ExitStack

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oni_jax.learner.shards import pack_shards, shard_score
from oni_jax.parallel import Replicas
from oni_jax.rewards.base import Scorer
from oni_jax.rewards.combine import Potential
from oni_jax.rewards.registry import RewardType, register_reward
from oni_jax.rewards.terms import RewardSum, Term
from oni_jax.settings.config import Config
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import ActorConfig, EnvConfig
from oni_jax.training import build
from oni_jax.training.plan import resolve
from oni_jax.types import CaptionBatch, StepCaptions, Trajectory
from oni_jax.worlds.base import Collected
from tests.rewards.test_conformance import KEY, trajectory_of
from tests.support.llm_server import llm_server
from tests.support.processes import Launched, equal_on_devices, summary
from tests.test_plugins import TRAIN, answer

GAMMA = 0.9
B, T = 4, 3  # trajectories, steps of a rollout


class Probe(Scorer):
    """phi = a number for the caption, and half of what is seen."""

    other_observations = ("x",)

    def prepare(self, captions):
        return {"worth": np.array([worth(text) for text in captions.captions], np.float32)[captions.index]}

    def raw_values(self, state, seen, features):
        return features["worth"] + 0.5 * seen.observations["x"][..., 0].astype(jnp.float32)


def worth(caption: bytes) -> float:
    return sum(caption) % 17 / 10


def phi(state: int) -> float:
    """Returns the potential of state `state`: its caption is the number in digits, its observation the number."""
    return worth(b"%d" % state) + 0.5 * state


def episodes_of(ends: list[tuple[int, bool]], seed: int) -> list[tuple[list[int], bool]]:
    """(states, terminated) of episodes of these lengths."""
    rng = np.random.default_rng(seed)
    return [(rng.integers(0, 50, length + 1).tolist(), terminated) for length, terminated in ends]


@functools.cache
def scoring(num_devices: int) -> tuple[RewardSum, Replicas, Callable]:
    rewards = RewardSum([Term("probe", Potential(Probe(), GAMMA), 1.0)])
    replicas = Replicas(jax.devices()[:num_devices])
    return rewards, replicas, jax.jit(shard_score(rewards, replicas))


def shaped(columns: list[list[tuple[list[int], bool]]], num_devices: int) -> np.ndarray:
    """F [R * T, B] of B games that play these episodes one after another, scored rollout by rollout."""
    rewards, replicas, score = scoring(num_devices)
    steps = [
        [
            (before, caused, i + 2 == len(states) and terminated, i + 2 == len(states) and not terminated)
            for states, terminated in episodes
            for i, (before, caused) in enumerate(zip(states, states[1:]))
        ]
        for episodes in columns
    ]
    num_rollouts = min(map(len, steps)) // T
    before, caused, terminated, truncated = np.array([column[: num_rollouts * T] for column in steps]).transpose(
        2, 1, 0
    )
    given = []
    for start in range(0, num_rollouts * T, T):
        rows = slice(start, start + T)
        # The row behind the last is the next rollout's first: any will do where no step leads to it.
        after = before[start + T : start + T + 1] if start + T < len(before) else caused[start + T - 1 : start + T]
        x = np.concatenate([before[rows], after])[..., None]
        finals = np.where((terminated | truncated)[rows], caused[rows], -99)[..., None]
        captions = StepCaptions(*map(captions_of, (before[rows], caused[rows])))
        captions = StepCaptions(*(c._replace(observations={"x": x[:-1]}) for c in captions))
        batch = pack_shards(Collected((), captions), (), rewards, replicas)
        trajectory = trajectory_at(x, terminated[rows], truncated[rows], finals)
        given.append(score((), trajectory, batch.features, KEY).rewards[0])
    return np.concatenate(given) if given else np.zeros((0, len(columns)))


def captions_of(states: np.ndarray) -> CaptionBatch:
    distinct, index = np.unique(states, return_inverse=True)
    return CaptionBatch([b"%d" % state for state in distinct], index.reshape(states.shape).astype(np.int32))


def trajectory_at(x, terminated, truncated, finals) -> Trajectory:
    ends = {"terminations": terminated.astype(bool), "truncations": truncated.astype(bool)}
    core = {"is_first": np.zeros((T + 1, B)), "initial_core_state": np.zeros(B)}
    return trajectory_of(observations={"x": x}, final_observations={"x": finals}, **ends, **core)._replace(
        **{name: np.zeros((T, B), np.float32) for name in ("before_counts", "caused_counts", "actions", "rewards")},  # type: ignore
        **{name: np.zeros((T, B), np.float32) for name in ("truncation_values", "behaviour_logits", "values")},  # type: ignore
        policy_lags=np.zeros((T, B), np.float32),
    )


def check_episodes(columns: list[list[tuple[list[int], bool]]], num_devices: int) -> int:
    """Checks each episode that is played to its end; returns how many there are."""
    given, checked = shaped(columns, num_devices), 0
    for column, episodes in enumerate(columns):
        start = 0
        for states, terminated in episodes:
            length = len(states) - 1
            if start + length > len(given):
                break
            total = np.sum(GAMMA ** np.arange(length) * given[start : start + length, column])
            end = 0.0 if terminated else GAMMA**length * phi(states[-1])
            np.testing.assert_allclose(total, end - phi(states[0]), rtol=1e-4, atol=1e-3)
            start, checked = start + length, checked + 1
    return checked


COLUMN = st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=4, max_size=6)


@settings(max_examples=25, deadline=None)
@given(st.lists(COLUMN, min_size=B, max_size=B), st.integers(0, 1000))
def test_the_discounted_sum_of_an_episode(columns, seed):
    check_episodes([episodes_of(ends, seed + i) for i, ends in enumerate(columns)], 1)


def two_devices() -> None:
    rng = np.random.default_rng(0)
    for seed in range(5):
        ends = [[(int(rng.integers(1, 8)), bool(rng.integers(2))) for _ in range(5)] for _ in range(B)]
        assert check_episodes([episodes_of(end, seed + i) for i, end in enumerate(ends)], 2) > B
    print("equal")


def test_potential_on_two_devices():
    equal_on_devices(2, "-c", "from tests.rewards.bk.test_potential import two_devices; two_devices()")


WEIGHTS = np.arange(50, dtype=np.float32) / 50


class Seen(Scorer):
    """phi of Catch = a number for the caption, and one for the board."""

    other_observations = ("board",)

    def prepare(self, captions):
        return {"worth": np.array([worth(text) for text in captions.captions], np.float32)[captions.index]}

    def raw_values(self, state, seen, features):
        return features["worth"] + seen.observations["board"] @ WEIGHTS


register_reward(
    "seen",
    RewardType(lambda context: Potential(Seen(), context.config.learner.gamma), observations=lambda config: ("board",)),
)
NUM_GAMES, ROLLOUT, MAX_STEPS = 4, 5, 6
CATCH = Config(
    env=EnvConfig(root_env="Catch-v0", max_episode_steps=MAX_STEPS),
    actors=ActorConfig(num_workers=1, num_envs_per_worker=NUM_GAMES, worker_num_splits=1, actor_pool="serial"),
    network=NetworkConfig(encoder_custom="mlp_encoder", hidden_size=8),
    learner=LearnerConfig(batch_size=NUM_GAMES * ROLLOUT, rollout=ROLLOUT, recurrence=ROLLOUT, gamma=GAMMA),
    reward=RewardConfig(llm_reward_type="seen", llm_reward_coeff=1.0),
    run=RunConfig(save_every_sec=0),
)


def play(config: Config, folder: pathlib.Path, num_batches: int, saved: dict) -> tuple[list, dict]:
    """(trajectory, F) of each batch, and the world as it was left."""
    with ExitStack() as stack:
        training = build.build_training(resolve(config), str(folder), stack)
        world, rewards = training._world, training.learner.reward
        assert not saved or world.restore(saved)
        world.start()
        found = []
        for _ in range(num_batches):
            collected = world.next(0, 30.0)
            assert collected
            world.begin_update()
            trajectory = jax.jit(world.unpack)(collected.payload, np.int32(0))
            output = rewards.score((), trajectory, rewards.prepare(collected.captions), KEY)
            found.append((jax.device_get(trajectory), np.asarray(output.rewards[0])))
        return found, dict(world.save())


def of_board(board: np.ndarray) -> float:
    """phi, by the words that Catch has for what is seen."""
    rows = board.reshape(10, 5)
    paddle, balls = int(rows[9].argmax()), np.argwhere(rows[:9])
    if len(balls) == 0:
        landed = rows[9].nonzero()[0]
        return worth(b"You catch the ball." if len(landed) == 1 else b"You miss the ball.") + float(board @ WEIGHTS)
    side = np.sign(balls[0][1] - paddle)
    words = {0: b"The paddle is below the ball.", 1: b"The ball is to the right.", -1: b"The ball is to the left."}
    return worth(words[int(side)]) + float(board @ WEIGHTS)


def after(board: np.ndarray, action: int) -> np.ndarray:
    """The board that Catch's rules lead to."""
    rows = board.reshape(10, 5)
    (row, column), paddle = np.argwhere(rows[:9])[0], int(rows[9].argmax())
    new = np.zeros((10, 5), np.float32)
    new[row + 1, column] = 1
    new[9, np.clip(paddle + action - 1, 0, 4)] = 1
    return new.ravel()


def test_potential_in_a_world_with_truncations_and_a_resume(tmp_path):
    """An episode that was cut off leaves the potential of an observation that no rollout holds."""
    checked = {"terminated": 0, "truncated": 0}
    for max_steps in (MAX_STEPS, 100):  # all are cut off; none is
        config = dataclasses.replace(CATCH, env=dataclasses.replace(CATCH.env, max_episode_steps=max_steps))
        first, saved = play(config, tmp_path / f"{max_steps}", 4, {})
        second, _ = play(config, tmp_path / f"{max_steps} resumed", 4, saved)
        batches = [*first, *second]
        given = np.concatenate([paid for _, paid in batches])
        boards = np.concatenate([trajectory.observations["board"][:-1] for trajectory, _ in batches])
        actions, terminated, truncated = (
            np.concatenate([getattr(trajectory, name) for trajectory, _ in batches])
            for name in ("actions", "terminations", "truncations")
        )
        for game in range(NUM_GAMES):
            start = 0
            for end in np.flatnonzero(terminated[:, game] | truncated[:, game]):
                length = end + 1 - start
                total = np.sum(GAMMA ** np.arange(length) * given[start : end + 1, game])
                final = GAMMA**length * of_board(after(boards[end, game], actions[end, game]))
                left = 0.0 if terminated[end, game] else final
                np.testing.assert_allclose(total, left - of_board(boards[start, game]), rtol=1e-4, atol=1e-4)
                checked["terminated" if terminated[end, game] else "truncated"] += 1
                start = end + 1
    assert min(checked.values()) >= 3 * NUM_GAMES


@pytest.mark.slow
def test_a_plugin_s_potential_adds_up_with_labels(tmp_path):
    types = (
        "--plugin=tests.support.potential_plugin",
        "--llm_reward_type=online_cls,nearness",
        "--llm_reward_coeff=0.4,1",
    )
    with llm_server(answer) as (address, _):
        flags = (*TRAIN, *types, f"--train_dir={tmp_path}", "--experiment=run", f"--llm_server_addr={address}")
        run = Launched("launch.train", *flags)
        output = run.finish()
    assert run.process.returncode == 0, output
    assert summary(tmp_path / "run")["labels_held"] == 7 and summary(tmp_path / "run")["mean_return"] > 0.9
    assert "loss/intrinsic_reward_mean/nearness" in (tmp_path / "run" / "metrics.jsonl").read_text()
