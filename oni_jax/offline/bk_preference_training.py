"""Trains a Preference Transformer on labelled pairs of segments. Source: BK-Pref (arXiv 2407.03964)."""

import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from oni_jax.envs.registry import env_spec
from oni_jax.host.held_folders import HeldFolder, held_folder
from oni_jax.host.reporting import report
from oni_jax.host.run_files import TRAINED
from oni_jax.host.runtime import StopRequest
from oni_jax.networks.preference_transformer import PreferenceTransformer
from oni_jax.offline.bk_comparison import LABELS, SEGMENTS
from oni_jax.offline.bk_config import TrainPotential
from oni_jax.offline.dataset import as_labels, open_array
from oni_jax.offline.segment_episodes import Segment, read_episodes
from oni_jax.offline.segment_published import read_published_preferences
from oni_jax.ops.losses import preference_loss, ranking_accuracy
from oni_jax.rewards.bk.preference_model import (
    PreferenceModel,
    PreferenceSettings,
    make_network,
    names_read,
    save_preference_model,
)
from oni_jax.rewards.trained import holds_trained
from oni_jax.settings.fields import UserError
from oni_jax.types import TIE, UNKNOWN, Array, ModelState, PyTree

WEIGHT_DECAY, MAX_GRAD_NORM = 0.01, 1.0
TEST_BATCH = 256  # pairs


class Pairs(NamedTuple):
    """P pairs of segments of L steps."""

    observations: Mapping[str, Array]  # [P, 2, L, ...] each: of the states before the steps
    actions: Array  # [P, 2, L] int32
    times: Array  # [P, 2, L] int32; the steps of the episode before each
    labels: Array  # [P] int32

    def take(self, rows: Array) -> "Pairs":
        return jax.tree.map(lambda x: x[rows], self)


def train_potential(config: TrainPotential, stop: StopRequest) -> int:
    """Trains for `num_epochs` or until a stop request; keeps the epoch of the best test accuracy. Returns 0.

    Raises:
        UserError: unusable pairs, no preference among them, or a model that would be overwritten.
    """
    env_spec(config.env)
    with held_folder(config.fit.reward_dir, "reward_dir", stop) as folder:
        return _train(config, folder, stop)


def _train(config: TrainPotential, folder: HeldFolder, stop: StopRequest) -> int:
    section, spec = config.fit, env_spec(config.env)
    if holds_trained(section.reward_dir):
        raise UserError(
            f"--reward_dir {section.reward_dir}: holds a trained network already; remove "
            f"{os.path.join(section.reward_dir, TRAINED)} to train another"
        )
    segments, labels = _read(config)
    settings = PreferenceSettings(
        section.encoder_custom, section.hidden_size, spec.num_actions, segments[0].length, section.width,
        is_scaled=section.attention == "scaled",
    )  # fmt: skip
    if (highest := max(int(segment.actions.max()) for segment in segments)) >= spec.num_actions:
        raise UserError(
            f"{section.preferences or section.reward_dir}: a segment has the action {highest}, and "
            f"{config.env.root_env} has 0 to {spec.num_actions - 1}: name the environment that they were recorded in"
        )
    pairs = make_pairs(segments, labels, list(names_read(settings, spec)))
    order = np.random.default_rng(section.seed).permutation(len(labels))
    test, training = np.split(order, [round(section.test_fraction * len(order))])
    if not np.any(labels[training] < TIE):
        raise UserError(f"{section.preferences or section.reward_dir}: no pair to learn from has a preference")
    network = make_network(settings, spec)
    state = init_state(network, pairs, section.seed, section.learning_rate)
    step, accuracy_of = make_train_step(network, section.learning_rate), make_accuracy(network)
    report(f"{len(training):,} pairs to learn from, {len(test):,} to test with; compiling on {jax.default_backend()}")
    best, num_trained = -1.0, 0
    for epoch in range(1, section.num_epochs + 1):
        started, rng = time.perf_counter(), np.random.default_rng([section.seed, epoch])
        rows = _batches(rng.permutation(training), section.batch_size)
        losses = []
        for batch in rows:
            if stop:
                break
            state, loss = step(state, pairs.take(jnp.asarray(batch)), batch >= 0)
            losses.append(loss)
        if stop:
            break
        accuracy, num_trained = accuracy_of(state.params, pairs, test), epoch
        secs = time.perf_counter() - started
        report(
            f"epoch {epoch} of {section.num_epochs}: loss {np.mean([float(x) for x in losses]):.4f}, "
            f"test accuracy {accuracy:.3f}, {len(training) / secs:,.0f} pairs a second"
        )
        if not all(np.all(np.isfinite(x)) for x in jax.tree.leaves(state.params)):
            raise UserError("the network's weights are not finite any more: lower --learning_rate")
        # The newest is the best where there is no preference to test with.
        if not accuracy <= best:
            best = accuracy if accuracy == accuracy else best
            notes = {"epochs": epoch, "test_accuracy": accuracy if accuracy == accuracy else None}
            folder.check()
            save_preference_model(section.reward_dir, epoch, PreferenceModel(settings, state.params), notes)
    if stop:
        report(f"{stop.reason}: {num_trained} epochs were trained")
    if num_trained:
        report(f"the network is in {section.reward_dir}")
    return 0


