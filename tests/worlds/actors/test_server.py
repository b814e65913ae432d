"""The inference server writes the policy's outputs, in trajectories that join without a seam."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.base import StepOutput
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.host.runtime import BackgroundThread
from oni_jax.networks.policy import PolicyOutput, init_params, make_policy
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import PyTree, Trajectory
from oni_jax.worlds.actors.batches import ActorPayload, BatchAssembler, make_unpack_fn
from oni_jax.worlds.actors.exchange import TrajectoryExchange
from oni_jax.worlds.actors.group import Group
from oni_jax.worlds.actors.parameters import ParameterStore
from oni_jax.worlds.actors.policy_step import bucket_sizes, join_tables
from oni_jax.worlds.actors.pool import Replies
from oni_jax.worlds.actors.ring import RingShape, TrajectoryRing
from oni_jax.worlds.actors.serial_pool import SerialPool
from oni_jax.worlds.actors.server import InferenceServer

NUM_GROUPS, NUM_ENVS, ROLLOUT = 3, 2, 5
MANY = 1000  # more trajectories than a test has


class Played:
    """Consecutive batches, each of one trajectory of every game, and the policy that played them."""

    def __init__(self, env: EnvConfig, num_batches: int, make_pool=SerialPool, devices=(None,)):
        spec = env_spec(env)
        self.policy = make_policy(NetworkConfig(encoder_custom="mlp_encoder", hidden_size=8), spec)
        self.params = init_params(self.policy, spec, jax.random.key(0))
        ring = TrajectoryRing(spec, RingShape(NUM_GROUPS, NUM_ENVS, NUM_GROUPS * 2 + 1, ROLLOUT))
        self.exchange = exchange = TrajectoryExchange(ring, MANY)
        pool = make_pool(functools.partial(make_vector_env, env, seed=5), ring)
        pool.start()
        parameters = ParameterStore(3, self.params, devices)
        self.server = server = InferenceServer(self.policy, exchange, pool, parameters, jax.random.key(1))
        server.warm_up()
        learner = LearnerConfig(batch_size=NUM_GROUPS * NUM_ENVS * ROLLOUT, rollout=ROLLOUT, max_policy_lag=1000)
        assembler = BatchAssembler(exchange, learner, lambda rows, at: join_tables(server.initial_rows(rows), at))
        acting = BackgroundThread("inference", server.run)
        acting.start()
        self.host = []
        while len(self.host) < num_batches:
            acting.check()
            if (batch := assembler.next(version=7, timeout_secs=1.0)) is not None:
                self.host.append(batch)
        server.stop()
        acting.join()
        acting.check()
        unpack = make_unpack_fn(spec, ring.records.dtype, exchange.policy_records.dtype)
        self.trajectories = [jax.device_get(unpack(batch.payload, np.int32(7))) for batch in self.host]
        self.captions = [batch.captions for batch in self.host]
        self.records = [batch.payload.records.view(ring.records.dtype)[..., 0] for batch in self.host]


def versions(exchange: TrajectoryExchange, payload: ActorPayload) -> np.ndarray:
    """[T, B] of the parameters that acted."""
    return payload.policy_records.view(exchange.policy_records.dtype)[..., 0]["version"]


class LossyPool(SerialPool):
    """Loses a group's games now and then: while it steps, while its actions are in flight, while it is paused."""

    PERIOD = 7  # odd: waits for steps and waits for actions take turns

    def start(self) -> None:
        super().start()
        self.num_lost = 0
        self._num_waits = 0

    def wait(self, timeout_secs: float) -> Replies:
        answers = super().wait(timeout_secs)
        self._num_waits += 1
        if self._num_waits % self.PERIOD:
            return answers
        group = self._num_waits // self.PERIOD % NUM_GROUPS
        self.num_lost += 1
        self.groups[group] = Group(self._make_env, self._ring, group, restarts=self.num_lost)
        done = [other for other in answers.done if other != group or self.num_lost % 2]
        return answers._replace(done=done, lost=[group], failures=["lost"])


@pytest.fixture(scope="module")
def catch() -> Played:
    return Played(EnvConfig(root_env="Catch-v0", max_episode_steps=7), num_batches=6)


def unroll(played: Played, trajectory: Trajectory) -> PyTree:
    """The core state after it; the policy says again what it said while acting."""
    steps = {name: value[:-1] for name, value in trajectory.observations.items()}
    inputs = steps, trajectory.initial_core_state, trajectory.is_first[:-1]
    output, state = played.policy.apply(played.params, *inputs)
    np.testing.assert_allclose(output.logits, trajectory.behaviour_logits, atol=1e-5)
    np.testing.assert_allclose(output.values, trajectory.values, atol=1e-5)
    return state


def check_actions(trajectory: Trajectory) -> None:
    """In Catch the paddle's column tells the action."""
    boards = trajectory.observations["board"].reshape(ROLLOUT + 1, -1, 10, 5)
    paddles = boards[:, :, -1].argmax(axis=-1)
    going_on = ~trajectory.is_first[1:]
    expected = np.clip(paddles[:-1] + trajectory.actions - 1, 0, 4)
    np.testing.assert_array_equal(paddles[1:][going_on], expected[going_on])


