"""Environment steps a second under random actions, resets included: ours, and what else plays the same task.

    python -m benchmarks.env_step --processes 2 --envs 128 --json env_step.json
    python -m benchmarks.env_step --root_env Crafter-v1

On the host the sides take a few steps each, in turn, forwards and backwards, in each of several processes, so that a
machine whose speed changes within seconds changes it for all: `built` is our stepper of NetHack in C on the engine
that `make engine` builds, `native` the same on NLE's, `make_vec` the first of these behind gymnasium's interface,
`python` the one in Python, `nle_env` NLE's environment, with the same seeds and actions; ours show the same, which is
checked. `built_engine` is the engine alone, whose keys Python presses. Any other environment on the host is `ours`. On
devices (the cores, without a GPU), environments run in one jitted scan; beside BabyAI-Text plays `minigrid`, beside
Crafter PyPI's `crafter`, each in a process for each core and in whole episodes, and Craftax-Classic through our scan,
where they are installed.
"""

import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import flags

from benchmarks import harness
from benchmarks.harness import run_app
from benchmarks.host_envs import BuiltEngine, GymnasiumEnvs, HostEnvs, NleEnvs
from oni_jax.envs.nethack.native.stepper import why_not
from oni_jax.envs.nethack.native.vector_env import why_not_built
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config
from oni_jax.settings.worlds import CrafterConfig, EnvConfig, NetHackConfig

_ROOT_ENV = flags.DEFINE_string("root_env", harness.ROOT_ENV, "Task.")
_PROCESSES = flags.DEFINE_integer("processes", 2, "Processes at the same time, on the host.", 1)
_ENVS = flags.DEFINE_list("envs", None, "Environments of each. (default: 1,128, on devices 256; 4 with --smoke)")
_STEPS = flags.DEFINE_integer("steps", None, "Steps of each on the host. (default: 400; 40 with --smoke)", 1)
_TURN_STEPS = flags.DEFINE_integer("turn_steps", 10, "Steps that a side takes in its turn.", 1)
_WARM_UP_STEPS = flags.DEFINE_integer("warm_up_steps", None, "Steps before. (default: 200; 10 with --smoke)", 1)
_VIEW = flags.DEFINE_enum("view", "terminal", ("terminal", "map"), "The view of NetHack.")
_SIDES = flags.DEFINE_list("sides", None, "Sides of NetHack, the first of which is compared with the others.")
_SECS = flags.DEFINE_float("secs", 3.0, "Seconds of a measurement on devices, at least.")

NUM_PARTS = 8  # parts of the steps on the host; their rates give the spread


def host_sides(config: EnvConfig, chosen: Sequence[str] | None = None) -> dict[str, Callable[..., Any]]:
    """Returns what plays a task on the host, by name: all, or those of NetHack that are chosen."""
    if NetHackConfig not in Plan(Config(config)).environment.settings:
        return {"ours": functools.partial(HostEnvs, config)}

    def stepped_by(stepper: str, engine: str = "wheel") -> EnvConfig:
        nethack = NetHackConfig(view=config.nethack.view, stepper=stepper, engine=engine)
        return EnvConfig(root_env=config.root_env, nethack=nethack)

    built = {} if why_not_built() else {"built": functools.partial(HostEnvs, stepped_by("auto", "built"))}
    engine = {"built_engine": functools.partial(BuiltEngine, config)} if built else {}
    native = {} if why_not() else {"native": functools.partial(HostEnvs, stepped_by("auto"))}
    vector = functools.partial(GymnasiumEnvs, stepped_by("auto", "auto"))
    python, nle = functools.partial(HostEnvs, stepped_by("python")), functools.partial(NleEnvs, config)
    sides = {**built, **native, "make_vec": vector, "python": python, "nle_env": nle, **engine}
    return {name: sides[name] for name in chosen or sides}


