"""Builds the measured parts as a run builds them, on sampled data. Without flags, since tests use it too."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import ROOT_ENV
from benchmarks.reward_files import reward_settings
from benchmarks.samples import sample_batch, sample_records
from oni_jax.envs.base import record_dtype
from oni_jax.envs.registry import env_spec
from oni_jax.learner.loop import initial_key
from oni_jax.learner.loss import LossInputs, RewardCoeffs, loss_inputs, make_loss_fn
from oni_jax.learner.shards import pack_shards, shard_policy, shard_score
from oni_jax.learner.update import TrainState, jit_update, make_optimizer, make_update_fn
from oni_jax.networks.images import CONV_LAYERS, draw, make_window
from oni_jax.networks.policy import init_params, make_policy, with_tables
from oni_jax.ops.glyph_table import glyph_table
from oni_jax.ops.records import as_bytes
from oni_jax.parallel import Replicas
from oni_jax.rewards.registry import make_rewards
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values
from oni_jax.types import Array, PyTree, Trajectory
from oni_jax.worlds.actors.batches import PAYLOAD_SHARDING, make_unpack_fn
from oni_jax.worlds.actors.exchange import policy_record_dtype
from oni_jax.worlds.actors.policy_step import Calls, CoreStates, make_policy_step_fn

IMAGE_SIDE = 72


def config_of(batch_size: int = 1024, precision: str = "float32", reward_type: str = "none") -> Config:
    """Returns the default run's settings, with a batch size, a precision and a reward type."""
    values = dict(root_env=ROOT_ENV, batch_size=batch_size, precision=precision, llm_reward_type=reward_type)
    coeff = 0.0 if reward_type == "none" else 0.1
    return with_values(Config(), {**values, "llm_reward_coeff": coeff, **reward_settings(reward_type)})


class Update:
    """Our update as a run builds it, on a sampled batch.

    Args:
        config: of the run; the batch size is this process's.
        replicas: the devices that compute it together; one when left out.
    """

    def __init__(self, config: Config, replicas: Replicas | None = None):
        replicas = replicas or Replicas(jax.local_devices()[:1])
        spec = env_spec(config.env)
        policy = make_policy(config.network, spec)
        batch = sample_batch(config, spec, policy)
        rewards = make_rewards(config, spec, replicas)
        records = record_dtype(spec), policy_record_dtype(spec.num_actions)
        self.unpack = make_unpack_fn(spec, *records)
        self.packed = pack_shards(batch, PAYLOAD_SHARDING, rewards, replicas)
        optimizer, key = make_optimizer(config.learner), initial_key(0)
        params = init_params(policy, spec, key)
        self.state = replicas.put(TrainState(params, optimizer.init(params), rewards.init(key), key))
        self.coeffs = RewardCoeffs(config.reward.extrinsic_reward_coeff, rewards.coeffs)
        loss_fn = make_loss_fn(shard_policy(policy.apply, replicas), config.learner, self.coeffs)
        self.pure = make_update_fn(loss_fn, shard_score(rewards, replicas), optimizer, self.unpack)
        self._update = jit_update(self.pure, replicas.sharding())
        self.policy, self.rewards, self.captions, self.config = policy, rewards, batch.captions, config

    def run(self, num_updates: int) -> float:
        """Makes updates, waits for them, and returns the last one's loss."""
        metrics: Mapping[str, Any] = {}
        for _ in range(num_updates):
            self.state, metrics = self._update(self.state, self.packed, np.int32(0))
        return float(jax.block_until_ready((self.state, metrics))[1]["loss"])

    def lower(self, platform: str) -> jax.stages.Lowered:
        """Lowers an update for a platform that this machine may lack."""
        traced = jax.jit(self.pure).trace(self.state, self.packed, np.int32(0))
        return traced.lower(lowering_platforms=(platform,))

    def loss_inputs(self) -> tuple[Trajectory, LossInputs]:
        """Returns the unpacked batch, and the inputs of its loss."""
        trajectory = jax.jit(self.unpack)(self.packed.payload, np.int32(0))
        scored = self.rewards.score(self.state.reward_state, trajectory, self.packed.features, self.state.key)
        return trajectory, loss_inputs(trajectory, scored.rewards, self.config.learner, self.coeffs)


class PolicyStep:
    """The policy step of a group of `batch_size` games, always on the same observations."""

    def __init__(self, batch_size: int, precision: str = "float32"):
        config = config_of(precision=precision)
        spec = env_spec(config.env)
        policy = make_policy(config.network, spec)
        self.params = init_params(policy, spec, jax.random.key(0))
        acting = jax.jit(lambda params: with_tables(policy, params))(self.params)
        self._acting = acting, np.int32(0), initial_key(0)  # parameters, their version, key
        self.records = sample_records((batch_size,), spec, np.random.default_rng(0))
        self._states = CoreStates(*(policy.initial_state(batch_size) for _ in CoreStates._fields))
        self._step: Any = make_policy_step_fn(policy.apply, spec, self.records.dtype, batch_size)
        self._num_calls = 0
        self._calls = Calls(np.zeros(1, np.int32), np.ones(1, np.int32))
        self.network, self.num_actions = config.network, spec.num_actions

    def start(self) -> Array:
        """Starts a step on the host's packed records; its output is being copied back to the host."""
        self._num_calls += 1
        call, packed = np.uint32(self._num_calls), jnp.asarray(as_bytes(self.records))
        output, self._states = self._step(*self._states, *self._acting, call, packed, self._calls)
        output.copy_to_host_async()
        return output

    def lower(self, platform: str) -> jax.stages.Lowered:
        """Lowers a step for a platform that this machine may lack."""
        arguments = *self._states, *self._acting, np.uint32(0), as_bytes(self.records), self._calls
        return self._step.trace(*arguments).lower(lowering_platforms=(platform,))


def draw_images(chars: Array, colors: Array) -> Array:
    """Draws windows [..., 12, 12] as images [..., 3, 72, 72] uint8."""
    window = make_window(glyph_table(), 0.0, 1.0)
    images = draw(window(chars.reshape(-1, *chars.shape[-2:]), colors.reshape(-1, *colors.shape[-2:])))
    images = images.astype(jnp.uint8).transpose(0, 3, 1, 2)
    return images.reshape(*chars.shape[:-2], *images.shape[1:])


def flops_per_frame(params: PyTree, config: Config) -> int:
    """Counts FLOPs of a frame's update: each product forward, and backward for its kernel and for its input."""
    first = ("conv_0", "vector_0", "message_0")  # need no gradient of their input
    positions, side = {}, IMAGE_SIDE
    for i, (_, size, stride) in enumerate(CONV_LAYERS[config.network.rgbcrop.subtype]):
        side = (side - size) // stride + 1
        positions[f"conv_{i}"] = side**2
    total = 0
    for path, kernel in jax.tree_util.tree_leaves_with_path(params["params"]):
        if kernel.ndim > 1:
            layer = path[-2].key
            total += 2 * math.prod(kernel.shape) * positions.get(layer, 1) * (2 if layer in first else 3)
    return total
