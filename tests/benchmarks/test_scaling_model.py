"""The model of throughput: what limits is what it says, and a run is no faster than that."""

import dataclasses

import pytest

from benchmarks.scaling_model import Costs, Machines, answered_steps_per_sec, labels, predict

COSTS = Costs(100e-6, 300e-6, 600e-6, 8e-6, 1400.0)
GPU = Machines(cores=16, gpus=1, gpu_speedup=100.0, link_bytes_per_sec=1e10)


def test_cores_without_a_gpu_do_everything_in_sequence():
    found = predict(COSTS, Machines(cores=2), 1024)
    assert found["env_steps_per_sec"] == pytest.approx(2 / 1e-3) and found["limited_by"] == "cores"
    assert found["core_hours"] == pytest.approx(2e9 * 1e-3 / 3600)


@pytest.mark.parametrize(
    ("machines", "limit", "rate"),
    [
        (GPU, "gpus", 100 / 900e-6),
        (dataclasses.replace(GPU, cores=8), "cores", 8 / 100e-6),
        (dataclasses.replace(GPU, cores=160, gpus=8), "thread", 1 / 8e-6),
        (dataclasses.replace(GPU, link_bytes_per_sec=1.4e6), "link", 1000.0),
    ],
)
def test_the_slowest_part_limits(machines, limit, rate):
    found = predict(COSTS, machines, 4096)
    assert found["limited_by"] == limit and found["env_steps_per_sec"] == pytest.approx(rate)
    assert min(found["of_each_part_alone"].values()) == found["of_each_part_alone"][limit]
    assert found["cores_that_feed_a_gpu"] == pytest.approx(100 * 100 / 900)


def test_threads_share_launches_but_not_python():
    """4,000 games, half of which a call answers; 1 us of Python a step, and a launch as long as that of 2,000."""
    games = dataclasses.replace(GPU, games=4000, launch_secs=2e-3)

    def carried(number: int) -> float:
        return answered_steps_per_sec(1e-6, dataclasses.replace(games, answerers=number))

    assert carried(1) == pytest.approx(2000 / 4e-3) and carried(2) == pytest.approx(2000 / 3e-3)
    assert carried(1) < carried(2) < carried(8) < 1e6
    assert answered_steps_per_sec(1e-6, dataclasses.replace(games, answerers=8, launch_secs=0.0)) == pytest.approx(1e6)
    assert answered_steps_per_sec(1e-6, dataclasses.replace(games, games=16_000)) > carried(2)
    found = predict(dataclasses.replace(COSTS, thread_secs=1e-6), dataclasses.replace(games, cores=160, gpus=8), 4096)
    assert found["limited_by"] == "thread" and found["env_steps_per_sec"] == pytest.approx(carried(1))


def test_hosts_wait_for_each_other_once_an_update():
    one = predict(COSTS, GPU, 4096)["env_steps_per_sec"]
    machines = dataclasses.replace(GPU, hosts=64, gradient_sum_secs=0.02)
    found = predict(COSTS, machines, 64 * 4096)
    assert found["env_steps_per_sec"] == pytest.approx(64 * 4096 / (4096 / one + 0.02))
    assert found["waiting_for_gradients_fraction"] == pytest.approx(0.02 / (4096 / one + 0.02))
    # More waiting for the same batch in smaller parts.
    assert predict(COSTS, machines, 4096)["waiting_for_gradients_fraction"] > found["waiting_for_gradients_fraction"]


def test_the_llm_limits_labels_alone():
    found = labels(100_000, 4e-4, 10)
    assert found["fraction_labelled_soon"] == pytest.approx(10 / 40) and found["servers_that_keep_up"] == 4
    assert found["keeps_up_until_env_steps_per_sec"] == pytest.approx(25_000)
    assert labels(100, 4e-4, 10)["fraction_labelled_soon"] == labels(100, 4e-4, 10)["servers_that_keep_up"] == 1