def take_turns(
    config: EnvConfig, num_envs: int, first_index: int, sizes: tuple[int, int, int], chosen: Sequence[str] | None = None
) -> harness.Work:
    """Steps the sides. `sizes`: steps before, steps, and those of a turn. Result: [turns, sides, (wall, CPU) secs]."""
    num_before, num_steps, turn_steps = sizes
    sides = {name: make(num_envs, first_index) for name, make in host_sides(config, chosen).items()}
    for side in sides.values():
        side.run(num_before)
    yield
    secs = []
    for turn in range(-(-num_steps // turn_steps)):
        secs.append([(0.0, 0.0)] * len(sides))
        for k, side in list(enumerate(sides.values()))[:: -1 if turn % 2 else 1]:
            before = time.perf_counter(), time.process_time()
            side.run(turn_steps)
            secs[-1][k] = time.perf_counter() - before[0], time.process_time() - before[1]
        if len({side.shown() for side in sides.values() if not isinstance(side, NleEnvs | BuiltEngine)}) > 1:
            raise RuntimeError("the steppers' games differ")
    yield
    for side in sides.values():
        side.close()
    return secs


def measure_on_host(config: EnvConfig, num_envs: int) -> dict[str, Any]:
    """Measures rates and CPU time of the sides, and the ratios of the first one to the others."""
    num_processes, turn_steps = _PROCESSES.value, _TURN_STEPS.value
    sizes = (_WARM_UP_STEPS.value or harness.sized(200, 10), _STEPS.value or harness.sized(400, 40), turn_steps)
    settings = [(config, num_envs, i * num_envs, sizes, _SIDES.value) for i in range(num_processes)]
    timed = harness.run_together(take_turns, settings)
    secs = np.array([process.result for process in timed])  # [processes, turns, sides, 2]
    parts = np.array_split(secs, min(NUM_PARTS, secs.shape[1]), axis=1)
    names = list(host_sides(config, _SIDES.value))
    steps = [part.shape[1] * turn_steps * num_envs for part in parts]  # each process takes so many
    rates = {name: [(n / p[:, :, k, 0].sum(1)).sum() for p, n in zip(parts, steps)] for k, name in enumerate(names)}
    cpu_us = {
        name: [1e6 * p[:, :, k, 1].sum() / n / num_processes for p, n in zip(parts, steps)]
        for k, name in enumerate(names)
    }
    return {
        **{f"{name}_env_steps_per_sec": harness.spread(found) for name, found in rates.items()},
        **{f"{name}_cpu_us_per_step": harness.spread(found) for name, found in cpu_us.items()},
        **{f"{names[0]}_ratio_to_{name}": harness.ratio(cpu_us[name], cpu_us[names[0]]) for name in names[1:]},
    }


def device_sides(config: EnvConfig, num_envs: int) -> dict[str, Callable[[], float]]:
    """Returns measurements of steps a second on devices, ours first."""
    from benchmarks import device_steps
    from benchmarks.peers import craftax_classic, crafter_worlds, minigrid_levels
    from oni_jax.envs.babyai.levels import LEVELS
    from oni_jax.envs.device.gymnax_env import GymnaxEnv

    def ours(env: Any) -> Callable[[], float]:
        steps = device_steps.warmed_up(env, num_envs, harness.sized(32, 4), harness.sized(1000, 8))
        return lambda: harness.measure_rate(steps.run, steps.num_envs * steps.unroll, harness.sized(_SECS.value, 0.01))

    def in_processes(play: Callable[..., Any], *arguments: Any) -> float:
        cores = range(len(os.sched_getaffinity(0)))
        timed = harness.run_together(play, [(*arguments, seed, harness.sized(20, 1)) for seed in cores])
        return harness.total_rate(timed, sum(process.result.num_steps for process in timed))

    make = Plan(Config(config)).environment.device
    assert make
    sides = {"ours": ours(make(config))}
    if config.root_env in LEVELS and harness.is_installed("minigrid"):
        sides["minigrid"] = functools.partial(in_processes, minigrid_levels.play, LEVELS[config.root_env])
    if CrafterConfig in Plan(Config(config)).environment.settings:
        if harness.is_installed("crafter"):
            sides["published_crafter"] = functools.partial(in_processes, crafter_worlds.play)
        if harness.is_installed("craftax"):
            sides["craftax_classic"] = ours(GymnaxEnv(*craftax_classic.make()))
    return sides


def measure_on_devices(config: EnvConfig, num_envs: int) -> dict[str, Any]:
    """Measures rates of the sides in turn, and the ratios of ours to the others."""
    rates = harness.alternate(device_sides(config, num_envs), harness.num_repeats())
    return {
        **{f"{name}_env_steps_per_sec": harness.spread(found) for name, found in rates.items()},
        **{
            f"ours_ratio_to_{name}": harness.ratio(rates["ours"], found)
            for name, found in rates.items()
            if name != "ours"
        },
    }


def main() -> None:
    config = EnvConfig(root_env=_ROOT_ENV.value, nethack=NetHackConfig(view=_VIEW.value))
    is_on_device = Plan(Config(config)).environment.device is not None
    sizes = [int(size) for size in _ENVS.value or harness.sized([256] if is_on_device else [1, 128], [4])]
    measure = measure_on_devices if is_on_device else measure_on_host
    if is_on_device:
        import jax

        jax.config.update("jax_num_cpu_devices", harness.num_cpu_devices(min(sizes)))
    harness.write_report(harness.JSON.value, {f"{size}_envs": measure(config, size) for size in sizes})


if __name__ == "__main__":
    run_app(main)
