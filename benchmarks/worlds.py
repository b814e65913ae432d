"""Training on BabyAI-Text and Crafter, from the command to the end; `env_step` steps them alone.

    python -m benchmarks.worlds --json worlds.json

Training is `launch.train` after its first third; beside it PPO in PyTorch (benchmarks/peers/torch_ppo.py) trains an
equal network on gymnasium's vectors of the same level, synchronous and asynchronous, of which the faster one counts,
after its first update. On Crafter it reads cells and inventory as numbers; Craftax-Classic is trained on by the same
code as ours. `online_cls` with the rule-based judge on the same cores, rewards for suggested goals, and curiosity are
measured in turn with `none`. `random_…` compares random play with the peers'. Without a GPU the cores are as many
devices. Peers are measured where they are installed: pip install torch craftax.
"""

import functools
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from absl import app, flags

from benchmarks.device_steps import DeviceSteps
from benchmarks.harness import (
    JSON,
    alternate,
    is_installed,
    measure_rate,
    num_cpu_devices,
    num_repeats,
    ratio,
    run_app,
    run_together,
    sized,
    spread,
    write_report,
)
from benchmarks.peers import craftax_classic, crafter_worlds, minigrid_levels
from benchmarks.training import train
from oni_jax.envs.babyai.env import BabyAI
from oni_jax.envs.babyai.levels import LEVELS
from oni_jax.envs.crafter.env import Crafter
from oni_jax.envs.crafter.levels import VARIANTS as CRAFTER_LEVELS
from oni_jax.envs.crafter.things import ACHIEVEMENTS
from oni_jax.parallel import Replicas

LEVEL = "BabyAI-Text-GoToLocal-RedBall-S20"
HIDDEN_SIZE = 128
TRAINING = f"--encoder_custom mlp_encoder --hidden_size {HIDDEN_SIZE} --use_rnn False --log_every_sec 1"
FULL = "--train_for_env_steps 5000000 --batch_size 8192 --rollout 32"
SMALL = "--train_for_env_steps 1280 --batch_size 128 --rollout 32 --log_every_sec 0.01"
CRAFTER = "Crafter-v1"
CRAFTER_TRAINING = f"--encoder_custom generic_encoder --hidden_size {HIDDEN_SIZE} --use_rnn False --log_every_sec 1"
CRAFTER_FULL = "--train_for_env_steps 1000000 --batch_size 8192 --rollout 32"
REWARDED_FULL = "--train_for_env_steps 2000000 --batch_size 8192 --rollout 32"  # a goal model learns in the first third
CRAFTAX_FULL = "--train_for_env_steps 300000 --batch_size 8192 --rollout 32"
CRAFTAX = f"--plugin {craftax_classic.__name__} --root_env {craftax_classic.NAME}"
ASYNC_ENVS = 16  # processes of a vector: hundreds would not fit

_ENVS = flags.DEFINE_integer("envs", None, "Environments. (default: 256; 8 with --smoke)", 1)


def num_envs() -> int:
    return _ENVS.value or sized(256, 8)


