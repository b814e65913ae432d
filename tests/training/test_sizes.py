"""Sizes left to the machine suit it and fit together; the part that limits a run is found."""

import json

import pytest

from launch import train
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config, check_config
from oni_jax.settings.fields import with_values
from oni_jax.settings.learning import check_batch_size
from oni_jax.training.limits import find_limit
from oni_jax.training.sizes import GAME_BYTES, GIB, Machine, with_sizes

LEFT = {"num_envs_per_worker": 0, "batch_size": 0, "precision": "auto", "num_workers": 16}
LAPTOP = Machine(2, 16 * GIB)
SERVER = Machine(16, 128 * GIB, 1, 80 * GIB)
MACHINES = [LAPTOP, SERVER, Machine(96, 8 * GIB), Machine(96, 512 * GIB, 8, 80 * GIB), Machine(4, GIB, 3, 2 * GIB)]


def config_of(**values) -> Config:
    return with_values(Config(), {"root_env": "Catch-v0", **LEFT, **values})


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("num_processes", [1, 3])
@pytest.mark.parametrize("machine", MACHINES)
def test_sizes_fit_together_and_into_memory(machine, num_processes, on_device):
    config, chosen = with_sizes(
        config_of(num_minibatches=4, rollout=16, recurrence=16), machine, on_device, num_processes
    )
    check_config(config)
    num_devices = max(1, machine.num_accelerators) * num_processes
    check_batch_size(config.learner, num_devices)
    assert config.learner.batch_size // 16 // num_devices % 4 == 0
    assert all(choice.reason for choice in chosen)
    if not on_device:
        num_envs = config.actors.num_envs_per_worker
        assert num_envs == 2 or num_envs * 16 * GAME_BYTES <= machine.memory_bytes / 2


def test_the_table():
    def sizes(machine, on_device=False, **values):
        config, _ = with_sizes(config_of(**values), machine, on_device)
        return config.actors.num_envs_per_worker, config.learner.batch_size, config.network.precision

    assert sizes(LAPTOP) == (20, 1024, "float32")  # as published
    assert sizes(SERVER) == (256, 32_768, "bfloat16")
    assert sizes(SERVER, num_workers=1)[1] == 8192
    assert sizes(LAPTOP, on_device=True)[1] == 256 * 32 == sizes(LAPTOP, on_device=True, cpu_devices=2)[1]
    assert sizes(SERVER._replace(memory_bytes=2 * GIB))[0] == 66


@pytest.mark.parametrize(
    "machine, values, workers, answerers",
    [
        (SERVER, {}, 14, 0),
        (SERVER, {"num_answerers": 3}, 12, 3),
        (SERVER, {"num_workers": 16}, 16, 0),
        (SERVER._replace(num_accelerators=8), {}, 13, 2),
        (SERVER._replace(num_accelerators=8), {"inference_devices": 1}, 14, 0),
        (SERVER._replace(num_accelerators=8), {"num_answerers": 1}, 14, 1),
        (SERVER._replace(num_cores=96, num_accelerators=8), {}, 87, 8),
        (SERVER._replace(num_cores=4), {}, 3, 0),
        (SERVER._replace(num_cores=2), {}, 0, 0),
        (SERVER, {"actor_pool": "serial"}, 0, 0),
        (LAPTOP, {}, 0, 0),
    ],
)
def test_cores_are_left_to_what_answers_the_games(machine, values, workers, answerers):
    config, chosen = with_sizes(config_of(**{"num_workers": 0, **values}), machine, False)
    assert (config.actors.num_workers, config.actors.num_answerers) == (workers, answerers)
    check_config(config)
    if config.actors.num_workers > values.get("num_workers", 0):
        (line,) = [choice.reason for choice in chosen if choice.flag == "num_workers"]
        assert f"{machine.num_cores - workers} of {machine.num_cores} cores are left" in line
        (line,) = [choice.reason for choice in chosen if choice.flag == "num_envs_per_worker"]
        assert f"{workers} processes" in line


def test_environments_on_the_device_leave_no_cores():
    config, _ = with_sizes(config_of(num_workers=0), SERVER, True)
    assert (config.actors.num_workers, config.actors.num_answerers) == (0, 0)


def test_given_sizes_stay():
    given = config_of(num_envs_per_worker=6, batch_size=96, precision="tf32")
    assert with_sizes(given, SERVER, False) == (given, [])


WAITS = {"learner_waits_fraction": 0.9, "actors_wait_fraction": 0.9, "inference_waits_fraction": 0.9}


@pytest.mark.parametrize(
    "waits, part, flag",
    [
        ({}, "way to the policy", "--num_envs_per_worker"),
        ({"actors_wait_fraction": 0.1}, "environments", "--num_workers 14"),
        ({"inference_waits_fraction": 0.1}, "inference", "--num_envs_per_worker"),
        ({"learner_waits_fraction": 0.0, "actors_wait_fraction": 0.1}, "learning", "--precision bfloat16"),
        ({"learner_looks_up_fraction": 0.5}, "looking up", "--potential_workers"),
        ({"captions_read_fraction": 0.5}, "reading captions", "fewer different captions"),
    ],
)
def test_limit_of_a_run(waits, part, flag):
    limit = find_limit({**WAITS, **waits}, Plan(config_of(num_workers=8, precision="float32"), SERVER))
    assert limit and part in limit.part and flag in limit.advice


def test_shorter_captions_are_advised_where_there_are_some():
    waits = {**WAITS, "captions_read_fraction": 0.5}

    def advice(**values):
        limit = find_limit(waits, Plan(config_of(root_env="CrafterTextEnv-v1", **values), LAPTOP))
        return limit and limit.advice

    assert advice(caption="state") == "--caption event"
    assert advice(caption="event") != "--caption event"
    # Not where it would be refused: goals are suggested for states.
    goals = {"llm_reward_type": "ellm", "llm_server_addr": "localhost", "goal_suggester": "llm"}
    assert "fewer different captions" in str(advice(caption="state", **goals))


def test_limit_of_a_run_on_a_cpu():
    limit = find_limit(WAITS, Plan(config_of(), LAPTOP))
    assert limit and "cores" in limit.part
    on_device = find_limit({"learner_waits_fraction": 0.0}, Plan(config_of(), LAPTOP))
    assert on_device and on_device.advice == "--cpu_devices 2"
    assert find_limit({}, Plan(config_of(), LAPTOP)) is None


def test_a_run_says_what_it_chose_and_what_limits_it(tmp_path, capfd):
    words = "--llm_reward_type none --root_env Catch-v0 --encoder_custom mlp_encoder --hidden_size 8 --num_workers 1 "
    words += "--num_envs_per_worker 0 --batch_size 0 --precision auto --actor_pool serial --train_for_env_steps 2000 "
    words += "--llm_server_addr localhost:1"
    assert train.main([*words.split(), "--train_dir", str(tmp_path), "--experiment", "sized"]) == 0
    shown = capfd.readouterr().out
    for flag in ("--num_envs_per_worker 20", "--batch_size 1024", "--precision float32"):
        assert f"{flag} suits this machine: " in shown
    saved = json.loads((tmp_path / "sized" / "config.json").read_text())
    assert saved["learner"]["batch_size"] == 1024 and saved["network"]["precision"] == "float32"
    rows = [json.loads(line) for line in (tmp_path / "sized" / "metrics.jsonl").read_text().splitlines()]
    assert "warning: --llm_server_addr: nothing in this run asks an LLM" in shown
    assert "cores" in rows[-1]["limited_by"] and "limited by the cores" in shown
