"""Messages of real games."""

from typing import Any, cast

import numpy as np

from benchmarks.harness import ROOT_ENV
from oni_jax.envs.base import make_step_output
from oni_jax.envs.nethack.scripted import ScriptedPlayer
from oni_jax.envs.nethack.vector_env import OBSERVATIONS
from oni_jax.envs.registry import make_vector_env
from oni_jax.offline.play import random_player
from oni_jax.settings.worlds import EnvConfig

NUM_GAMES = 32  # of each player


def collect(num_messages: int, seed: int, num_games: int = NUM_GAMES) -> list[bytes]:
    """Plays games. Returns their unique non-empty messages, in order of first appearance."""
    config = EnvConfig(root_env=ROOT_ENV)
    rng = np.random.default_rng(seed)
    envs = [make_vector_env(config, num_games, seed, first, OBSERVATIONS) for first in (0, num_games)]
    players = [ScriptedPlayer(cast(Any, envs[0]), rng), random_player(num_games, envs[1].spec.num_actions, rng)]
    outs = [make_step_output(env.spec, env.num_envs) for env in envs]
    messages: dict[bytes, None] = {}
    try:
        for env, out in zip(envs, outs):
            env.reset(out)
        while len(messages) < num_messages:
            for env, player, out in zip(envs, players, outs):
                env.step(player(out), out)
                texts = np.ascontiguousarray(out.records["message"])
                messages.update(dict.fromkeys(texts.view(f"S{texts.shape[1]}").ravel().tolist()))
            messages.pop(b"", None)
    finally:
        for env in envs:
            env.close()
    return list(messages)[:num_messages]
