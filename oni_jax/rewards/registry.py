"""The reward types by name. A new one is its file and a line here."""

import functools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from oni_jax.config import Config, NetworkConfig, UserError
from oni_jax.networks.registry import policy_observations, torchbeast_observations
from oni_jax.plugins import load_plugins
from oni_jax.rewards.base import Reward
from oni_jax.types import EnvSpec

if TYPE_CHECKING:  # it brings JAX
    from oni_jax.parallel import Replicas
    from oni_jax.preferences.reward_model import RewardModel

GoalText = Callable[[], str]


class RewardType(NamedTuple):
    """What can be told of a type before anything is built."""

    make: Callable[[Config, EnvSpec, GoalText, "Replicas | None"], Reward]
    prompt_kind: str = ""  # what the LLM is asked: classification, ranking, or nothing
    threshold: float | None = None  # the default of eps_threshold_quantile; None: it has none
    soft: bool = False  # whether llm_reward_value=probability is offered
    needs: str = ""  # the setting that names its file or folder
    # Names of the observations that it reads beside the captions. UserError: what tells them can't be read.
    observations: Callable[[Config], Collection[str]] = lambda config: ()
    check: Callable[[Config], None] = lambda config: None  # of that one, what can be told at once; raises UserError


# What a type is made of is imported when it is made: some bring JAX, which takes seconds.
def _none(config: Config, spec: EnvSpec, goal: GoalText, replicas: "Replicas | None") -> Reward:
    return Reward()


def _retrieval(config: Config, spec: EnvSpec, goal: GoalText, replicas: "Replicas | None") -> Reward:
    from oni_jax.rewards.retrieval import RetrievalReward

    return RetrievalReward(config.reward)


def _classification(config: Config, spec: EnvSpec, goal: GoalText, replicas: "Replicas | None") -> Reward:
    from oni_jax.rewards.classification import ClassificationReward

    if config.network.encoder_msg_model == "none":
        raise UserError("--encoder_msg_model none: the classifier reads messages; name a message network")
    return ClassificationReward(config.reward, config.network.encoder_msg_model, config.run.seed, replicas)


def _ranking(config: Config, spec: EnvSpec, goal: GoalText, replicas: "Replicas | None") -> Reward:
    from oni_jax.networks.glyphs import make_ranking_network
    from oni_jax.rewards.ranking import RankingReward

    return RankingReward(config, spec, make_ranking_network(config.network), threshold(config), replicas)


def _motif(config: Config, spec: EnvSpec, goal: GoalText, replicas: "Replicas | None") -> Reward:
    from oni_jax.rewards.motif import MotifReward

    return MotifReward(config.reward, spec, _reward_model(config.reward.reward_dir), threshold(config))


@functools.lru_cache(maxsize=1)  # its network is asked for first, then the model itself
def _reward_model(folder: str) -> "RewardModel":
    from oni_jax.preferences.reward_model import load_reward_model

    return load_reward_model(folder)


def _beside_messages(network: NetworkConfig) -> Collection[str]:
    """What a ranking model's encoder reads beside the message, which is the caption."""
    return [name for name in torchbeast_observations(network) if name != "message"]


def _cosine(config: Config, spec: EnvSpec, goal: GoalText, replicas: "Replicas | None") -> Reward:
    from oni_jax.rewards.cosine import CosineReward

    return CosineReward(config.reward.word_vectors, goal(), config.reward.eps_threshold_quantile)


def _check_word_vectors(config: Config) -> None:
    from oni_jax.rewards.word_vectors import check_word_vectors

    check_word_vectors(config.reward.word_vectors)


def _check_reward_dir(config: Config) -> None:
    if not config.reward.reward_dir:
        raise UserError("--llm_reward_type motif: needs --reward_dir, the folder that launch.train_reward wrote")


_TYPES: dict[str, RewardType] = {
    "none": RewardType(_none),
    "online_cls": RewardType(_retrieval, "classification", soft=True),
    "online_cls_reward_model": RewardType(_classification, "classification", soft=True),
    "online_motif": RewardType(
        _ranking, "ranking", threshold=-0.5, observations=lambda config: _beside_messages(config.network)
    ),
    "motif": RewardType(
        _motif,
        threshold=0.5,
        needs="reward_dir",
        observations=lambda config: _beside_messages(_reward_model(config.reward.reward_dir).network),
        check=_check_reward_dir,
    ),
    "cosine-bow": RewardType(_cosine, threshold=0.0, needs="word_vectors", check=_check_word_vectors),
}
REWARD_TYPES = tuple(_TYPES)


def reward_type(config: Config) -> RewardType:
    """The type that `llm_reward_type` names. Raises UserError for an unknown one."""
    name = config.reward.llm_reward_type
    if name not in _TYPES:
        said = f"--llm_reward_type {name!r} is not known: use" if name else "--llm_reward_type must be given:"
        raise UserError(f"{said} one of {', '.join(REWARD_TYPES)}")
    return _TYPES[name]


def make_reward(
    config: Config, spec: EnvSpec, goal: GoalText = lambda: "", replicas: "Replicas | None" = None
) -> Reward:
    """The reward that `llm_reward_type` names.

    Args:
        spec: of the environment that it rewards.
        goal: tells the goal's sentences, as they stand in a prompt.
        replicas: the devices that share a reward model's gradient steps; all there are when left out.

    Raises:
        UserError: an unknown type, or settings or files that it can't work with.
    """
    return reward_type(config).make(config, spec, goal, replicas)


def observations_read(config: Config) -> Collection[str]:
    """Names of the observations that the policy or the reward reads. UserError: what tells them can't be read."""
    load_plugins(config.env.plugin)  # the encoder may be one's
    return {*policy_observations(config.network), *reward_type(config).observations(config)}


def threshold(config: Config) -> float:
    """`eps_threshold_quantile`, or the type's default. Raises UserError when it is no number."""
    text, default = config.reward.eps_threshold_quantile, reward_type(config).threshold
    if not text:
        return default or 0.0
    try:
        value = float(text)
        if abs(value) < float("inf"):
            return value
    except ValueError:
        pass
    raise UserError(f"--eps_threshold_quantile {text}: must be a number")


def check_reward(config: Config) -> None:
    """All that can be told of the reward's settings without building it. Raises UserError."""
    reward, kind = config.reward, reward_type(config)
    flag = f"--llm_reward_type {reward.llm_reward_type}"
    is_none = kind.make is _none
    if is_none and reward.llm_reward_coeff > 0:
        raise UserError(f"{flag}: needs --llm_reward_coeff 0, not {reward.llm_reward_coeff}")
    if not is_none and reward.llm_reward_coeff == 0:
        raise UserError(f"{flag}: needs --llm_reward_coeff above 0")
    if reward.llm_reward_value != "label" and not kind.soft:
        raise UserError(f"--llm_reward_value {reward.llm_reward_value}: not offered with {flag}")
    if kind.threshold is None and reward.eps_threshold_quantile:
        raise UserError(f"--eps_threshold_quantile {reward.eps_threshold_quantile}: has no meaning with {flag}")
    threshold(config)
    for name in ("reward_dir", "word_vectors"):
        value = getattr(reward, name)
        if value and kind.needs != name:
            raise UserError(f"--{name} {value}: has no meaning with {flag}")
    kind.check(config)
