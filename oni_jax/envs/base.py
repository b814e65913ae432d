"""The interface of environments to the rest of the program. Nothing here depends on a particular game."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from oni_jax.envs.spaces import Bounds
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import EnvSpec

if TYPE_CHECKING:  # it imports JAX
    from oni_jax.envs.device.base import DeviceEnv
    from oni_jax.envs.display import Display, Terminal  # it imports this

STEP_FIELDS = [
    ("caption_count", "<f4"),  # occurrences of the observation's caption in the episode so far
    ("is_first", "?"),  # the observation opens an episode
    # Outcome of the action before this observation:
    ("reward", "<f4"),
    ("terminated", "?"),  # the episode ended by its rules
    ("truncated", "?"),  # the episode was cut off by the step limit
    ("outcome_caption_count", "<f4"),  # as caption_count, of the outcome caption; see TEXT_DTYPE
]
# Ids of the texts of one environment's step (captions.py); 0: no text. They stay on the host.
TEXT_DTYPE = np.dtype(
    [
        ("caption", "<i8"),  # caption of the observation
        ("outcome_caption", "<i8"),  # caption that the action led to; the final observation's where the episode ended
    ]
)


def record_dtype(spec: EnvSpec) -> np.dtype:
    """Returns the aligned dtype of one environment's row of one step: its observations and STEP_FIELDS."""
    observations = [(name, f"{array.dtype}", array.shape) for name, array in spec.observations.items()]
    return np.dtype(observations + STEP_FIELDS, align=True)


class Texts(NamedTuple):
    """Texts of N environments, as bytes of any length, unpadded."""

    captions: list[bytes]  # captions of the newest observations, for an LLM to judge
    final_captions: list[bytes]  # captions of the final observations, where an episode ended
    events: list[bytes]  # effects of the last actions; empty at a reset


class StepOutput(NamedTuple):
    """Buffers of the caller for N environments, which `reset` and `step` fill in place."""

    records: np.ndarray  # [N] record_dtype; where an episode ended: the next one's first observation
    finals: np.ndarray  # [N] record_dtype; where an episode ended: its final observation
    episode_stats: np.ndarray  # [N, K] float32; where an episode ended: its statistics
    texts: Texts  # not written by environments without captions and events


def make_texts(num_envs: int) -> Texts:
    """Returns N empty texts of each kind."""
    return Texts(*([b""] * num_envs for _ in Texts._fields))


def make_step_output(spec: EnvSpec, num_envs: int) -> StepOutput:
    """Returns zeros and empty texts."""
    records, finals = np.zeros((2, num_envs), record_dtype(spec))
    stats = np.zeros((num_envs, len(spec.episode_stats)), np.float32)
    return StepOutput(records, finals, stats, make_texts(num_envs))


class VectorEnv(Protocol):
    """N environments stepped one after another in this process, each reset automatically at an episode's end.

    Implementations write the observations, `is_first, reward, terminated, truncated` and the texts that their spec
    promises; ids and counts of texts are written by `captions.CaptionTracker`, which any environment can use.
    Equal (seed, first_index + i) give equal episodes for equal actions, whatever N is.
    """

    spec: EnvSpec
    num_envs: int
    num_restarts: int  # environments that failed and were replaced

    def reset(self, out: StepOutput) -> None:
        """Starts an episode in every environment: rewards 0, terminated and truncated False, is_first True."""
        ...

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        """Takes actions [N] int32 in [0, num_actions) and fills `out`."""
        ...

    def note(self) -> str:
        """Returns a note for the log on how the started environments run; "" for none."""
        return ""

    def terminal(self) -> "Terminal | None":
        """Returns a copy of what the first environment looks like now; None: it has no looks."""
        return None

    def save(self) -> Mapping[str, np.ndarray]:
        """Returns, between two steps, all state that later steps depend on; {}: running episodes can't be saved."""
        return {}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned, instead of `reset`, in any process; `saved` may hold other keys too."""
        raise NotImplementedError

    def close(self) -> None:
        pass


class VectorEnvWrapper(VectorEnv):
    """Environments that show more, or other things, than those that they are made of; a base class."""

    def __init__(self, env: Any, spec: EnvSpec):
        self._env, self.spec, self.num_envs = env, spec, env.num_envs

    @property
    def num_restarts(self) -> int:  # type: ignore
        return self._env.num_restarts

    def __getattr__(self, name: str) -> Any:  # attributes for viewers: `display.WatchedEnv`
        return getattr(self._env, name)

    def note(self) -> str:
        return self._env.note()

    def terminal(self) -> "Terminal | None":
        return self._env.terminal()

    def save(self) -> Mapping[str, np.ndarray]:
        return self._env.save()

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._env.restore(saved)

    def close(self) -> None:
        self._env.close()


class Language(NamedTuple):
    """Prompts and rules by which an LLM, or the rule-based judge, labels an environment's captions."""

    prompts: str | os.PathLike  # folder of prompt files, <kind>_<version>.json
    judge_rules: str = ""  # module with the rules, see `annotation.judge_answers.Rules`; empty: no rules
    actions: Sequence[str] = ()  # the actions in words; empty: they have none
    name: str = ""  # name in files of recorded answers; empty: there are none
    # Observations that a generated code sees, with a name for each number, or () for nested lists; empty: all, as lists
    code: Mapping[str, Sequence[str]] = {}


class Environment(NamedTuple):
    """A family of tasks, each with a name."""

    names: Collection[str]
    make_spec: Callable[[EnvConfig], EnvSpec]  # spec of the task `root_env`, with all observations that it offers
    # (settings, spec with the observations to show, num_envs, seed, first_index); see `make_vector_env`
    make: Callable[[EnvConfig, EnvSpec, int, int, int], VectorEnv]
    settings: tuple[type, ...] = ()  # sections of EnvConfig that only such tasks read; a plugin's become flags
    on_request: Collection[str] = ()  # observations that are shown only when requested by name
    device: "Callable[[EnvConfig], DeviceEnv] | None" = None  # makes the task as pure functions on an accelerator
    labels_events: bool = False  # ONI's rewards label what actions did, not states, unless `--caption` says otherwise
    language: Language | None = None  # None: an LLM needs a --prompt_file, and there is no rule-based judge
    about: str = ""  # a line for --help root_env
    encoder: str = ""  # policy encoder that fits these tasks; empty: see `networks.registry.fitting_encoder`
    random_play: str | os.PathLike = ""  # file of its returns, see `envs.random_play`; empty: nobody has measured them
    bounds: Callable[[EnvConfig], Mapping[str, Bounds]] = lambda config: {}  # known bounds of observations
    display: "Display | None" = None  # None: it is shown as its captions, and people can't play it
    # Most steps of an episode by the rules of an environment of the host; None: it may go on
    limit: Callable[[EnvConfig], int | None] = lambda config: None
