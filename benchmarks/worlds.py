"""Worlds on the accelerator: steps of BabyAI-Text and Crafter alone, and training on them from the command to the end.

    python -m benchmarks.worlds --json worlds.json

Environments alone take random actions, with all that a rollout gives: observations, captions' codes, resets. Beside
them `minigrid` plays the same level, its images only, in one process and in one for each core. Training is
`launch.train` after its first third; beside it PPO in PyTorch (benchmarks/peers/torch_ppo.py) trains an equal network
on gymnasium's vectors of that level, synchronous and asynchronous, of which the faster one counts, after its first
update. Beside Crafter, which takes maps from its stock, PyPI's `crafter` plays whole episodes with their resets, but
draws nothing. `online_cls` with the rule-based judge on the same cores is measured in turn with `none`. Peers, and
Craftax-Classic, are measured where they are installed: pip install torch craftax.
"""

import functools
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from importlib import util
from typing import Any

import gymnasium
from absl import app, flags

from benchmarks.device_steps import DeviceSteps
from benchmarks.harness import (
    JSON,
    alternate,
    measure_rate,
    num_repeats,
    ratio,
    run_together,
    sized,
    spread,
    total_rate,
    write_report,
)
from benchmarks.peers import crafter_worlds, minigrid_levels
from benchmarks.training import train
from oni_jax.envs.device.babyai.env import BabyAI
from oni_jax.envs.device.babyai.levels import LEVELS
from oni_jax.envs.device.crafter.env import Crafter
from oni_jax.envs.device.crafter.levels import VARIANTS as CRAFTER_LEVELS
from oni_jax.envs.device.gymnax_env import GymnaxEnv

LEVEL = "BabyAI-Text-GoToLocal-RedBall-S20"
HIDDEN_SIZE = 128
TRAINING = f"--encoder_custom mlp_encoder --hidden_size {HIDDEN_SIZE} --use_rnn False --log_every_sec 1"
FULL = "--train_for_env_steps 5000000 --batch_size 8192 --rollout 32"
SMALL = "--train_for_env_steps 1280 --batch_size 128 --rollout 32 --log_every_sec 0.01"
CRAFTER = "Crafter-v1"
CRAFTER_TRAINING = f"--encoder_custom generic_encoder --hidden_size {HIDDEN_SIZE} --use_rnn False --log_every_sec 1"
CRAFTER_FULL = "--train_for_env_steps 1000000 --batch_size 8192 --rollout 32"
ASYNC_ENVS = 16  # processes of a vector: hundreds would not fit

_SIDES = flags.DEFINE_list("sides", ["alone", "training", "online_cls", "crafter"], "What is measured.")
_ENVS = flags.DEFINE_integer("envs", None, "Environments. (default: 256; 8 with --smoke)", 1)
_SECS = flags.DEFINE_float("secs", 3.0, "Seconds of a measurement of environments alone, at least.")


def num_envs() -> int:
    return _ENVS.value or sized(256, 8)


def measure_alone(repeats: int) -> dict[str, Any]:
    """Measures environment steps a second under random actions, and checks that both sides play the same game."""
    level = LEVELS[LEVEL]
    ours = device_steps(BabyAI(level))
    sides: dict[str, Callable[[], float]] = {"babyai": functools.partial(rate_of, ours)}
    has_peer = is_installed("minigrid")
    if has_peer:
        sides["minigrid"] = functools.partial(minigrid_rate, 1)
        sides["minigrid_all_cores"] = functools.partial(minigrid_rate, len(os.sched_getaffinity(0)))
    if is_installed("craftax"):
        sides["craftax_classic"] = functools.partial(rate_of, craftax_steps())
    rates = alternate(sides, repeats)
    figures: dict[str, Any] = {f"{name}_env_steps_per_sec": spread(own) for name, own in rates.items()}
    if has_peer:
        for name in ("minigrid", "minigrid_all_cores"):
            figures[f"babyai_ratio_to_{name}"] = ratio(rates["babyai"], rates[name])
        figures["random_returns"] = compare_returns(ours, sized(256, 4))
    return figures


