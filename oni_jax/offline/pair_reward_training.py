"""Trains a reward model on labelled pairs: of two sub-episodes, the better one gets the higher mean reward."""

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from oni_jax import parallel
from oni_jax.host.held_folders import HeldFolder, held_folder
from oni_jax.host.reporting import report
from oni_jax.host.runtime import Every, StopRequest
from oni_jax.networks.glyphs import RankingNetwork, make_ranking_network
from oni_jax.offline.annotators import better
from oni_jax.offline.dataset import PairDataset
from oni_jax.offline.observed_pairs import SOURCES, ObservedPairs, observe
from oni_jax.offline.pair_config import TrainReward
from oni_jax.ops.losses import ranking_accuracy, ranking_loss
from oni_jax.ops.moments import Moments, normalise
from oni_jax.rewards.oni.reward_model import QUANTILES, RewardModel, save_reward_model
from oni_jax.rewards.trained import holds_trained
from oni_jax.settings.fields import UserError, counted
from oni_jax.types import TIE, UNKNOWN, Array, ModelState, PyTree

TRAINING_FRACTION = 0.8
ADAM_EPS = 1e-8
PROGRESS_SECS = 5.0


class Split(NamedTuple):
    """Rows of the data set."""

    training: np.ndarray
    validation: np.ndarray


def train_reward(config: TrainReward, stop: StopRequest) -> int:
    """Trains for `num_epochs` or until a stop request; saves the model after each epoch. Returns the exit code 0.

    Raises:
        UserError: bad data set, no labelled pairs, or a model that would be overwritten.
    """
    training = config.training
    path = os.path.join(training.train_dir, training.experiment)
    with held_folder(path, "experiment", stop, above="train_dir") as folder:
        return _train(config, folder, stop)


def _train(config: TrainReward, held: HeldFolder, stop: StopRequest) -> int:
    training = config.training
    folder = os.path.join(training.train_dir, training.experiment)
    if holds_trained(folder):
        raise UserError(f"{folder}: holds a reward model already; choose another --experiment, or remove it")
    network = make_ranking_network(config.encoder())
    names = network.reads
    preference = f"preference/{training.annotator}"
    dataset = _open(training.dataset_dir, [*sorted({SOURCES[name] for name in names}), "info/score", preference])
    labels, scores = dataset.preferences(training.annotator), better(dataset.numbers("info/score"))
    split = split_rows(dataset.num_pairs, training.seed)
    rows = split.training[labels[split.training] != UNKNOWN]
    if not len(rows):
        raise UserError(f"{dataset.path(preference)}: no pair of the training split has a label yet")
    report(
        f"{dataset.num_pairs:,} pairs: {len(rows):,} labelled ones to learn from, {len(split.validation):,} to "
        f"validate with; training on {jax.default_backend()}; the first start takes a while to compile"
    )
    fit = Fit(config, network, observe(dataset, network), labels, rows)
    for epoch in range(1, training.num_epochs + 1):
        if not fit.run_epoch(epoch, stop):
            break
        model, rewards = fit.model(split.training)
        if not np.isfinite(rewards).all():
            raise UserError(f"the rewards of epoch {epoch}'s model are not finite: lower --reward_lr; it is not saved")
        validation = {training.annotator: labels[split.validation], "score": scores[split.validation]}
        accuracies = {name: accuracy(rewards[split.validation], expected) for name, expected in validation.items()}
        rates = {name: base_rate(expected) for name, expected in validation.items()}
        texts = [f"{name} {value:.3f} (base rate {rates[name]:.3f})" for name, value in accuracies.items()]
        report(f"epoch {epoch} of {training.num_epochs}: validation accuracy against {', '.join(texts)}")
        finite = {name: value for name, value in accuracies.items() if np.isfinite(value)}
        notes = {"annotator": training.annotator, "epochs": epoch, "validation_accuracy": finite}
        notes["base_rate"] = {name: rates[name] for name in finite}
        held.check()
        try:
            save_reward_model(folder, epoch, model, notes)
        except UserError as error:
            if epoch == training.num_epochs or not holds_trained(folder):
                raise
            report(f"warning: {error}; the last complete model stays")
    if stop:
        saved = "the last complete epoch's model is" if holds_trained(folder) else "no epoch ended: no model is"
        report(f"{stop.reason}: {saved} in {folder}")
    else:
        report(f"the reward model is in {folder}")
    return 0


def _open(directory: str, keys: list[str]) -> PairDataset:
    """Opens the data set. The error of a missing preference file says how to make it."""
    try:
        return PairDataset(directory, keys)
    except UserError as error:
        if f"{keys[-1]}.npy: no such file" in str(error):
            raise UserError(f"{error}; launch.annotate_pairs makes it") from None
        raise


def split_rows(num_pairs: int, seed: int) -> Split:
    """Splits all pairs into TRAINING_FRACTION to learn from, and the others to validate with."""
    order = np.random.default_rng(seed).permutation(num_pairs)
    return Split(*np.split(order, [round(TRAINING_FRACTION * num_pairs)]))


