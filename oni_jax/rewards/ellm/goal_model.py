"""A model of what an LLM suggests, learnt from its answers and evaluated in the rollout: goals are open at first sight.

It reads what captions say (`DeviceEnv.caption_features`), and then learns from every answer, recorded ones of states
that were never met included; or else observations through the policy's kind of encoder, and learns from what was met.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from oni_jax.envs.device.base import DeviceEnv
from oni_jax.envs.device.goals import SUGGESTED
from oni_jax.host.reporting import report
from oni_jax.parallel import Replicas
from oni_jax.rewards.trainer import Noise, Passes, RewardTrainer
from oni_jax.settings.rewards import RewardConfig
from oni_jax.types import Array, ArraySpec, CaptionBatch, ModelState, PyTree

HIDDEN_SIZE = 64
UNLIKELY = -3.0  # log-odds of every goal before there are answers
NUM_PASSES = 50  # times that an answer is drawn when it is new
NUM_FRESH_STEPS = 500  # more of them where all answers are new
STEPS_AT_ONCE = 64  # gradient steps between two updates of the policy
HELD_OUT, NUM_HELD_OUT = 10, 512  # one answer in so many is not learnt from, and the newest of these check the model
CHECKED_EVERY, NUM_BINS = 32, 10  # batches; bins of the probabilities whose calibration is checked
FALL = 0.05  # fall of the agreement with held-out answers from which on there is a warning
KNOWN_WELL = 0.1  # expected number of wrong goals below which nothing is asked
CHUNK = 256  # states valued at a time: one shape, so that it is compiled once
FEATURES, CODE, TARGET, CODE_SIZE = "features", "code", "target", 8

Inputs = Mapping[str, Array]  # inputs of the network, each [N, ...]


class Reader(Protocol):
    """The source of a goal model's inputs: a state on the device, or what was met on the host."""

    columns: Mapping[str, ArraySpec]

    def of_state(self, env: DeviceEnv, state: PyTree) -> Inputs:
        """Returns the inputs of one state, without the first axis."""
        ...

    def of_item(self, item: bytes) -> Mapping[str, np.ndarray] | None:
        """Returns the model's inputs for an item; None: the text alone does not say them."""
        ...

    def of_step(self, captions: CaptionBatch, step: int) -> Mapping[str, np.ndarray] | None:
        """Returns the inputs of a step of a batch; None: its caption says all."""
        ...


class CaptionReader(Reader):
    """Reads what captions say.

    Args:
        env: whose captions have features.
    """

    def __init__(self, env: DeviceEnv):
        self._env = env
        self.columns = {FEATURES: ArraySpec((env.num_caption_features,), "float32")}

    def of_state(self, env: DeviceEnv, state: PyTree) -> Inputs:
        return {FEATURES: env.caption_features(state)}

    def of_item(self, item: bytes) -> Mapping[str, np.ndarray] | None:
        features = self._env.read_caption(item)
        return None if features is None else {FEATURES: features}

    def of_step(self, captions: CaptionBatch, step: int) -> Mapping[str, np.ndarray] | None:
        return None


class ObservationReader(Reader):
    """Reads observations.

    Args:
        columns: their names and shapes.
    """

    def __init__(self, columns: Mapping[str, ArraySpec]):
        self.columns = columns

    def of_state(self, env: DeviceEnv, state: PyTree) -> Inputs:
        observations = env.observe(state)
        return {name: observations[name] for name in self.columns}

    def of_item(self, item: bytes) -> Mapping[str, np.ndarray] | None:
        return None

    def of_step(self, captions: CaptionBatch, step: int) -> Mapping[str, np.ndarray] | None:
        at = np.unravel_index(step, captions.index.shape)
        return {name: captions.observations[name][at] for name in self.columns}


class GoalNetwork(nn.Module):
    """Logits of the goals: a hidden layer on the features of captions, or on an encoder's of observations."""

    num_goals: int
    encoder: nn.Module | None = None

    @nn.compact
    def __call__(self, inputs: Inputs) -> Array:
        """{name: [N, ...]} -> [N, G]."""
        x = inputs[FEATURES] if self.encoder is None else self.encoder(inputs).astype(jnp.float32)
        x = nn.relu(nn.Dense(HIDDEN_SIZE)(x))
        unlikely = nn.initializers.constant(UNLIKELY)
        return nn.Dense(self.num_goals, kernel_init=nn.initializers.zeros, bias_init=unlikely)(x)


