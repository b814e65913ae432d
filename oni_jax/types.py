"""Types that pass between the parts. `Array` is a NumPy array on the host, a JAX array in the learner; no JAX here.

Axes: T unroll length, B batch (trajectories), A actions, M caption bytes, N environments of a group,
U unique captions of a batch, S slots of the ring, K episode statistics, D features, L devices.
Index t is the action taken at observation t, and its outcome.

trajectory: T steps of one environment and the observation after the last; may cross episodes
unroll: the T steps that make a trajectory, over which the recurrent core is run
episode: from a reset to a termination or a truncation
caption: text of an environment's state that an LLM can judge; may be empty
event: text of what an action did, apart from the caption; may be empty
message: NetHack's line, the caption of its states; also a message of HTTP or of a chat
item: what a query is about: one caption, or two to compare
query: an item and the question that the LLM is asked about it
answer: the LLM's reply to a query, as the kind of query encodes it
annotation: an item with its answer, or with none
group: environments of a process that step together, and are answered together
slot: part of the ring, filled by a group with one unroll: [T+1, N] records
shard: part of a batch, or of an array, on one device
replicated: in full on every device
primary process: process index 0; it saves, logs and queries the LLM
raw score: value of a caption before normalisation and threshold
episodic count: times that a caption was seen in the episode so far, this one included
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Array = Any
PyTree = Any
# (parameters, a device environment, its state) -> log-odds that an LLM would suggest each goal [G] float32; pure
GoalModelFn = Callable[[PyTree, Any, PyTree], Array]
Item = tuple[bytes, ...]

FIRST, SECOND, TIE, UNKNOWN = 0, 1, 2, 3  # labels of a pair: the better one, a tie, no label
EVERYTHING = "*"  # as a name: all observations that an environment shows by default
CAPTION = "caption"  # observation: see `envs.history`
GOAL_REWARD, OPEN_GOALS = "goal_reward", "open_goals"  # names of observations, see `envs.goals`
EPISODE_GOAL, GOAL_FEATURES = "episode_goal", "goal_features"  # names of observations, see `envs.episode_goals`
NO_MESSAGE = "(no message)"  # shown for an empty caption


class ArraySpec(NamedTuple):
    """Shape and dtype of one environment's array."""

    shape: tuple[int, ...]
    dtype: str
    num_ids: int = 0  # number of ids of an array of them: 0 ... num_ids - 1
    is_key: bool = False  # bytes [M] uint8 whose bits say a text, each its part
    highest: tuple[float, ...] = ()  # highest value of each channel of an image [H, W, C] uint8; (): unknown


class EnvSpec(NamedTuple):
    """Facts of an environment that policies and rewards depend on."""

    observations: Mapping[str, ArraySpec]
    num_actions: int
    has_captions: bool
    episode_stats: tuple[str, ...]  # names of the K numbers reported when an episode ends
    has_events: bool = False
    final_observations: tuple[str, ...] = ()  # names of those that a reward reads at an episode's end
    captions_read: tuple[str, ...] = ("before", "caused")  # ends whose captions a reward reads, see StepCaptions
    reads_counts: bool = True  # a reward reads the trajectories' episodic counts
    caption_size: int = 512  # bytes of the observation `caption`: the text, cut off; of a device environment, its key
    event_size: int = 512  # the same of events, where they are the captions
    goals: tuple[str, ...] = ()  # phrases of what an action can reach, see `envs.goals`
    achievements: tuple[str, ...] = ()  # those of `episode_stats` that are 1 where an episode has achieved them, else 0


class CaptionBatch(NamedTuple):
    """Captions of a batch's observations, on the host."""

    captions: Sequence[bytes]  # U unique captions, without zero bytes; may hold b""
    index: Array  # [T, B] int32, into captions
    observations: Mapping[str, Array] = {}  # at the captions' steps, each [T, B, ...]


class StepCaptions(NamedTuple):
    """Captions before and after a batch's steps."""

    before: CaptionBatch  # captions of the observations before the actions
    caused: CaptionBatch  # captions of the observations after them; at an episode's end, of its final observation


class Trajectory(NamedTuple):
    """B trajectories of T steps, as the learner and the rewards see them."""

    observations: Mapping[str, Array]  # each [T+1, B, ...]
    is_first: Array  # [T+1, B] bool; the observation is an episode's first
    before_counts: Array  # [T, B] float32; episodic count of the caption before it; NaN where no reward reads them
    caused_counts: Array  # [T, B] float32; episodic count of the caused caption; the same
    actions: Array  # [T, B] int32
    rewards: Array  # [T, B] float32; the environment's
    terminations: Array  # [T, B] bool; the episode ended with step t by its rules
    truncations: Array  # [T, B] bool; the episode was truncated after step t by the step limit
    truncation_values: Array  # [T, B] float32; value of the final observation of a truncated episode, else 0
    final_observations: Mapping[str, Array]  # those that rewards read, each [T, B, ...]; valid where an episode ended
    behaviour_logits: Array  # [T, B, A] float32
    values: Array  # [T, B] float32; by the network that acted
    policy_lags: Array  # [T, B] int32; versions between the network that acted and the newest
    initial_core_state: PyTree  # leaves [B, ...]; state of the recurrent core before observation 0
    policy_params: PyTree = ()  # the policy's before the update, replicated; given to the rewards alone


class RewardOutput(NamedTuple):
    """Rewards of a batch, and the reward's new state."""

    rewards: Array  # [T, B] float32; before the coefficient
    state: PyTree  # state with updated running statistics


class ModelState(NamedTuple):
    """A reward model's parameters and Adam's moments, on the device."""

    params: PyTree
    opt_state: PyTree


class Query(NamedTuple):
    """A query about an item, for the LLM."""

    item: Item
    question: int = 0  # index of the run's question: kind of query, prompt and model


class Annotation(NamedTuple):
    """An item with the LLM's answer."""

    item: Item
    answer: bytes | None  # as the kind of query encodes it; None: the item gets none in this run
    question: int = 0  # as in Query


class Answer(NamedTuple):
    """An LLM's answer about an item, for people to read."""

    item: Item
    said: str  # the answer in a word or two
    text: str  # the LLM's whole reply: untrusted, bounded in length