def measure_random_babyai(repeats: int) -> dict[str, Any]:
    """Compares returns of random actions on BabyAI-Text and on `minigrid`."""
    if not is_installed("minigrid"):
        return {}
    processes = len(os.sched_getaffinity(0))
    arguments = [(LEVELS[LEVEL], 1000 + i, -(-sized(256, 4) // processes)) for i in range(processes)]
    theirs = [total for timed in run_together(minigrid_levels.play, arguments) for total in timed.result.returns]
    ours = DeviceSteps(BabyAI(LEVELS[LEVEL]), num_envs(), sized(32, 4), Replicas())
    return {"random_babyai": compare(first_stats(ours, sized(16, 1))[:, 0], theirs)}


def first_stats(ours: DeviceSteps, num_batches: int) -> np.ndarray:
    """Returns statistics of the first episodes of that many times N environments."""
    return np.concatenate([ours.first_stats(1_000_000 + i * ours.num_envs) for i in range(num_batches)])


def compare(ours: np.ndarray, theirs: Sequence[float]) -> dict[str, float]:
    """Returns both means, and how many standard errors of a common variance they differ by: rare events may be none."""
    error = math.sqrt(np.var(np.concatenate([ours, theirs])) * (1 / len(ours) + 1 / len(theirs)))
    difference = float(np.mean(ours) - np.mean(theirs))
    z = difference / error if error else 0.0
    return {"ours": float(np.mean(ours)), "peer": float(np.mean(theirs)), "z": z}


def measure_crafter(repeats: int) -> dict[str, Any]:
    """Measures training on Crafter and, where they are installed, on its peers."""
    rates = alternate(crafter_training_sides(), repeats)
    figures: dict[str, Any] = {f"{name}_training_steps_per_sec": spread(found) for name, found in rates.items()}
    for name in set(rates) - {"crafter"}:
        figures[f"crafter_training_ratio_to_{name}"] = ratio(rates["crafter"], rates[name])
    return figures


def crafter_training_sides() -> dict[str, Callable[[], float]]:
    """Returns training on Crafter, on Craftax-Classic and by PPO in PyTorch on the published Crafter."""
    ours, theirs = f"--root_env {CRAFTER} {sized(CRAFTER_FULL, SMALL)}", f"{CRAFTAX} {sized(CRAFTAX_FULL, SMALL)}"
    sides: dict[str, Callable[[], float]] = {"crafter": functools.partial(crafter_training_rate, ours)}
    if is_installed("craftax"):
        sides["craftax_classic"] = functools.partial(crafter_training_rate, theirs)
    if is_installed("torch") and is_installed("crafter"):
        vector = functools.partial(gymnasium.vector.AsyncVectorEnv, context="spawn")
        size = min(ASYNC_ENVS, num_envs())
        sides["torch_ppo"] = functools.partial(torch_rate, vector, crafter_worlds.SymbolsEnv, size)
    return sides


def crafter_training_rate(words: str, reward_type: str = "none") -> float:
    devices = f"--cpu_devices {num_cpu_devices(num_envs())}"
    return train(reward_type, f"{CRAFTER_TRAINING} {devices} {words}".split()).env_steps_per_sec()


def measure_random_crafter(repeats: int) -> dict[str, Any]:
    """Compares whole episodes of random actions: length, and how many of the episodes unlock each achievement."""
    env, num_episodes = Crafter(CRAFTER_LEVELS[CRAFTER], sized(4096, 16)), sized(500, 2)
    processes = len(os.sched_getaffinity(0))
    arguments = [(1000 + i, -(-num_episodes // processes)) for i in range(processes)]
    theirs = [episode for timed in run_together(crafter_worlds.play, arguments) for episode in timed.result.episodes]
    ours, names = first_stats(DeviceSteps(env, num_envs(), 100, Replicas()), sized(16, 1)), env.spec.episode_stats
    figures = {"length": compare(ours[:, names.index("length")], [length for length, _ in theirs])}
    for name in ACHIEVEMENTS:
        figures[name] = compare(ours[:, names.index(name)], [float(name in unlocked) for _, unlocked in theirs])
    return {"random_crafter": figures}


def measure_training(repeats: int) -> dict[str, Any]:
    """Measures training with rewards of the game alone, and the peer."""
    sides = {"babyai": functools.partial(training_rate, "none"), **torch_sides()}
    rates = alternate(sides, repeats)
    figures: dict[str, Any] = {"babyai_training_steps_per_sec": spread(rates["babyai"])}
    peers = {name: speeds for name, speeds in rates.items() if name != "babyai"}
    figures |= {f"{name}_steps_per_sec": spread(speeds) for name, speeds in peers.items()}
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
    make_env = functools.partial(minigrid_levels.make_image_env, LEVELS[LEVEL])
    return {name: functools.partial(torch_rate, make, make_env, size) for name, (make, size) in vectors.items()}


def torch_rate(make_vector: Callable[..., Any], make_env: Callable[[], Any], size: int) -> float:
    """Measures training by the peer in batches of our size, on a vector of `size` environments."""
    from benchmarks.peers.torch_ppo import TorchPPO

    envs = make_vector([make_env] * size)
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
        **{f"{name}_training_steps_per_sec": spread(found) for name, found in rates.items()},
        "babyai_online_cls_ratio_to_none": ratio(rates["online_cls"], rates["none"]),
    }


def measure_goals(repeats: int) -> dict[str, Any]:
    """Measures training for suggested goals, by the oracle and by a server, and with goals or captions shown."""
    kinds = {
        "none": "none",
        "ellm": "ellm --goal_suggester oracle",
        "ellm_server": "ellm --goal_suggester llm --answers judge",  # the rule-based judge, on the same cores
        # Studies on recorded answers
        "ellm_model": "ellm --goal_suggester model --reward_model_lr 1e-2 --reward_model_batch_size 512",
        "ellm_goal_conditioned": "ellm --goal_suggester oracle --goal_conditioned",
        "language_state": "none --language_state",
    }
    return measure_rewards("goals", kinds, repeats)


def measure_rewards(side: str, kinds: Mapping[str, str], repeats: int) -> dict[str, Any]:
    """Measures training on ELLM's Crafter with rewards against none; kinds: name -> type and other flags."""
    common = f"--root_env CrafterTextEnv-v1 {sized(REWARDED_FULL, SMALL)}"
    sides = {}
    for name, kind in kinds.items():
        reward_type, _, words = kind.partition(" ")
        sides[name] = functools.partial(crafter_training_rate, f"{common} {words}", reward_type)
    rates = alternate(sides, repeats)
    return {
        **{f"{side}_{name}_training_steps_per_sec": spread(found) for name, found in rates.items()},
        **{f"{side}_{name}_ratio_to_none": ratio(rates[name], rates["none"]) for name in rates if name != "none"},
    }


SIDES = {
    "training": measure_training,
    "online_cls": measure_online_cls,
    "crafter": measure_crafter,
    "random_babyai": measure_random_babyai,
    "random_crafter": measure_random_crafter,
    "goals": measure_goals,
    "curiosity": functools.partial(measure_rewards, "curiosity", {x: x for x in ("none", "rnd", "noveld", "apt")}),
}

_SIDES = flags.DEFINE_list("sides", list(SIDES), "What is measured.")


def main() -> None:
    if wrong := set(_SIDES.value) - set(SIDES):
        raise app.UsageError(f"--sides {','.join(sorted(wrong))}: there are {', '.join(SIDES)}")
    jax.config.update("jax_num_cpu_devices", num_cpu_devices(num_envs()))
    figures: dict[str, Any] = {}
    for name in _SIDES.value:
        figures |= SIDES[name](num_repeats())
    write_report(JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