def jaccard(found: Array, right: Array) -> Array:
    """Returns how far sets of goals agree [N]: goals in both over goals in either; 1 where both are empty."""
    both, either = (found & right).sum(-1), (found | right).sum(-1)
    return jnp.where(either > 0, both / jnp.maximum(1, either), 1.0)


class GoalModel:
    """A network that learns which goals an LLM suggests.

    Args:
        reader: reader of its inputs.
        network: network of the goals' logits.
        config: settings of the gradient steps.
        seed: seed of their batches.
        replicas: their devices; all there are when left out.
        capacity: answers held; the oldest are replaced.
    """

    def __init__(
        self,
        reader: Reader,
        network: GoalNetwork,
        config: RewardConfig,
        seed: int,
        replicas: Replicas | None,
        capacity: int,
    ):
        self.reader, self._network = reader, network
        target, code = ArraySpec((network.num_goals,), "float32"), ArraySpec((CODE_SIZE,), "uint8")
        columns = {**reader.columns, TARGET: target, CODE: code}
        model = dataclasses.replace(config.model, dataset_size=min(config.model.dataset_size, capacity))
        config = dataclasses.replace(config, model=model)
        schedule = Passes(NUM_PASSES, model.batch_size, NUM_FRESH_STEPS)
        self._trainer = RewardTrainer(columns, self._loss, config, seed, replicas=replicas, schedule=schedule)
        self._learnt: set[bytes] = set()  # codes of items
        self._held_out = {name: np.zeros((NUM_HELD_OUT, *x.shape), x.dtype) for name, x in columns.items()}
        self._num_held_out, self._num_batches, self._best = 0, 0, 0.0
        self._checks: Mapping[str, Array] = {}
        self._check = jax.jit(self._checked)
        self._predict = jax.jit(lambda params, inputs: jax.nn.sigmoid(network.apply(params, inputs)))  # type: ignore
        self.params: PyTree = None  # the newest that `use` was given

    def init(self, key: Array) -> ModelState:
        inputs = {name: jnp.zeros((1, *column.shape), column.dtype) for name, column in self.reader.columns.items()}
        return self._trainer.init(jax.jit(self._network.init)(key, inputs))

    def log_odds(self, params: PyTree, env: Any, state: PyTree) -> Array:
        """Returns log-odds that each goal is suggested for a state of an environment [G]; pure."""
        return _log_odds(self.reader, self._network, params, env, state)

    def with_params(self, params: PyTree) -> Callable[[Any, PyTree], Array]:
        """Returns the same function of an environment and its state, which other processes can be sent."""
        return functools.partial(_log_odds, self.reader, self._network, jax.tree.map(np.asarray, params))

    def use(self, state: ModelState) -> PyTree:
        """Returns the parameters to act with, and checks them now and then."""
        self.params = state.params
        if self._num_held_out and self._num_batches % CHECKED_EVERY == 0:
            is_used = np.arange(NUM_HELD_OUT) < self._num_held_out
            self._checks = jax.device_get(self._check(self.params, self._held_out, is_used))
            self._warn(float(self._checks["goals_agreement"]))
        self._num_batches += 1
        return self.params

    def _warn(self, agreement: float) -> None:
        if agreement < self._best - FALL and not self._trainer.num_due:
            report(
                f"warning: the goal model agrees with {agreement:.0%} of the newest answers that it has not learnt "
                f"from, earlier with {self._best:.0%}: the policy has come to other states; more answers would help"
            )
            self._best = agreement
        self._best = max(self._best, agreement)

    def knows(self, item: bytes) -> bool:
        """Returns whether an item's answer has been taken in."""
        return _code(item) in self._learnt

    def learn(self, items: Sequence[bytes], inputs: Sequence[Mapping[str, np.ndarray]], worths: Sequence[Any]) -> None:
        """Takes in new answers: items, the model's inputs, and what the goals are worth [G + 1]."""
        rows = [
            {
                **columns,
                TARGET: (np.asarray(worth)[:-1] > 0).astype(np.float32),
                CODE: np.frombuffer(_code(item), np.uint8),
            }
            for item, columns, worth in zip(items, inputs, worths, strict=True)
        ]
        self._learnt.update(map(_code, items))
        kept = []
        for row in rows:
            if int(row[CODE][0]) % HELD_OUT == 0:
                for name, column in self._held_out.items():
                    column[self._num_held_out % NUM_HELD_OUT] = row[name]
                self._num_held_out += 1
            else:
                kept.append(row)
        if kept:
            self._trainer.append({name: np.stack([row[name] for row in kept]) for name in kept[0]})

    def expected_wrong(self, inputs: Sequence[Mapping[str, np.ndarray]], params: PyTree = None) -> np.ndarray:
        """Returns how many goals of each state the model expects to get wrong [N] float32; `params`: the newest."""
        probabilities = self.predict(self.params if params is None else params, inputs)
        return np.minimum(probabilities, 1 - probabilities).sum(-1)

    def predict(self, params: PyTree, inputs: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
        """Returns how probably each goal is suggested in N states [N, G] float32."""
        found = []
        for first in range(0, len(inputs), CHUNK):
            rows = inputs[first : first + CHUNK]
            padded = {
                name: np.stack(
                    [*(row[name] for row in rows), *[np.zeros(column.shape, column.dtype)] * (CHUNK - len(rows))]
                )
                for name, column in self.reader.columns.items()
            }
            found.append(np.asarray(self._predict(params, padded))[: len(rows)])
        return np.concatenate(found) if found else np.zeros((0, self._network.num_goals), np.float32)

    def steps_due(self) -> int:
        return self._trainer.num_due

    def train(self, state: ModelState) -> ModelState:
        """Makes the gradient steps that are due, at most STEPS_AT_ONCE."""
        for _ in range(min(STEPS_AT_ONCE, self._trainer.num_due)):
            state = self._trainer.train_step(state)
        return state

    def metrics(self) -> Mapping[str, Array]:
        return {**self._trainer.metrics(), **self._checks}

    def save(self) -> dict[str, np.ndarray]:
        return self._trainer.save()

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._trainer.restore(saved)
        self._learnt.update(bytes(code) for code in saved.get(f"rows_{CODE}", ()))

    def _loss(self, params: PyTree, rows: Mapping[str, Array], noise: Noise) -> tuple[Array, Mapping[str, Array]]:
        logits = self._network.apply(params, {name: rows[name] for name in self.reader.columns})
        loss = optax.sigmoid_binary_cross_entropy(logits, rows[TARGET]).sum(-1).mean()  # type: ignore
        accuracy = jaccard(logits > SUGGESTED, rows[TARGET] > 0).mean()  # type: ignore
        return loss, {"loss": loss, "accuracy": accuracy}

    def _checked(self, params: PyTree, rows: Mapping[str, Array], is_used: Array) -> dict[str, Array]:
        """Returns the agreement with answers held out, and the calibration of the probabilities."""
        logits = self._network.apply(params, {name: rows[name] for name in self.reader.columns})
        probabilities, right = jax.nn.sigmoid(logits), rows[TARGET] > 0  # type: ignore
        agreement, count = jaccard(probabilities > 0.5, right), jnp.maximum(1, is_used.sum())
        bins = jnp.clip((probabilities * NUM_BINS).astype(jnp.int32), 0, NUM_BINS - 1)
        is_in = (bins[..., None] == jnp.arange(NUM_BINS)) & is_used[:, None, None]  # [N, G, bins]
        sizes = jnp.maximum(1, is_in.sum((0, 1)))
        said = (is_in * probabilities[..., None]).sum((0, 1)) / sizes
        is_so = (is_in & right[..., None]).sum((0, 1)) / sizes
        error = (jnp.abs(said - is_so) * is_in.sum((0, 1))).sum() / jnp.maximum(1, is_in.sum())
        return {
            "goals_agreement": (agreement * is_used).sum() / count,
            "goals_calibration_error": error,
            **{f"goals_reliability_{i}": is_so[i] for i in range(NUM_BINS)},
        }


def _log_odds(reader: Reader, network: GoalNetwork, params: PyTree, env: Any, state: PyTree) -> Array:
    inputs = jax.tree.map(lambda x: x[None], dict(reader.of_state(env, state)))
    return network.apply(jax.tree.map(jnp.asarray, params), inputs)[0]  # type: ignore


def _code(item: bytes) -> bytes:
    return hashlib.blake2b(item, digest_size=CODE_SIZE).digest()