def _read(config: TrainPotential) -> tuple[list[Segment], np.ndarray]:
    """Returns both segments of each labelled pair, one after the other, and the labels."""
    section = config.fit
    if section.preferences:
        segments, labels = read_published_preferences(section.preferences)
    else:
        path = os.path.join(section.reward_dir, "preference", f"{LABELS}.npy")
        if not os.path.exists(path):
            raise UserError(f"--reward_dir {section.reward_dir}: holds no labels; launch.annotate_segments writes them")
        segments = read_episodes(os.path.join(section.reward_dir, SEGMENTS))
        labels = as_labels(path, open_array(path))
        if len(segments) != 2 * len(labels):
            raise UserError(f"{path}: holds {len(labels)} labels for {len(segments) // 2} pairs")
    known = np.flatnonzero(labels[: section.data_size] != UNKNOWN)
    if not len(known):
        raise UserError(f"{section.preferences or section.reward_dir}: no pair has a label yet")
    segments = [segments[2 * row + side] for row in known for side in (0, 1)]
    if len({segment.length for segment in segments}) > 1:
        raise UserError(f"{section.preferences or section.reward_dir}: its segments differ in length")
    return segments, np.asarray(labels)[known].astype(np.int32)


def make_pairs(segments: Sequence[Segment], labels: np.ndarray, names: Sequence[str]) -> Pairs:
    """Puts pairs on the device. Raises UserError: the segments lack an observation."""
    missing = [name for name in names if name not in segments[0].observations]
    if missing:
        raise UserError(f"the segments do not show {missing[0]}, which the encoder reads: record them again")

    def stacked(rows: Sequence[np.ndarray]) -> Array:
        x = np.stack(rows)
        return jnp.asarray(x.reshape(-1, 2, *x.shape[1:]))

    length = segments[0].length
    times = [np.arange(segment.start, segment.start + length, dtype=np.int32) for segment in segments]
    observations = {name: stacked([segment.observations[name][:-1] for segment in segments]) for name in names}
    return Pairs(observations, stacked([segment.actions for segment in segments]), stacked(times), jnp.asarray(labels))


def init_state(network: PreferenceTransformer, pairs: Pairs, seed: int, learning_rate: float) -> ModelState:
    """Returns initial weights, and AdamW's state."""
    one = pairs.take(jnp.arange(1))
    first = jax.tree.map(lambda x: x[:, 0], (one.observations, one.actions, one.times))
    params = jax.jit(network.init)(jax.random.key(seed), *first)
    return ModelState(params, make_optimizer(learning_rate).init(params))


def make_optimizer(learning_rate: float) -> optax.GradientTransformation:
    """Returns AdamW, with the gradients' norm clipped."""
    return optax.chain(optax.clip_by_global_norm(MAX_GRAD_NORM), optax.adamw(learning_rate, weight_decay=WEIGHT_DECAY))


def logits(network: PreferenceTransformer, params: PyTree, pairs: Pairs) -> Array:
    """Returns the scores of both segments of each pair [P, 2]."""
    both = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (pairs.observations, pairs.actions, pairs.times))
    return network.apply(params, *both).score().reshape(-1, 2)  # type: ignore


def make_train_step(
    network: PreferenceTransformer, learning_rate: float
) -> Callable[[ModelState, Pairs, Array], tuple[ModelState, Array]]:
    """Makes step(state, pairs, counts [P] bool) -> (state, loss): a gradient step on the pairs that count."""
    optimizer = make_optimizer(learning_rate)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: ModelState, pairs: Pairs, counts: Array) -> tuple[ModelState, Array]:
        labels = jnp.where(counts, pairs.labels, UNKNOWN)

        def loss_fn(params: PyTree) -> Array:
            return preference_loss(logits(network, params, pairs), labels)

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        return ModelState(optax.apply_updates(state.params, updates), opt_state), loss

    return step


def make_accuracy(network: PreferenceTransformer) -> Callable[[PyTree, Pairs, np.ndarray], float]:
    """Makes accuracy(params, pairs, rows): the fraction of the rows' preferences that it agrees with, NaN of none."""

    @jax.jit
    def count(params: PyTree, pairs: Pairs, counts: Array) -> tuple[Array, Array]:
        labels = jnp.where(counts, pairs.labels, UNKNOWN)
        num = jnp.sum(labels < TIE)
        return ranking_accuracy(logits(network, params, pairs), labels) * num, num

    def accuracy(params: PyTree, pairs: Pairs, rows: np.ndarray) -> float:
        right = total = 0.0
        for batch in _batches(rows, TEST_BATCH):
            found, num = count(params, pairs.take(jnp.asarray(batch)), batch >= 0)
            right, total = right + float(found), total + float(num)
        return right / total if total else float("nan")

    return accuracy


def _batches(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Splits rows into batches of one size; -1 fills the last."""
    padded = np.append(rows, np.full(-len(rows) % size, -1, rows.dtype))
    return list(padded.reshape(-1, size))
