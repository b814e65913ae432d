"""A model of training speed on given machines, from each part's cost here, and its check against runs here.

    python -m benchmarks.scaling_model --repeats 2 --json costs.json   # measures parts, and runs to check against
    python -m benchmarks.scaling_model --costs costs.json --hosts 64 --cores 96 --gpus 8 --gpu_speedup 300 \
        --batch_size 32768 --games 16384 --answerers 8 --launch_ms 1.2
    python -m benchmarks.scaling_model --measure_answerers 1,2   # steps/s by number of threads, in turn
    python -m benchmarks.scaling_model --measure_engines wheel,built   # steps/s by engine

A run is as fast as its slowest part allows: the cores that play, the inference thread of each process, the link to the
accelerators, the accelerators, which act and learn in turn, or, without any, the cores, which do everything in turn.
A call of the policy answers half of a thread's games while the others play; starting it takes the same for any number.
After each update processes wait for the sum of their gradients. The LLM never limits a run: it limits the fraction of
new messages that is labelled soon, or the number of servers.

Costs are measured on cores. `--gpu_speedup`, of an accelerator over one core here, is the caller's guess until measured
(`benchmarks.update` on both).
"""

import dataclasses
import functools
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags

from benchmarks import harness
from benchmarks.acting import config_with, cpu_secs, measure_acting
from benchmarks.builders import PolicyStep, Update, config_of
from benchmarks.harness import run_app
from benchmarks.training import SMALL_FLAGS, train
from oni_jax.envs.base import record_dtype
from oni_jax.envs.registry import env_spec
from oni_jax.host.large_pages import tune_memory
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values

