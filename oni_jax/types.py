"""The data that passes between the parts.

Axes: T unroll length, B batch (trajectories), A actions, M caption bytes, N environments of a group,
U distinct captions of a batch, S slots of the ring, K episode statistics, D features, L devices.
Index t is the action taken at observation t and what came of it. This module never imports JAX:
`Array` is a NumPy array in the actors and on the host, a JAX array in the learner.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Array = Any
PyTree = Any
Item = tuple[bytes, ...]  # texts that a query is about

# Labels of pairs: which is better. UNKNOWN: there is none.
FIRST, SECOND, TIE, UNKNOWN = 0, 1, 2, 3
EVERYTHING = "*"  # in place of names: all observations that an environment shows without being asked
NO_MESSAGE = "(no message)"  # how an empty one is shown


class ArraySpec(NamedTuple):
    """Shape and NumPy type name of one environment's array."""

    shape: tuple[int, ...]
    dtype: str
    num_ids: int = 0  # of an array of ids: they are 0 ... num_ids - 1


class EnvSpec(NamedTuple):
    """What a policy and a reward need to know of an environment."""

    observations: Mapping[str, ArraySpec]
    num_actions: int
    has_captions: bool  # whether its observations come with texts that an LLM can judge
    episode_stats: tuple[str, ...]  # names of the K numbers reported when an episode ends
    has_events: bool = False  # whether it says what an action did
    final_observations: tuple[str, ...] = ()  # of ended episodes, that a reward reads


class CaptionBatch(NamedTuple):
    """Captions of a batch's observations, on the host."""

    messages: Sequence[bytes]  # U distinct captions, zeros dropped; may hold b""
    index: Array  # [T, B] int32, into messages
    observations: Mapping[str, Array] = {}  # those that the captions are of, each [T, B, ...]


class StepCaptions(NamedTuple):
    """The captions at both ends of a batch's steps."""

    own: CaptionBatch  # of the observations before the actions
    caused: CaptionBatch  # that the actions led to: where an episode ended, of its final observation


class Trajectory(NamedTuple):
    """B trajectories of T steps, as the learner and the rewards see them."""

    observations: Mapping[str, Array]  # each [T+1, B, ...]
    is_first: Array  # [T+1, B] bool; the observation opens an episode
    # [T, B] float32; times that the own or caused caption was seen in the episode, this time included
    own_counts: Array
    caused_counts: Array
    actions: Array  # [T, B] int32
    rewards: Array  # [T, B] float32; the environment's
    terminations: Array  # [T, B] bool; the episode ended with step t by its own rules
    truncations: Array  # [T, B] bool; the episode was cut off with step t by the step limit
    truncation_values: Array  # [T, B] float32; value of the final observation of a truncated episode, else 0
    final_observations: Mapping[str, Array]  # that rewards read, each [T, B, ...]; only where an episode ended
    behaviour_logits: Array  # [T, B, A] float32
    values: Array  # [T, B] float32; by the network that acted
    policy_lags: Array  # [T, B] int32; versions between the network that acted and the newest
    initial_core_state: PyTree  # leaves [B, ...]; state of the recurrent core before observation 0


class RewardOutput(NamedTuple):
    """What scoring a batch gives."""

    rewards: Array  # [T, B] float32; before the coefficient
    state: PyTree  # the reward's state, running statistics brought up to date


class ModelState(NamedTuple):
    """A reward model's parameters and Adam's moments, on the device."""

    params: PyTree
    opt_state: PyTree


class Query(NamedTuple):
    """What the LLM is to be asked about: one message, say, or two."""

    item: Item
    question: int = 0  # which of those that the run asks: by a kind of query, a prompt, and a model


class Annotation(NamedTuple):
    """The LLM's answer about one item."""

    item: Item
    answer: bytes | None  # as the kind of query keeps it; None: there is none in this run
    question: int = 0  # as in Query


class Answer(NamedTuple):
    """What the LLM said about one item, for people to read."""

    item: Item
    said: str  # in a word or two
    text: str  # of anybody's making, bounded in length