def accuracy(rewards: np.ndarray, labels: np.ndarray) -> float:
    """Fraction of the pairs labelled FIRST or SECOND whose mean rewards agree; rewards [n, 2, L]. NaN without any."""
    decided = labels < TIE
    means = rewards[decided].mean(2)
    return float(np.mean((means[:, 1] > means[:, 0]) == labels[decided])) if decided.any() else float("nan")


def base_rate(labels: np.ndarray) -> float:
    """Returns the `accuracy` of always guessing the most frequent of labels [n]. NaN without any."""
    counts = np.bincount(labels[labels < TIE], minlength=TIE)
    return float(counts.max() / counts.sum()) if counts.sum() else float("nan")


def make_step(
    score: Callable[[PyTree, Mapping[str, Array]], Array], optimizer: optax.GradientTransformation, num_devices: int
) -> Callable[..., tuple[ModelState, Mapping[str, Array]]]:
    """Makes step(state, (), (batch [B, 2, L, ...], labels [B]), device) -> (state, metrics) on a shard of the batch."""

    def step(
        state: ModelState, data: PyTree, argument: tuple[PyTree, Array], device: Array
    ) -> tuple[ModelState, Mapping[str, Array]]:
        size = argument[1].shape[0] // num_devices
        batch, labels = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, device * size, size), argument)

        def weight(counts: Callable[[Array], Array]) -> Array:
            """Weights a shard's mean by its number of counted pairs, so that all pairs weigh the same."""
            return num_devices * jnp.sum(counts(labels)) / jnp.maximum(1, jnp.sum(counts(argument[1])))

        def loss_fn(params: PyTree) -> tuple[Array, Mapping[str, Array]]:
            rewards = score(params, batch).mean(axis=2)
            loss = weight(lambda labels: labels != UNKNOWN) * ranking_loss(rewards, labels)
            accuracy = weight(lambda labels: labels < TIE) * ranking_accuracy(rewards, labels)
            return loss, {"loss": loss, "accuracy": accuracy}

        grads, metrics = parallel.mean(jax.grad(loss_fn, has_aux=True)(state.params))
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        return ModelState(optax.apply_updates(state.params, updates), opt_state), metrics

    return step


class Fit:
    """Training of a network on the pairs `rows`."""

    def __init__(
        self, config: TrainReward, network: RankingNetwork, pairs: ObservedPairs, labels: np.ndarray, rows: np.ndarray
    ):
        self._config, self._pairs, self._labels, self._rows = config, pairs, labels, rows
        training = config.training
        self._replicas = parallel.Replicas()
        self._replicas.shard_size(training.batch_size, "batch_size")
        optimizer = optax.adam(training.reward_lr, eps=ADAM_EPS)
        batch = {name: x[0, 0, :1] for name, x in pairs.batch(np.arange(1)).items() if name != "index"}
        params = jax.jit(network.init)(jax.random.key(training.seed), batch)
        self._state = ModelState(params, optimizer.init(params))
        self._step = self._replicas.stepper(make_step(pairs.score, optimizer, len(self._replicas)))
        self._due = Every(PROGRESS_SECS)

    def run_epoch(self, epoch: int, stop: StopRequest) -> bool:
        """Trains on all rows once, in random order. Returns False if a stop request came first."""
        size = self._config.training.batch_size
        order = np.random.default_rng([self._config.training.seed, epoch]).permutation(self._rows)
        started, sums, counts = time.perf_counter(), np.zeros(2), np.zeros(2)
        for start in range(0, len(order), size):
            if stop:
                return False
            rows = order[start : start + size]
            labels = np.full(size, UNKNOWN, np.int32)
            labels[: len(rows)] = self._labels[rows]
            batch = self._pairs.batch(np.resize(rows, size))  # padded with pairs labelled UNKNOWN
            self._state, metrics = self._step(self._state, (), (batch, labels))
            count = np.array([len(rows), np.sum(labels < TIE)])  # pairs that count in the loss, and in the accuracy
            sums, counts = sums + count * [float(metrics["loss"]), float(metrics["accuracy"])], counts + count
            done = start + len(rows)
            if self._due() or done == len(order):
                loss, fraction = sums / np.maximum(1, counts)
                rate = done / (time.perf_counter() - started)
                report(
                    f"epoch {epoch} of {self._config.training.num_epochs}: {done:,} of {counted(len(order), 'pair')}, "
                    f"{rate:,.0f} a second, loss {loss:.4f}, accuracy {fraction:.3f}"
                )
        return True

    def model(self, training_rows: np.ndarray) -> tuple[RewardModel, np.ndarray]:
        """Returns the current model, with its statistics over the training split, and its rewards [P, 2, L]."""
        params = self._state.params
        rewards = self._pairs.all_rewards(params)
        seen = rewards[training_rows]
        moments = Moments(
            *(np.float32(x) for x in (seen.mean(dtype=np.float64), seen.var(dtype=np.float64), seen.size))
        )
        normalised = np.asarray(normalise(seen.ravel()[self._pairs.unique_indices(training_rows)], moments))
        quantiles = dict(zip(QUANTILES, np.quantile(normalised, QUANTILES).tolist()))
        network = self._config.encoder()
        return RewardModel(network, params, float(moments.mean), float(moments.variance), quantiles), rewards