_COSTS = flags.DEFINE_string("costs", "", "File of an earlier --json; measured here when left out.")
_HOSTS = flags.DEFINE_integer("hosts", 1, "Hosts, with a process each.", 1)
_CORES = flags.DEFINE_integer("cores", os.cpu_count() or 1, "Cores of each host.", 1)
_GPUS = flags.DEFINE_integer("gpus", 0, "GPUs of each host; 0: the cores compute.", 0)
_GPU_SPEEDUP = flags.DEFINE_float("gpu_speedup", 300.0, "Speed of a GPU over a core of the measured machine.", 1e-9)
_LINK = flags.DEFINE_float("link_gigabytes_per_sec", 20.0, "Bandwidth from a host's memory to all its GPUs.", 1e-9)
_SUM_SECS = flags.DEFINE_float("gradient_sum_secs", 0.05, "Seconds of the sum of all hosts' gradients.", 0.0)
_GAMES = flags.DEFINE_integer("games", 4096, "Games of each host.", 2)
_ANSWERERS = flags.DEFINE_integer("answerers", 1, "Threads of each host that answer games.", 1)
_LAUNCH_MS = flags.DEFINE_float("launch_ms", 0.0, "Milliseconds that starting a call of the policy takes.", 0.0)
_MEASURE_ANSWERERS = flags.DEFINE_list("measure_answerers", None, "Numbers of threads to measure here, nothing else.")
_MEASURE_ENGINES = flags.DEFINE_list("measure_engines", None, "Engines of NetHack to measure here, nothing else.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 4096, "Batch size of the whole run.", 32)
_LABELS = flags.DEFINE_float("llm_labels_per_sec", 115.0, "Speed of an LLM server; default: 8 B, reasoned.", 1e-9)
_RUNS = flags.DEFINE_list(
    "runs",
    None,
    "GAMESxBATCH_SIZE of the runs to check against. (default: 40x1024,40x4096,128x1024; 4x64 with --smoke)",
)
_NEW_MESSAGES = flags.DEFINE_float("new_messages", 4e-3, "New messages per environment step.", 0.0)

THREAD = "inference_thread_cpu_secs_per_step"
NUM_STEPS = 2e9  # steps of the run whose hours are predicted
HOST_PROCESSES, HOST_GAMES, HOST_BATCH = 32, 2048, 16_384  # a large host's, for its inference thread


@dataclasses.dataclass(frozen=True)
class Costs:
    """Costs of one environment step, each measured alone."""

    acting_core_secs: float  # a core's time: the game, its observations, the ring, and inference without the network
    inference_core_secs: float
    update_core_secs: float
    thread_secs: float  # a core's time in the inference thread
    link_bytes: float  # bytes to the accelerator, once to act and once to learn


@dataclasses.dataclass(frozen=True)
class Machines:
    """Machines of a run; figures per host."""

    hosts: int = 1
    cores: int = 1
    gpus: int = 0
    gpu_speedup: float = 1.0
    link_bytes_per_sec: float = math.inf
    gradient_sum_secs: float = 0.0
    games: int = HOST_GAMES
    answerers: int = 1
    launch_secs: float = 0.0  # a call of the policy, without Python's lock


def answered_steps_per_sec(thread_secs: float, machines: Machines) -> float:
    """Returns what the threads of a host carry: calls side by side, but for what holds Python's lock."""
    of_call = machines.games / machines.answerers / 2
    side_by_side = machines.answerers * of_call / (machines.launch_secs + of_call * thread_secs)
    return min(side_by_side, 1 / thread_secs)


def predict(costs: Costs, machines: Machines, batch_size: int) -> dict[str, Any]:
    """Predicts environment steps a second of the whole run, its bottleneck, and the limit of each part alone."""
    network = costs.inference_core_secs + costs.update_core_secs
    if machines.gpus:
        parts = {
            "cores": machines.cores / costs.acting_core_secs,
            "gpus": machines.gpus * machines.gpu_speedup / network,
            "link": machines.link_bytes_per_sec / costs.link_bytes,
        }
    else:
        parts = {"cores": machines.cores / (costs.acting_core_secs + network)}
    parts["thread"] = answered_steps_per_sec(costs.thread_secs, machines)
    limit = min(parts, key=lambda name: parts[name])
    host_batch = batch_size / machines.hosts
    update_secs = host_batch / parts[limit] + (machines.gradient_sum_secs if machines.hosts > 1 else 0.0)
    rate = batch_size / update_secs
    return {
        "env_steps_per_sec": rate,
        "limited_by": limit,
        "waiting_for_gradients_fraction": 1 - host_batch / parts[limit] / update_secs,
        "of_each_part_alone": {name: machines.hosts * value for name, value in parts.items()},
        "hours": NUM_STEPS / rate / 3600,
        "gpu_hours": NUM_STEPS / rate / 3600 * machines.hosts * machines.gpus,
        "core_hours": NUM_STEPS / rate / 3600 * machines.hosts * machines.cores,
        "cores_that_feed_a_gpu": costs.acting_core_secs * machines.gpu_speedup / network,
    }


def labels(env_steps_per_sec: float, new_messages: float, labels_per_sec: float) -> dict[str, float]:
    """Predicts the labels wanted of an LLM, the fraction that one server labels soon, and the servers that keep up."""
    wanted = env_steps_per_sec * new_messages
    return {
        "labels_per_sec_wanted": wanted,
        "fraction_labelled_soon": min(1.0, labels_per_sec / max(1e-12, wanted)),
        "keeps_up_until_env_steps_per_sec": labels_per_sec / max(1e-12, new_messages),
        "servers_that_keep_up": max(1, math.ceil(wanted / labels_per_sec)),
    }


def measure_thread(num_games: int, batch_size: int, num_processes: int, secs: float) -> dict[str, Any]:
    """Measures what one inference thread carries, with games and a policy that cost nothing; see `measure_acting`."""
    return measure_acting(config_with(num_games, batch_size, num_processes), True, secs / 2, secs)


def measure_answerers(numbers: Sequence[int], repeats: int) -> dict[str, Any]:
    """Measures in turn what several threads carry, with games and a policy that cost nothing, in as many processes."""
    games, batch_size, processes = harness.sized((2048, 16_384, max(4, *numbers)), (8, 64, 2))
    config = config_with(games, batch_size, processes)
    return measure_in_turn({f"{x}": with_values(config, {"num_answerers": x}) for x in numbers}, True, 5.0, repeats)


def measure_engines(engines: Sequence[str], repeats: int) -> dict[str, Any]:
    """Measures in turn what runs on these engines carry, with a policy that costs nothing."""
    config = config_with(*harness.sized((256, 4096), (8, 64)), len(os.sched_getaffinity(0)))
    return measure_in_turn({x: with_values(config, {"engine": x}) for x in engines}, False, 20.0, repeats)


def measure_in_turn(configs: Mapping[str, Config], empty_games: bool, secs: float, repeats: int) -> dict[str, Any]:
    """Measures acting with these settings; ratios are to the first. `secs`: of each, which is warm after the half."""
    secs = harness.sized(secs, 0.1)
    sides = {
        name: functools.partial(measure_acting, config, empty_games, secs / 2, secs) for name, config in configs.items()
    }
    found = harness.alternate(sides, repeats)
    rates = {name: [run["env_steps_per_sec"] for run in each] for name, each in found.items()}
    cpu = {name: [run["cpu_secs_per_step"] for run in each] for name, each in found.items()}
    first, *others = configs
    return {
        **{f"{name}_env_steps_per_sec": harness.spread(speeds) for name, speeds in rates.items()},
        **{f"{name}_cpu_us_per_step": harness.spread([1e6 * secs for secs in costs]) for name, costs in cpu.items()},
        **{f"{name}_thread_secs": harness.spread([run[THREAD] for run in each]) for name, each in found.items()},
        **{f"{name}_ratio_to_{first}": harness.ratio(rates[name], rates[first]) for name in others},
        **{f"{name}_cpu_ratio_to_{first}": harness.ratio(cpu[first], cpu[name]) for name in others},
    }


def measure_costs(num_games: int, batch_size: int, secs: float) -> Costs:
    """Measures each part alone on all cores; idle time is not counted."""
    cores = len(os.sched_getaffinity(0))
    config = config_with(num_games, batch_size, cores)
    acting_secs = measure_acting(config, False, secs / 2, secs)["cpu_secs_per_step"]
    thread_secs = measure_thread(num_games, batch_size, cores, secs)[THREAD]
    step = PolicyStep(num_games // 2)  # one half is answered while the other plays
    np.asarray(step.start())
    inference_secs = measure_core_secs(lambda: np.asarray(step.start()), num_games // 2, secs)
    update = Update(config_of(batch_size))
    update.run(2)
    update_secs = measure_core_secs(functools.partial(update.run, 1), batch_size, secs)
    jax.clear_caches()
    record_bytes = record_dtype(env_spec(config.env)).itemsize
    return Costs(acting_secs, inference_secs, update_secs, thread_secs, 2 * record_bytes)


def measure_core_secs(run: Callable[[], object], num_steps: int, secs: float) -> float:
    """Measures CPU time per environment step of a call that processes `num_steps`."""
    start, used, count = time.perf_counter(), cpu_secs(), 0
    while time.perf_counter() < start + secs or not count:
        run()
        count += 1
    return (cpu_secs() - used) / (count * num_steps)


def measure_training(num_games: int, batch_size: int, num_steps: int) -> float:
    """Measures environment steps a second of a run."""
    cores = len(os.sched_getaffinity(0))
    words = f"--num_workers {cores} --num_envs_per_worker {num_games // cores} --batch_size {batch_size}".split()
    if harness.SMOKE.value:
        words = [*SMALL_FLAGS.split(), "--max_episode_steps=20", "--log_every_sec=0.01"]
    return train("none", [*words, f"--train_for_env_steps={num_steps}"]).env_steps_per_sec()


def check(repeats: int) -> dict[str, Any]:
    """Compares the model with runs of this machine, parts and run in turn."""
    rows, cores = {}, len(os.sched_getaffinity(0))
    for run in _RUNS.value or harness.sized(["40x1024", "40x4096", "128x1024"], ["4x64"]):
        num_games, batch_size = map(int, run.split("x"))
        secs, num_steps = harness.sized(5.0, 0.1), harness.sized(60_000, 1_280)
        sides = {
            "costs": functools.partial(measure_costs, num_games, batch_size, secs),
            "run": functools.partial(measure_training, num_games, batch_size, num_steps),
        }
        measured: Mapping[str, list] = harness.alternate(sides, repeats)
        predicted = [predict(c, Machines(cores=cores), batch_size)["env_steps_per_sec"] for c in measured["costs"]]
        middle = {
            field.name: float(np.median([getattr(costs, field.name) for costs in measured["costs"]]))
            for field in dataclasses.fields(Costs)
        }
        rows[f"{num_games}_games_batch_{batch_size}"] = {
            "costs": middle,
            "predicted_env_steps_per_sec": harness.spread(predicted),
            "measured_env_steps_per_sec": harness.spread(measured["run"]),
            "measured_of_predicted": harness.ratio(measured["run"], predicted),
        }
    return rows


def main() -> None:
    tune_memory()  # as a run does
    if _MEASURE_ANSWERERS.value:
        figures = measure_answerers([int(number) for number in _MEASURE_ANSWERERS.value], harness.num_repeats(4))
        harness.write_report(harness.JSON.value, figures)
        return
    if _MEASURE_ENGINES.value:
        harness.write_report(harness.JSON.value, measure_engines(_MEASURE_ENGINES.value, harness.num_repeats(5)))
        return
    if _COSTS.value:
        with open(_COSTS.value) as file:
            held = json.load(file)["figures"]
        rows, thread_secs, thread = held["rows"], held["thread_secs_of_a_large_host"], {}
    else:
        rows = check(harness.num_repeats(2))
        sizes = harness.sized((HOST_GAMES, HOST_BATCH, HOST_PROCESSES), (8, 64, 2))
        thread = measure_thread(*sizes, harness.sized(10.0, 0.1))
        thread_secs = thread[THREAD]
    of_most_games = Costs(**list(rows.values())[-1]["costs"])
    costs = dataclasses.replace(of_most_games, thread_secs=thread_secs)
    links = _LINK.value * 1e9, _SUM_SECS.value
    answering = _GAMES.value, _ANSWERERS.value, _LAUNCH_MS.value / 1e3
    machines = Machines(_HOSTS.value, _CORES.value, _GPUS.value, _GPU_SPEEDUP.value, *links, *answering)
    prediction = predict(costs, machines, _BATCH_SIZE.value)
    llm = labels(prediction["env_steps_per_sec"], _NEW_MESSAGES.value, _LABELS.value)
    print(f"limited by: {prediction['limited_by']}")
    measured = {"rows": rows, "thread_secs_of_a_large_host": thread_secs, "thread_of_a_large_host": thread}
    predicted = {"machines": dataclasses.asdict(machines), "prediction": prediction, "llm": llm}
    harness.write_report(harness.JSON.value, {**measured, **predicted})


if __name__ == "__main__":
    run_app(main)
