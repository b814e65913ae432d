"""The reward types by name. A new one is its file and a line here."""

from collections.abc import Callable

from oni_jax.config import Config, UserError
from oni_jax.rewards.base import Reward
from oni_jax.rewards.retrieval import RetrievalReward

_MAKERS: dict[str, Callable[[Config], Reward]] = {
    "none": lambda config: Reward(),
    "online_cls": lambda config: RetrievalReward(),
}
REWARD_TYPES = tuple(_MAKERS)


def make_reward(config: Config) -> Reward:
    """The reward that `llm_reward_type` names. Raises UserError for an unknown one."""
    name = config.reward.llm_reward_type
    if name not in _MAKERS:
        raise UserError(f"--llm_reward_type {name!r} is not known: use one of {', '.join(REWARD_TYPES)}")
    return _MAKERS[name](config)
