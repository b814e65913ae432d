"""Messages of real games."""

import contextlib
from contextlib import closing
from typing import Any, cast

import numpy as np

from benchmarks.harness import ROOT_ENV
from oni_jax.envs.nethack.scripted import ScriptedPlayer
from oni_jax.envs.nethack.vector_env import OBSERVATIONS
from oni_jax.envs.registry import make_vector_env
from oni_jax.evaluation.playing import ENDLESS, Envs, play
from oni_jax.offline.play import SharedDraws
from oni_jax.settings.worlds import EnvConfig

NUM_GAMES = 32  # games of each player


def collect(num_messages: int, seed: int, num_games: int = NUM_GAMES) -> list[bytes]:
    """Plays games. Returns their unique non-empty messages, in order of first appearance."""
    config = EnvConfig(root_env=ROOT_ENV)
    rng = np.random.default_rng(seed)
    envs = [make_vector_env(config, num_games, seed, first, OBSERVATIONS) for first in (0, num_games)]
    agents = [ScriptedPlayer(cast(Any, envs[0]), rng), SharedDraws(envs[1].spec.num_actions, rng)]
    games = [Envs(lambda env=env, **_: env, env.spec, group_size=num_games) for env in envs]
    messages: dict[bytes, None] = {}
    with contextlib.ExitStack() as stack:
        played = [stack.enter_context(closing(play(game, agent, ENDLESS))) for game, agent in zip(games, agents)]
        for steps in played:
            next(steps)  # the games' beginnings
        while len(messages) < num_messages:
            for steps in played:
                texts = np.ascontiguousarray(next(steps).records["message"])
                messages.update(dict.fromkeys(texts.view(f"S{texts.shape[1]}").ravel().tolist()))
            messages.pop(b"", None)
    return list(messages)[:num_messages]