def test_trajectories_hold_only_what_was_played_when_games_are_lost():
    played = Played(EnvConfig(root_env="Catch-v0", max_episode_steps=7), num_batches=12, make_pool=LossyPool)
    assert len(played.exchange.failures) >= 12
    for records, trajectory in zip(played.records, played.trajectories):
        after_steps = records[1:]  # an episode that begins there shows that the last one's end was seen
        assert np.array_equal(after_steps["is_first"], after_steps["terminated"] | after_steps["truncated"])
        unroll(played, trajectory)
        check_actions(trajectory)
        np.testing.assert_array_equal(trajectory.truncation_values != 0, trajectory.truncations)


def test_buckets_hold_every_number_of_groups():
    assert bucket_sizes(1) == [1] and bucket_sizes(4) == [1, 2, 4] and bucket_sizes(6) == [1, 2, 4, 6]


def test_trajectories_join(catch):
    for before, after in zip(catch.records, catch.records[1:], strict=False):
        np.testing.assert_array_equal(before[-1], after[0])


def test_unrolling_a_trajectory_gives_what_was_said_while_acting(catch):
    for trajectory, following in zip(catch.trajectories, catch.trajectories[1:], strict=False):
        state = unroll(catch, trajectory)
        jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-5), state, following.initial_core_state)


def test_the_games_took_the_actions_recorded(catch):
    for trajectory in catch.trajectories:
        check_actions(trajectory)
    actions = np.concatenate([trajectory.actions for trajectory in catch.trajectories])
    assert set(actions.ravel()) == {0, 1, 2}


def test_a_step_cut_off_bootstraps_from_the_final_observation(catch):
    """With 7 steps an episode of Catch never lands: every end is a truncation."""
    truncations = np.concatenate([trajectory.truncations for trajectory in catch.trajectories])
    values = np.concatenate([trajectory.truncation_values for trajectory in catch.trajectories])
    assert truncations.sum() >= NUM_GROUPS * NUM_ENVS * 3
    np.testing.assert_array_equal(values != 0, truncations)
    assert not np.concatenate([trajectory.terminations for trajectory in catch.trajectories]).any()


def test_lag_is_the_difference_of_versions(catch):
    assert all((trajectory.policy_lags == 4).all() for trajectory in catch.trajectories)


def test_captions_are_the_messages_shown(catch):
    for (captions, _), trajectory in zip(catch.captions, catch.trajectories, strict=True):
        shown = trajectory.observations["message"][:-1]
        for t, b in np.ndindex(captions.index.shape):
            text = shown[t, b].tobytes().rstrip(b"\0")
            assert captions.captions[captions.index[t, b]] == text
        assert len(set(captions.captions)) == len(captions.captions)


def test_the_caused_caption_is_that_of_the_final_observation():
    played = Played(EnvConfig(root_env="Catch-v0"), num_batches=4)
    landed = {b"You catch the ball.", b"You miss the ball."}
    for (_, captions), trajectory in zip(played.captions, played.trajectories, strict=True):
        texts = np.array(captions.captions)[captions.index]
        np.testing.assert_array_equal(np.isin(texts, list(landed)), trajectory.terminations)
    assert any(trajectory.terminations.any() for trajectory in played.trajectories)


class Paced:
    """A server whose games run ahead of learning by two groups' trajectories, without threads."""

    def __init__(self, max_episode_steps: int = 100, make_env: Callable | None = None, policy: Any = None):
        env = EnvConfig(root_env="Catch-v0", max_episode_steps=max_episode_steps)
        self.ring = ring = TrajectoryRing(env_spec(env), RingShape(NUM_GROUPS, NUM_ENVS, NUM_GROUPS * 3, ROLLOUT))
        self.exchange = exchange = TrajectoryExchange(ring, max_waiting=2 * NUM_ENVS)
        network = make_policy(NetworkConfig(encoder_custom="mlp_encoder", hidden_size=8), ring.spec)
        self.params = init_params(network, ring.spec, jax.random.key(0))
        policy = policy or network
        pool = SerialPool(make_env or functools.partial(make_vector_env, env, seed=5), ring)
        pool.start()
        self.parameters = ParameterStore(3, self.params)
        self.server = InferenceServer(policy, exchange, pool, self.parameters, jax.random.key(1))
        learner = LearnerConfig(batch_size=NUM_ENVS * ROLLOUT, rollout=ROLLOUT)
        self.assembler = BatchAssembler(exchange, learner, lambda rows, devices: self.server.initial_rows(rows)[0])

    def advance(self, times: int) -> int:
        """Steps acted."""
        before = self.server.num_acted_steps
        for _ in range(2 * times):  # actions, then steps
            self.server.advance()
            self.server.settle()
        return self.server.num_acted_steps - before


