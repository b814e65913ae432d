"""Several threads answer the actor processes: each its part, and all of them one world."""

import functools
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import jax
import numpy as np
import pytest

from launch import train
from oni_jax.envs.registry import env_spec, make_vector_env
from oni_jax.host.runtime import ChildError
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.settings.config import check_config
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.worlds import ActorConfig, EnvConfig
from oni_jax.types import Trajectory
from oni_jax.worlds.actors.exchange import TrajectoryExchange
from oni_jax.worlds.actors.parameters import ParameterStore
from oni_jax.worlds.actors.parts import split
from oni_jax.worlds.actors.pool import num_answerers
from oni_jax.worlds.actors.ring import RingShape, TrajectoryRing
from oni_jax.worlds.actors.serial_pool import SerialPool
from oni_jax.worlds.actors.server import InferenceServer
from tests.worlds.made import Made, actors, config_of, make_world
from tests.worlds.test_conformance import play, play_all

ROLLOUT, NUM_WORKERS, GROUP_SIZE, NUM_SPLITS = 5, 3, 2, 2
NUM_ENVS = NUM_WORKERS * NUM_SPLITS * GROUP_SIZE
PROCESSES = functools.partial(
    ActorConfig, NUM_WORKERS, NUM_SPLITS * GROUP_SIZE, NUM_SPLITS, "process", max_actor_restarts=2
)


@contextmanager
def running(num_answerers: int) -> Iterator[Made]:
    actors = PROCESSES(num_answerers=num_answerers)
    made = make_world(config_of("Catch-v0", NUM_ENVS, ROLLOUT, limit=7, actors=actors), observations=("message",))
    with closing(made.world) as world:
        world.start()
        yield made


def check_unroll(made: Made, trajectory: Trajectory) -> None:
    """The policy says again, from the core states before the trajectory, what it said while acting."""
    steps = {name: value[:-1] for name, value in trajectory.observations.items()}
    apply = jax.jit(made.task.policy.apply)
    output, _ = apply(made.state.params, steps, trajectory.initial_core_state, trajectory.is_first[:-1])
    np.testing.assert_allclose(output.logits, trajectory.behaviour_logits, atol=1e-5)
    np.testing.assert_allclose(output.values, trajectory.values, atol=1e-5)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_answerers_act_with_the_core_states_of_their_groups(number):
    with running(number) as made:
        world = made.world
        play_all(world, PROCESSES())
        batches = play(world, 4)
        gauges = world.gauges()
        unpack = jax.jit(world.unpack)
        trajectories = [jax.device_get(unpack(batch.payload, np.int32(0))) for batch in batches]
    for trajectory in trajectories:
        check_unroll(made, trajectory)
    assert any(np.any(x) for x in jax.tree.leaves(trajectories[-1].initial_core_state))
    assert gauges["acted_steps"] >= 4 * NUM_ENVS * ROLLOUT
    assert (f"answered by {number} threads" in world.description) == (number > 1)


def test_answerers_draw_their_actions_apart():
    """Parts that see the same games, with the policy's first call of each."""
    env = EnvConfig(root_env="Catch-v0")
    spec, drawn = env_spec(env), []
    policy = make_policy(NetworkConfig(encoder_custom="mlp_encoder", hidden_size=8), spec)
    parameters = ParameterStore(0, init_params(policy, spec, jax.random.key(0)))
    for part in split(2, 2, 1, 2):
        ring = TrajectoryRing(spec, RingShape(2, 50, 4, ROLLOUT))
        pool = SerialPool(lambda num_envs, first_index: make_vector_env(env, num_envs, 5, 0), ring)
        pool.start()
        exchange = TrajectoryExchange(ring, NUM_ENVS)
        server = InferenceServer(policy, exchange, pool, parameters, jax.random.key(1), part)
        for _ in range(2):
            server.advance()
        server.settle()
        drawn.append(ring.actions[part.groups.start].tolist())
    assert drawn[0] != drawn[1] and {*drawn[0]} == {*drawn[1]} == {*range(spec.num_actions)}


@pytest.mark.parametrize("lost", ["actor-0", "actor-2"])
def test_actors_of_each_part_are_replaced(lost):
    with running(2) as made:
        play_all(made.world, PROCESSES())
        (process,) = [x for x in actors() if x.name == lost]
        process.kill()
        failures: list[str] = []
        while not failures:
            play(made.world, 1)
            failures += made.world.report().failures
        assert [failure.split()[0] for failure in failures] == [lost]
        play_all(made.world, PROCESSES())


def test_actors_of_all_parts_have_one_limit():
    """Three are lost at once, one of them in another part; two may be replaced."""
    with running(2) as made:
        play_all(made.world, PROCESSES())
        for process in actors():
            process.kill()
        with pytest.raises(ChildError, match="actors were lost 3 times .* --max_actor_restarts is 2"):
            play(made.world, 100)
    assert not actors()


@pytest.mark.parametrize("num_devices", [1, 2, 3, 8])
@pytest.mark.parametrize("num_parts", [1, 2, 3, 5])
def test_parts_hold_everything_once(num_parts, num_devices):
    parts = split(num_workers=5, num_groups=10, num_devices=num_devices, num_parts=num_parts)
    assert [worker for part in parts for worker in part.workers] == [*range(5)]
    assert [group for part in parts for group in part.groups] == [*range(10)]
    assert all({group // 2 for group in part.groups} == {*part.workers} for part in parts)
    assert {device for part in parts for device in part.devices} == {*range(num_devices)}
    tables = [part.first_table + i for part in parts for i in range(len(part.devices))]
    assert tables == [*range(max(num_parts, num_devices))] and all(part.devices for part in parts)


def test_number_of_answerers_is_at_most_that_of_processes():
    assert [num_answerers(PROCESSES(num_answerers=number)) for number in (0, 1, 2, 9)] == [1, 1, 2, NUM_WORKERS]


def test_one_thread_that_does_all_has_no_answerers():
    with pytest.raises(UserError, match="--num_answerers 2: --actor_pool serial"):
        check_config(config_of("Catch-v0", 4, 5, actors=ActorConfig(actor_pool="serial", num_answerers=2)))


def test_run_stops_and_resumes(tmp_path):
    words = (
        "--llm_reward_type none --root_env Catch-v0 --encoder_custom mlp_encoder --hidden_size 8 --log_every_sec 0.01 "
    )
    words += "--num_workers 2 --num_envs_per_worker 4 --batch_size 64 --rollout 8 --recurrence 8"

    def rows(*more: str) -> list[dict[str, Any]]:
        assert train.main([*words.split(), "--train_dir", str(tmp_path), "--experiment", "answered", *more]) == 0
        return [json.loads(line) for line in (tmp_path / "answered" / "metrics.jsonl").read_text().splitlines()]

    assert rows("--num_answerers=2", "--train_for_env_steps=1280")[-1]["env_steps"] == 1280
    assert rows("--num_answerers=2", "--train_for_env_steps=2560")[-1]["env_steps"] == 2560
