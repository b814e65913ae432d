"""Inputs of curiosity: observations, or the policy's encoding of them, normalised by running moments."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import cast

import jax
import jax.numpy as jnp

from oni_jax import parallel
from oni_jax.envs.registry import env_spec
from oni_jax.networks.encoder import is_numeric
from oni_jax.networks.generic import make_mlp_encoder
from oni_jax.networks.registry import find_encoder, policy_observations
from oni_jax.ops.moments import Moments, merge_moments, no_moments, normalise
from oni_jax.rewards.combine import observations_after
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.fields import UserError
from oni_jax.types import OPEN_GOALS, Array, ArraySpec, PyTree, Trajectory

Inputs = Mapping[str, Array]  # each [T, B, ...]


class Observations:
    """The observations that the policy reads, after each step; for networks with an encoder as the policy's.

    Goals are left out: a state is no newer for being seen with another goal. Observations that are numbers, rather than
    ids, are float32 and to be normalised.

    Args:
        context: context of the reward.
        goals: True if the encoder has an input for open goals.

    Attributes:
        names: names of the observations.
        inputs: shapes, and types before they are float32, of what `read` returns.
        encoder: encoder of these observations.
    """

    def __init__(self, context: RewardContext, goals: bool = False):
        # Few bits would add errors where a prediction is good.
        network = dataclasses.replace(context.config.network, precision="float32", goal_conditioned=goals)
        spec = env_spec(context.config.env, policy_observations(network))
        self.names, self.inputs = tuple(spec.observations), spec.observations
        self.encoder = find_encoder(network, spec).make(network, spec)

    @functools.cached_property
    def _numeric(self) -> list[str]:
        return [name for name, x in self.inputs.items() if is_numeric(self.encoder, x)]

    def read(self, trajectory: Trajectory) -> Inputs:
        # BK: after an episode's end, the next one's first observation.
        return self._inputs({name: observations_after(trajectory, name) for name in self.names}, trajectory)

    def read_before(self, trajectory: Trajectory) -> Inputs:
        return self._inputs({name: trajectory.observations[name][:-1] for name in self.names}, trajectory)

    def zeros(self) -> Inputs:
        """Returns inputs of one step, [1, ...] each, to initialise networks with."""
        return self._numbers({name: jnp.zeros((1, *x.shape), x.dtype) for name, x in self.inputs.items()})

    def no_moments(self) -> Mapping[str, Moments]:
        """Returns the moments of no inputs, of each element of those that are numbers."""
        return {name: no_moments(self.inputs[name].shape) for name in self._numeric}

    def _inputs(self, observations: Inputs, trajectory: Trajectory) -> Inputs:
        return self._numbers(observations)

    def _numbers(self, inputs: Inputs) -> Inputs:
        return {**inputs, **{name: inputs[name].astype(jnp.float32) for name in self._numeric}}


class PolicyFeatures(Observations):
    """The policy's encoding of these observations, by its newest parameters; for networks of dense layers."""

    # ELLM: the encoding of the observation before the step.
    def __init__(self, context: RewardContext):
        if context.frozen:
            raise UserError(
                "--rnd_features policy: reads the policy's parameters, which only training has: its reward can't be "
                "computed afterwards"
            )
        network = dataclasses.replace(context.config.network, precision="float32")
        # The addition by --goal_input goes to the encoding, and the encoder does not read it.
        super().__init__(context, goals=network.goal_conditioned and not network.goal_input)
        self._encode = self.encoder.apply
        zeros = {name: jnp.zeros((1, *x.shape), x.dtype) for name, x in self.inputs.items()}
        encoded, _ = jax.eval_shape(self.encoder.init_with_output, jax.random.key(0), zeros)
        self.inputs = {"features": ArraySpec(encoded.shape[1:], "float32")}
        spec = env_spec(context.config.env)._replace(observations=self.inputs)
        self.encoder = make_mlp_encoder(network, spec)

    def _inputs(self, observations: Inputs, trajectory: Trajectory) -> Inputs:
        params = {"params": trajectory.policy_params["params"]["encoder"]}
        if OPEN_GOALS in observations:
            observations = {**observations, OPEN_GOALS: jnp.zeros_like(observations[OPEN_GOALS])}
        features = cast(Array, self._encode(params, merged(observations)))
        return {"features": features.reshape(*trajectory.rewards.shape, -1)}


READERS = {"observations": Observations, "policy": PolicyFeatures}  # --rnd_features -> reader

MAX_NORMALISED = 5.0


def normalised(inputs: Inputs, moments: Mapping[str, Moments]) -> Inputs:
    """Returns the inputs, those with moments normalised and clipped."""
    normalised = {name: normalise(inputs[name], statistics) for name, statistics in moments.items()}
    # BK: the statistics before this batch; in the beginning, mean 0 and variance 1.
    return {**inputs, **{name: jnp.clip(x, -MAX_NORMALISED, MAX_NORMALISED) for name, x in normalised.items()}}


def merged(inputs: Inputs) -> Inputs:
    """Returns inputs [T, B, ...] as [T B, ...]."""
    return {name: x.reshape(-1, *x.shape[2:]) for name, x in inputs.items()}


def track(moments: Moments, x: Array) -> Moments:
    """Merges in the moments of the batch of which x [T, B, ...] is this device's shard; every batch weighs 1."""
    mean = parallel.mean(jnp.mean(x, axis=(0, 1)))
    variance = parallel.mean(jnp.mean((x - mean) ** 2, axis=(0, 1)))
    return merge_moments(moments, Moments(mean, variance, jnp.float32(1)))


def drawn_steps(key: Array, shape: tuple[int, ...], proportion: float) -> Array:
    """Draws the steps of a batch that are learnt from, [K, B] int32: equally many of each trajectory.

    Args:
        key: the same on every device.
        shape: [T, B] of this device's shard.
        proportion: K / T.
    """
    # BK: each step of the batch by itself, with that probability; the others are masked, and cost as much.
    whole = parallel.all_gather(jnp.zeros(shape), axis=1).shape
    draws = parallel.local_shard(jax.random.uniform(key, whole), axis=1)
    return jnp.argsort(draws, axis=0)[: max(1, round(proportion * shape[0]))]


def rows_at(tree: PyTree, index: Array) -> PyTree:
    """Returns steps [K, B, ...] of arrays [T, B, ...], by index [K, B]."""
    columns = jnp.arange(index.shape[1])
    return jax.tree.map(lambda x: x[index, columns], tree)
