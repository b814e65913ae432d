"""The types of reward that come with the package, without those that tests register."""

from oni_jax.rewards.registry import REWARD_TYPES

BUILT_IN = [name for name, kind in REWARD_TYPES.items() if kind.make.__module__.startswith("oni_jax.")]