def test_a_trajectory_is_handed_over_with_its_values_only():
    """Every step of these games is cut off, and the learner looks after each one."""
    paced = Paced(max_episode_steps=1)
    for _ in range(8 * ROLLOUT):
        paced.server.advance()
        while (slot := paced.exchange.get_full(0.0)) is not None:
            assert np.all(paced.exchange.policy_records[slot]["truncation_value"])
            paced.exchange.consume(NUM_ENVS)
            paced.exchange.release(slot)
    assert paced.server.num_acted_steps >= 2 * NUM_GROUPS * NUM_ENVS * ROLLOUT


class Lengthening:
    """Environments without end, but for the first of all: its episodes are cut off after 1, 2, 3, ... steps."""

    num_restarts = 0

    def __init__(self, num_envs: int, first_index: int):
        self.num_envs = num_envs
        self._left = self._lengths = np.where(np.arange(num_envs) + first_index, 10**6, 1)

    def reset(self, out: StepOutput) -> None:
        out.records["is_first"] = True
        out.records["terminated"] = out.records["truncated"] = False

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        self._left = self._left - 1
        ended = self._left == 0
        out.records["is_first"] = out.records["truncated"] = ended
        self._lengths = self._lengths + ended
        self._left = np.where(ended, self._lengths, self._left)

    def note(self) -> str:
        return ""

    def close(self) -> None:
        pass


class Counting:
    """A policy whose value is the number of an episode's observations so far."""

    encoder = None

    def initial_state(self, batch_size: int) -> np.ndarray:
        return np.zeros((batch_size, 1), np.float32)

    def apply(self, params: PyTree, observations: PyTree, core_state: PyTree, is_first: PyTree) -> tuple:
        core_state = jnp.where(is_first[0, :, None], 0, core_state) + 1
        return PolicyOutput(jnp.zeros((*is_first.shape, 3)), core_state[None, :, 0]), core_state


def test_final_observations_are_valued_after_their_episode():
    """Some wait for their call until the next episode has begun, some until it has ended too."""
    paced = Paced(make_env=Lengthening, policy=Counting())
    found = []
    for _ in range(16 * ROLLOUT):
        paced.server.advance()
        while (slot := paced.exchange.get_full(0.0)) is not None:
            values = paced.exchange.policy_records[slot]["truncation_value"]
            np.testing.assert_array_equal(values != 0, paced.ring.records["truncated"][slot, 1:])
            found.extend(values[values != 0].tolist())
            paced.exchange.consume(NUM_ENVS)
            paced.exchange.release(slot)
    assert len(found) > 5 and found == list(range(2, len(found) + 2))  # observations of an episode, the final one too


def test_games_pause_while_enough_trajectories_wait_and_go_on_with_new_parameters():
    paced = Paced()
    assert paced.advance(2 * ROLLOUT) == NUM_GROUPS * NUM_ENVS * ROLLOUT  # all end at once
    assert paced.exchange.must_pause and paced.server.num_paused == NUM_GROUPS
    assert paced.exchange.num_full == NUM_GROUPS and paced.advance(3) == 0
    for _ in range(2):  # the batch taken beforehand still waits
        assert paced.assembler.next(3, 0.1) is not None
        assert paced.exchange.must_pause and paced.advance(3) == 0
        paced.assembler.begin_update()
    assert not paced.exchange.must_pause
    paced.parameters.publish(4, paced.params)
    assert paced.advance(3) == 3 * NUM_GROUPS * NUM_ENVS
    paced.exchange.consume(-NUM_ENVS)  # as if one more trajectory of another group had ended
    assert paced.advance(3) == 0
    paced.exchange.consume(NUM_ENVS)
    paced.parameters.publish(5, paced.params)
    assert paced.advance(ROLLOUT) == 2 * NUM_GROUPS * NUM_ENVS
    batch = [paced.assembler.next(5, 0.1) for _ in range(2)][1]
    assert batch is not None and versions(paced.exchange, batch.payload)[:, 0].tolist() == [4, 4, 4, 5, 5]


def test_a_trajectory_too_old_is_dropped():
    spec_env = EnvConfig(root_env="Catch-v0")
    ring = TrajectoryRing(env_spec(spec_env), RingShape(1, 2, 3, ROLLOUT))
    exchange = TrajectoryExchange(ring, MANY)
    learner = LearnerConfig(batch_size=2 * ROLLOUT, rollout=ROLLOUT, max_policy_lag=10)
    assembler = BatchAssembler(exchange, learner, lambda rows, devices: np.zeros((6, 1))[rows])
    for slot, version in ((0, 5), (1, 6)):
        assert exchange.take_free() == slot
        exchange.policy_records[slot]["version"] = version
        exchange.put_full(slot)
    batch = assembler.next(version=15, timeout_secs=0.1)
    assert batch is not None and (versions(exchange, batch.payload) == 6).all()
    assert exchange._num_consumed == 2
    assert [exchange.take_free() for _ in range(4)] == [2, 0, 1, None]
