"""Windows drawn from recorded episodes, or from random play."""

from collections.abc import Sequence

import numpy as np

from oni_jax.evaluation.config import RANDOM
from oni_jax.evaluation.players import chosen_players
from oni_jax.host.runtime import StopRequest
from oni_jax.rewards.bk.windows import Windows
from oni_jax.segments.collection import play
from oni_jax.segments.config import SegmentsConfig, as_evaluation
from oni_jax.segments.episodes import Segment
from oni_jax.settings.worlds import EnvConfig


def windows_of(segments: Sequence[Segment]) -> Windows:
    """Returns the windows that segments of H steps end with."""
    steps = {name: np.stack([own.observations[name] for own in segments]) for name in segments[0].observations}
    return Windows(steps, np.stack([own.actions for own in segments]))


def random_episodes(env: EnvConfig, num_episodes: int, seed: int, stop: StopRequest) -> list[Segment]:
    """Plays episodes with random actions. Raises UserError: there is no such task."""
    config = SegmentsConfig(policy=RANDOM, episodes=num_episodes, seed=seed)
    (player,) = chosen_players(as_evaluation(config), env, None, RANDOM)
    return list(play(player, config, 0, stop))
