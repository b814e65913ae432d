"""Reinforcement learning from an LLM's feedback, in JAX.

`train` trains an agent, `load_run` opens what was trained, `make_vec` makes environments for gymnasium; `register_*`
add environments, encoders, rewards and kinds of query of your own. Nothing here imports JAX before it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oni_jax.annotation.queries.registry import register_query
    from oni_jax.api import Run, load_run, make_vec, train
    from oni_jax.envs.registry import register_environment
    from oni_jax.host.reporting import reported_to
    from oni_jax.networks.registry import register_encoder
    from oni_jax.rewards.registry import register_reward
    from oni_jax.settings.config import Config
    from oni_jax.settings.fields import UserError

__version__ = "0.1.0"
__all__ = [
    "Config",
    "Run",
    "UserError",
    "__version__",
    "load_run",
    "make_vec",
    "register_encoder",
    "register_environment",
    "register_query",
    "register_reward",
    "reported_to",
    "train",
]
_MODULES = {
    "Config": "config",
    "UserError": "config",
    "Run": "api",
    "load_run": "api",
    "make_vec": "api",
    "train": "api",
    "register_encoder": "networks.registry",
    "register_environment": "envs.registry",
    "register_query": "annotation.queries.registry",
    "register_reward": "rewards.registry",
    "reported_to": "host.reporting",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'oni_jax' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"oni_jax.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
