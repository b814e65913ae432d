"""Settings, for plugins and scripts: what `oni_jax.settings` offers, under one name."""

from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config, check_config, check_values, config_from_json, config_to_json
from oni_jax.settings.fields import UserError, nearest, setting, settings, with_values
from oni_jax.settings.learning import LearnerConfig, NetworkConfig, PretrainedConfig
from oni_jax.settings.plugins import section_of
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import (
    ActorConfig,
    BabyAIConfig,
    CrafterConfig,
    DevicesConfig,
    EnvConfig,
    GoalConfig,
    NetHackConfig,
)

__all__ = [
    "ActorConfig",
    "AnnotationConfig",
    "BabyAIConfig",
    "Config",
    "CrafterConfig",
    "DevicesConfig",
    "EnvConfig",
    "GoalConfig",
    "LearnerConfig",
    "NetHackConfig",
    "NetworkConfig",
    "PretrainedConfig",
    "RewardConfig",
    "RunConfig",
    "UserError",
    "check_config",
    "check_values",
    "config_from_json",
    "config_to_json",
    "nearest",
    "section_of",
    "setting",
    "settings",
    "with_values",
]
