"""Players that pairs are collected from: random, or a trained policy. The scripted one is NetHack's."""

import os

import numpy as np

from oni_jax.envs.base import StepOutput
from oni_jax.envs.nethack.scripted import Player
from oni_jax.evaluation.agents import PolicyAgent
from oni_jax.host.run_files import CHECKPOINTS
from oni_jax.networks.policy import policy_and_shapes
from oni_jax.runs.checkpointing import restore_params
from oni_jax.settings.config import Config
from oni_jax.types import EnvSpec


def random_player(num_envs: int, num_actions: int, rng: np.random.Generator) -> Player:
    return lambda out: rng.integers(num_actions, size=num_envs, dtype=np.int32)


def checkpoint_player(folder: str, run: Config, spec: EnvSpec, num_envs: int, seed: int) -> Player:
    """Plays by the policy of a run's newest checkpoint, sampling actions. Raises UserError: there is none."""
    policy, shapes = policy_and_shapes(run.network, spec)
    env_steps, params = restore_params(os.path.join(folder, CHECKPOINTS), shapes)
    print(f"the policy after {env_steps:,} environment steps plays", flush=True)
    agent = PolicyAgent(policy, spec, params, seed, greedy=False)
    episodes, steps = np.stack([np.arange(num_envs), np.zeros(num_envs)]).astype(np.int32)

    def play(out: StepOutput) -> np.ndarray:
        is_first = out.records["is_first"]
        episodes[is_first] += num_envs
        steps[:] = np.where(is_first, 0, steps + 1)
        return agent.act(0, out.records, episodes, steps)

    return play