def device_steps(env: Any, unroll: int = 32) -> DeviceSteps:
    """Builds environments whose episodes have gone on for longer than a step limit."""
    steps = DeviceSteps(env, num_envs(), sized(unroll, 4))
    for _ in range(sized(-(-2 * min(steps.limit, 1000) // unroll), 2)):
        steps.run()
    return steps


def rate_of(steps: DeviceSteps) -> float:
    return measure_rate(steps.run, steps.num_envs * steps.unroll, sized(_SECS.value, 0.01))


def minigrid_rate(num_processes: int) -> float:
    """Measures steps a second of `minigrid` in processes on a core each."""
    level, num_episodes = LEVELS[LEVEL], sized(40, 1)
    timed = run_together(minigrid_levels.play, [(level, seed, num_episodes) for seed in range(num_processes)])
    return total_rate(timed, sum(own.result.num_steps for own in timed))


def compare_returns(ours: DeviceSteps, num_episodes: int) -> dict[str, Any]:
    """Returns mean returns of random actions on both sides, and how many standard errors they differ by."""
    processes = len(os.sched_getaffinity(0))
    arguments = [(LEVELS[LEVEL], 1000 + i, -(-num_episodes // processes)) for i in range(processes)]
    theirs = [total for timed in run_together(minigrid_levels.play, arguments) for total in timed.result.returns]
    own = [float(x) for i in range(sized(16, 1)) for x in ours.first_returns(1_000_000 + i * ours.num_envs)]
    errors = [statistics.variance(side) / len(side) for side in (own, theirs)]
    difference = statistics.mean(own) - statistics.mean(theirs)
    z = difference / math.sqrt(sum(errors)) if sum(errors) else 0.0
    return {"babyai": statistics.mean(own), "minigrid": statistics.mean(theirs), "z": z}


def measure_crafter(repeats: int) -> dict[str, Any]:
    """Measures steps a second of Crafter, of the published one and of Craftax-Classic, and training on ours."""
    sides: dict[str, Callable[[], float]] = {
        "crafter": functools.partial(rate_of, device_steps(Crafter(CRAFTER_LEVELS[CRAFTER], sized(4096, 16))))
    }
    if is_installed("crafter"):
        sides["published_crafter"] = functools.partial(crafter_rate, len(os.sched_getaffinity(0)))
    if is_installed("craftax"):
        sides["craftax_classic"] = functools.partial(rate_of, craftax_steps())
    rates = alternate(sides, repeats)
    figures: dict[str, Any] = {f"{name}_env_steps_per_sec": spread(own) for name, own in rates.items()}
    for name in set(rates) - {"crafter"}:
        figures[f"crafter_ratio_to_{name}"] = ratio(rates["crafter"], rates[name])
    words = f"--root_env {CRAFTER} {CRAFTER_TRAINING} {sized(CRAFTER_FULL, SMALL)}".split()
    training = alternate({"crafter": lambda: train("none", words).env_steps_per_sec()}, repeats)
    return {**figures, "crafter_training_steps_per_sec": spread(training["crafter"])}


def crafter_rate(num_processes: int) -> float:
    """Measures steps a second of PyPI's `crafter`, without pictures, in processes on a core each."""
    timed = run_together(crafter_worlds.play, [(seed, sized(4, 1)) for seed in range(num_processes)])
    return total_rate(timed, sum(own.result.num_steps for own in timed))


def craftax_steps() -> DeviceSteps:
    """Builds environments of Craftax-Classic's symbolic version."""
    from craftax.craftax_env import make_craftax_env_from_name  # pyright: ignore[reportMissingImports]

    env = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
    return device_steps(GymnaxEnv(env, env.default_params))


def measure_training(repeats: int) -> dict[str, Any]:
    """Measures training with rewards of the game alone, and the peer."""
    sides = {"babyai": functools.partial(training_rate, "none"), **torch_sides()}
    rates = alternate(sides, repeats)
    figures: dict[str, Any] = {"babyai_training_steps_per_sec": spread(rates["babyai"])}
    peers = {name: own for name, own in rates.items() if name != "babyai"}
    figures |= {f"{name}_steps_per_sec": spread(own) for name, own in peers.items()}
    if peers:
        fastest = max(peers.values(), key=statistics.median)
        figures["babyai_ratio_to_torch_ppo"] = ratio(rates["babyai"], fastest)
    return figures


def training_rate(reward_type: str) -> float:
    words = f"--root_env {LEVEL} {TRAINING} {sized(FULL, SMALL)}".split()
    return train(reward_type, words).env_steps_per_sec()


def torch_sides() -> dict[str, Callable[[], float]]:
    """Returns the peer on a synchronous and on an asynchronous vector; none without its packages."""
    if not is_installed("torch") or not is_installed("minigrid"):
        return {}
    vectors: Mapping[str, tuple[Callable[..., Any], int]] = {
        "torch_ppo_sync": (gymnasium.vector.SyncVectorEnv, num_envs()),
        "torch_ppo_async": (
            functools.partial(gymnasium.vector.AsyncVectorEnv, context="spawn"),
            min(ASYNC_ENVS, num_envs()),
        ),
    }
    return {name: functools.partial(torch_rate, *vector) for name, vector in vectors.items()}


def torch_rate(make_vector: Callable[..., Any], size: int) -> float:
    """Measures training by the peer in batches of our size, on a vector of `size` environments."""
    from benchmarks.peers.torch_ppo import TorchPPO

    envs = make_vector([functools.partial(minigrid_levels.make_image_env, LEVELS[LEVEL])] * size)
    try:
        ppo = TorchPPO(envs, sized(8192, 128) // size, HIDDEN_SIZE)
        ppo.run(1)
        return measure_rate(lambda: ppo.run(1), ppo.num_steps, sized(10.0, 0.01))
    finally:
        envs.close()


def measure_online_cls(repeats: int) -> dict[str, Any]:
    """Measures training with labels by the rule-based judge, which runs beside it, against none."""
    sides = {name: functools.partial(training_rate, name) for name in ("none", "online_cls")}
    rates = alternate(sides, repeats)
    return {
        **{f"{name}_training_steps_per_sec": spread(own) for name, own in rates.items()},
        "babyai_online_cls_ratio_to_none": ratio(rates["online_cls"], rates["none"]),
    }


def is_installed(package: str) -> bool:
    """Returns whether a package can be imported; says so where it can't."""
    found = util.find_spec(package) is not None
    if not found:
        print(f"{package} is not installed: left out", flush=True)
    return found


SIDES = {
    "alone": measure_alone,
    "training": measure_training,
    "online_cls": measure_online_cls,
    "crafter": measure_crafter,
}


def main(argv: Sequence[str]) -> None:
    del argv
    if wrong := set(_SIDES.value) - set(SIDES):
        raise app.UsageError(f"--sides {','.join(sorted(wrong))}: there are {', '.join(SIDES)}")
    figures: dict[str, Any] = {}
    for name in _SIDES.value:
        figures |= SIDES[name](num_repeats())
    write_report(JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
