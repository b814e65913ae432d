"""What an environment is to the rest of the program. Names nothing of any game."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from oni_jax.types import EnvSpec

STEP_FIELDS = [
    ("caption_id", "<i8"),  # of the observation's caption (envs/captions.py); 0: no captions
    ("caption_count", "<f4"),  # times seen in the episode, this time included
    ("is_first", "?"),  # the observation opens an episode
    # What the action before this observation brought:
    ("reward", "<f4"),
    ("terminated", "?"),  # the episode ended by its own rules
    ("truncated", "?"),  # the episode was cut off by the step limit
    ("outcome_caption_id", "<i8"),  # caption that the action led to; that of the final observation where it ended
    ("outcome_caption_count", "<f4"),
]


def record_dtype(spec: EnvSpec) -> np.dtype:
    """One environment's row of one step: its observation and STEP_FIELDS, aligned, in one block of bytes."""
    observations = [(name, f"{array.dtype}", array.shape) for name, array in spec.observations.items()]
    return np.dtype(observations + STEP_FIELDS, align=True)


class StepOutput(NamedTuple):
    """Memory of the caller's, which reset and step fill in place. N environments."""

    records: np.ndarray  # [N] record_dtype; after an end, the new episode's first observation
    finals: np.ndarray  # [N] record_dtype; where an episode ended: its final observation
    episode_stats: np.ndarray  # [N, K] float32; where an episode ended: its statistics


class VectorEnv(Protocol):
    """N environments stepped one after another in this process. An ended one starts anew by itself.

    Implementations write the observations and `is_first, reward, terminated, truncated`;
    the caption fields are written by `captions.CaptionTracker`, which any environment can use.
    Equal (seed, first_index + i) give equal episodes for equal actions, however many share a process.
    """

    spec: EnvSpec
    num_envs: int
    num_restarts: int  # environments that failed and were started anew

    def reset(self, out: StepOutput) -> None:
        """Starts every environment: rewards 0, no end, is_first True."""
        ...

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        """Takes actions [N] int32 in [0, num_actions) and fills `out`."""
        ...

    def note(self) -> str:
        """Of a started environment: how it runs, for the log; "" when there is nothing to say."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class SavableEnv(VectorEnv, Protocol):
    """One whose running episodes can be saved, and go on in another process."""

    def save(self) -> Mapping[str, np.ndarray]:
        """All that later steps depend on, between two steps."""
        ...

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """The inverse of `save`, which may be among others; in place of `reset`."""
        ...
