"""What an environment is to the rest of the program. Names nothing of any game."""

import os
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from oni_jax.config import EnvConfig
from oni_jax.types import EnvSpec

STEP_FIELDS = [
    ("caption_count", "<f4"),  # times that the observation's caption was seen in the episode, this time included
    ("is_first", "?"),  # the observation opens an episode
    # What the action before this observation brought:
    ("reward", "<f4"),
    ("terminated", "?"),  # the episode ended by its own rules
    ("truncated", "?"),  # the episode was cut off by the step limit
    ("outcome_caption_count", "<f4"),  # of the caption that the action led to; see TEXT_DTYPE
]
# The texts of one environment's step, by number (captions.py); 0: it has none. They stay on the host.
TEXT_DTYPE = np.dtype(
    [
        ("caption", "<i8"),  # of the observation
        ("outcome_caption", "<i8"),  # that the action led to; the final observation's where the episode ended
        ("event", "<i8"),  # what the action did
    ]
)


def record_dtype(spec: EnvSpec) -> np.dtype:
    """One environment's row of one step: its observation and STEP_FIELDS, aligned, in one block of bytes."""
    observations = [(name, f"{array.dtype}", array.shape) for name, array in spec.observations.items()]
    return np.dtype(observations + STEP_FIELDS, align=True)


class Texts(NamedTuple):
    """What N environments say, in bytes of any length and without padding."""

    captions: list[bytes]  # of the newest observations, for an LLM to judge
    final_captions: list[bytes]  # of the final observations, where an episode ended
    events: list[bytes]  # what the last actions did; empty at a reset


class StepOutput(NamedTuple):
    """Memory of the caller's, which reset and step fill in place. N environments."""

    records: np.ndarray  # [N] record_dtype; after an end, the new episode's first observation
    finals: np.ndarray  # [N] record_dtype; where an episode ended: its final observation
    episode_stats: np.ndarray  # [N, K] float32; where an episode ended: its statistics
    texts: Texts  # left alone by environments without captions and events


def make_texts(num_envs: int) -> Texts:
    """Empty ones."""
    return Texts(*([b""] * num_envs for _ in Texts._fields))


def make_step_output(spec: EnvSpec, num_envs: int) -> StepOutput:
    """Zeros and empty texts."""
    records, finals = np.zeros((2, num_envs), record_dtype(spec))
    stats = np.zeros((num_envs, len(spec.episode_stats)), np.float32)
    return StepOutput(records, finals, stats, make_texts(num_envs))


class VectorEnv(Protocol):
    """N environments stepped one after another in this process. An ended one starts anew by itself.

    Implementations write the observations, `is_first, reward, terminated, truncated` and the texts that their spec
    promises; numbers and counts of texts are written by `captions.CaptionTracker`, which any environment can use.
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
        return ""

    def close(self) -> None:
        pass


class SingleEpisode:
    """One episode of a vector of one environment, fresh. Step it no further than its end.

    Attributes:
      ended: whether it is over.
      stats: its statistics, once it is.
    """

    def __init__(self, env: VectorEnv):
        self._env, self._out = env, make_step_output(env.spec, 1)
        self.ended, self.stats = False, dict[str, float]()

    def begin(self, earlier: bytes = b"") -> np.ndarray:
        """Starts it, behind others of the actions `earlier`. Gives what is observed; the next step writes over it."""
        self._env.reset(self._out)
        for action in earlier:
            self._env.step(np.array([action], np.int32), self._out)
        return self._out.records[0]

    def act(self, action: int) -> np.ndarray:
        """Takes a step. Gives the record of what is observed then."""
        self._env.step(np.array([action], np.int32), self._out)
        record = self._out.records[0]
        if not (record["terminated"] or record["truncated"]):
            return record
        self.ended = True
        self.stats = dict(zip(self._env.spec.episode_stats, self._out.episode_stats[0].tolist()))
        return self._out.finals[0]

    def caption(self) -> bytes:
        """Of what was observed last."""
        texts = self._out.texts
        return (texts.final_captions if self.ended else texts.captions)[0]


@runtime_checkable
class SavableEnv(VectorEnv, Protocol):
    """One whose running episodes can be saved, and go on in another process."""

    def save(self) -> Mapping[str, np.ndarray]:
        """All that later steps depend on, between two steps."""
        ...

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """The inverse of `save`, which may be among others; in place of `reset`."""
        ...


class Language(NamedTuple):
    """How an environment's captions are put before an LLM, or before the rule-based judge."""

    prompts: str | os.PathLike  # folder of prompt files, <kind>_<version>.json
    judge_rules: str = ""  # module with the rules, see `annotation.judge_answers.Rules`; empty: there are none


class Environment(NamedTuple):
    """Tasks of one kind, which differ in their names."""

    names: Collection[str]
    make_spec: Callable[[str], EnvSpec]  # of a task: all that it can show
    # (settings, what is to be shown of it, number of environments, seed, first index): see `make_vector_env`
    make: Callable[[EnvConfig, EnvSpec, int, int, int], VectorEnv]
    on_request: Collection[str] = ()  # observations that are not shown unless they are asked for by name
    language: Language | None = None  # None: an LLM needs a --prompt_file, and the rule-based judge is not offered
