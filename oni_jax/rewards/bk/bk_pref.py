"""BK-Pref: a potential that a Preference Transformer gives, trained on an LLM's comparisons of segments.

The potential of a state is the value of the step that led to it. The transformer reads the states before; each state of
a batch is embedded once, for all the windows that it is in.
"""

import functools
from collections.abc import Collection, Mapping

import jax
import jax.numpy as jnp

from oni_jax.envs.history import ACTIONS, NO_ACTION, TIMES, past_name
from oni_jax.envs.registry import env_spec
from oni_jax.host.run_files import trained_at
from oni_jax.rewards.base import Reward, Seen
from oni_jax.rewards.bk.potential import PUBLISHED, PotentialScorer, shape
from oni_jax.rewards.bk.preference_model import PreferenceModel, load_preference_model, make_network, names_read
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.types import Array, EnvSpec, PyTree


class PreferencePotential(PotentialScorer):
    """Values windows by a trained network, on the device.

    Args:
        model: the network's settings and parameters.
        spec: spec of the environment.
        at_both_ends: the steps are those of a batch, and then those that they lead to, see `combine.Potential`.
        warmup_steps: see `PotentialScorer`.
    """

    def __init__(self, model: PreferenceModel, spec: EnvSpec, at_both_ends: bool, warmup_steps: int):
        super().__init__(warmup_steps)
        self._model, self._at_both_ends = model, at_both_ends
        self._network = make_network(model.settings, spec)
        self._names = list(names_read(model.settings, spec))
        self._horizon = model.settings.horizon
        past = [past_name(self._horizon, name) for name in (*self._names, ACTIONS, TIMES)]
        self.other_observations = [*self._names, *past]

    def init_params(self) -> PyTree:
        return jax.tree.map(jnp.asarray, self._model.params)

    def phi(self, params: PyTree, seen: Seen, features: Mapping[str, Array]) -> Array:
        horizon, shown = self._horizon, seen.observations
        actions, times = (_windows_first(shown[past_name(horizon, name)]) for name in (ACTIONS, TIMES))
        num_rows, num_trajectories = seen.index.shape
        num_steps = num_rows // 2 if self._at_both_ends else num_rows

        def states(name: str) -> Array:
            """All states that windows hold: those before the batch, and the batch's."""
            before = jnp.moveaxis(shown[past_name(horizon, name)][0], 1, 0)
            x = jnp.concatenate([before, shown[name][:num_steps]])
            return x.reshape(-1, *x.shape[2:])

        embedded = self._network.apply(params, {name: states(name) for name in self._names}, method="embed")
        embedded = jnp.reshape(embedded, (horizon + num_steps, num_trajectories, -1))  # type: ignore
        # Row t of these is the oldest of the window at step t; before an episode's start, its first state stands in.
        offsets = jnp.arange(num_steps)
        steps = jnp.concatenate([offsets, offsets + 1]) if self._at_both_ends else offsets
        num_before = jnp.sum(shown[past_name(horizon, ACTIONS)] == NO_ACTION, axis=-1)
        rows = steps[:, None, None] + jnp.maximum(jnp.arange(horizon), num_before[..., None])
        windows = embedded[rows, jnp.arange(num_trajectories)[:, None]]
        values = self._network.apply(params, _windows_first(windows), actions, times, method="last_values")
        return jnp.reshape(values, (num_rows, num_trajectories))  # type: ignore


def _windows_first(x: Array) -> Array:
    """[S, B, ...] -> [S B, ...]."""
    return x.reshape(-1, *x.shape[2:])


def trained_preferences(folder: str) -> PreferenceModel:
    """Reads the model that launch.train_potential wrote. Raises UserError: it can't be read."""
    return _trained_preferences(folder, trained_at(folder))


@functools.lru_cache(maxsize=1)  # read for its observations, then for the model itself
def _trained_preferences(folder: str, saved_at: int) -> PreferenceModel:
    return load_preference_model(folder)


def observations(config: Config) -> Collection[str]:
    reward, trained = config.reward, trained_preferences(config.reward.reward_dir).settings
    num_actions = env_spec(config.env).num_actions
    if trained.num_actions != num_actions:
        raise UserError(
            f"--reward_dir {reward.reward_dir}: was trained with {trained.num_actions} actions, and "
            f"{config.env.root_env} has {num_actions}"
        )
    if trained.horizon != reward.potential.horizon:
        raise UserError(
            f"--potential_horizon {reward.potential.horizon}: {reward.reward_dir} was trained on segments of "
            f"{trained.horizon} steps; give --potential_horizon {trained.horizon}"
        )
    return _scorer(config).other_observations


def _scorer(config: Config) -> PreferencePotential:
    model, reward = trained_preferences(config.reward.reward_dir), config.reward
    is_published = reward.potential.shaping == PUBLISHED
    return PreferencePotential(model, env_spec(config.env), not is_published, reward.potential.warmup_steps)


def make(context: RewardContext) -> Reward:
    return shape(context, _scorer(context.config))
