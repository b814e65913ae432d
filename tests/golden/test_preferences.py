"""The published Preference Transformer: recorded values, and six gradient steps, from its recorded weights."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from oni_jax.networks.bk import BkEncoder
from oni_jax.networks.preference_transformer import PreferenceTransformer
from oni_jax.offline.bk_preference_training import MAX_GRAD_NORM, Pairs, logits, make_optimizer, make_train_step
from oni_jax.ops.losses import preference_loss
from oni_jax.published.published import import_params
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import FIRST, SECOND, TIE, ModelState
from tests.golden import data_file
from tests.golden.test_bk_networks import weights_of

LEARNING_RATE = 3e-4
NETWORK = PreferenceTransformer(
    BkEncoder(NetworkConfig(hidden_size=512), is_small=True), 7, width=8, max_time=64, is_scaled=False
)
STEP = make_train_step(NETWORK, LEARNING_RATE)


@pytest.fixture(scope="module")
def recorded():
    with np.load(data_file("bk_preference_small.npz")) as file:
        return dict(file)


@pytest.fixture(scope="module")
def params(recorded):
    weights = {name[2:]: x.astype(np.float32) for name, x in recorded.items() if name.startswith("w/")}
    return import_params(weights)


@pytest.fixture(scope="module")
def pairs(recorded):
    def both(name: str) -> np.ndarray:
        return np.stack([recorded[f"{name}1"], recorded[f"{name}2"]], axis=1)

    images = np.moveaxis(both("s")[:, :, :-1], 3, -1)
    labels = np.select([recorded["label"] == 0, recorded["label"] == 1], [FIRST, SECOND], TIE)
    return Pairs({"image": images}, both("a"), both("t")[:, :, :-1], labels)


def test_values_of_every_step(recorded, params, pairs):
    with jax.default_matmul_precision("highest"):
        for side in (0, 1):
            images = {"image": pairs.observations["image"][:, side]}
            found: Any = NETWORK.apply(params, images, pairs.actions[:, side], pairs.times[:, side])
            np.testing.assert_allclose(found.values, recorded["values_first"][:, :, 0, side], atol=1e-5)
            embedded: Any = NETWORK.apply(params, {"image": images["image"].reshape(-1, 2, 2, 3)}, method="embed")
            last: Any = NETWORK.apply(
                params,
                embedded.reshape(8, 5, -1),
                pairs.actions[:, side],
                pairs.times[:, side],
                method="last_values",
            )
            np.testing.assert_allclose(last, found.values[:, -1], atol=1e-5)


@pytest.mark.slow
def test_gradient_steps(recorded, params, pairs):
    params = jax.tree.map(jnp.array, params)  # a step donates its state
    state = ModelState(params, make_optimizer(LEARNING_RATE).init(params))
    with jax.default_matmul_precision("highest"):
        for step in range(len(recorded["step/loss"])):
            scores = logits(NETWORK, state.params, pairs)
            # The gradient of the values' bias is 0 but for rounding, which Adam scales up: both sides shift alike.
            shifts = np.asarray(scores) - recorded["step/logits"][step]
            np.testing.assert_allclose(shifts[:, 0], shifts[:, 1], atol=1e-4)
            assert np.abs(shifts).max() < 6 * LEARNING_RATE * pairs.actions.shape[-1]
            parts = preference_loss(scores, pairs.labels, 0.0), preference_loss(scores, pairs.labels)
            np.testing.assert_allclose(parts[0], recorded["step/ce"][step], rtol=1e-3)
            np.testing.assert_allclose(parts[1] - parts[0], 0.3 * recorded["step/smooth"][step], rtol=1e-3)
            grads = jax.grad(lambda p: preference_loss(logits(NETWORK, p, pairs), pairs.labels))(state.params)
            np.testing.assert_allclose(optax.tree.norm(grads), recorded["step/grad_norm"][step], rtol=2e-3)
            assert recorded["step/grad_norm"][step] > MAX_GRAD_NORM
            state, loss = STEP(state, pairs, jnp.ones(8, bool))
            np.testing.assert_allclose(loss, recorded["step/loss"][step], rtol=1e-3)


@pytest.mark.slow
def test_batch_without_a_preference_leaves_weights_finite(params, pairs):
    """Ties alone, and pairs without a label."""
    # BK: the cross-entropy of no pair is NaN, and so are all weights after the step.
    for labels in (np.full(8, TIE), np.full(8, 3)):
        state = ModelState(jax.tree.map(jnp.array, params), make_optimizer(LEARNING_RATE).init(params))
        state, loss = STEP(state, pairs._replace(labels=labels), jnp.ones(8, bool))
        assert np.isfinite(loss) and all(np.isfinite(x).all() for x in jax.tree.leaves(state.params))


@pytest.fixture(scope="module")
def whole():
    """The network in its published size, with weights by a formula."""
    params = import_params(weights_of("preference_transformer/minigrid"))
    network = PreferenceTransformer(BkEncoder(NetworkConfig(hidden_size=512), is_small=True), 7, is_scaled=False)
    return network, params


@pytest.mark.slow
def test_the_network_in_its_published_size(whole):
    network, params = whole
    with np.load(data_file("bk_preference_transformer.npz")) as file:
        recorded = dict(file)
    with jax.default_matmul_precision("highest"):
        for side in (1, 2):
            images = np.moveaxis(recorded[f"s{side}"][:, :-1], 2, -1)
            found = network.apply(params, {"image": images}, recorded[f"a{side}"], recorded[f"t{side}"][:, :-1])
            np.testing.assert_allclose(found.values, recorded["values"][:, :, 0, side - 1], atol=1e-5)
            np.testing.assert_allclose(found.score(), recorded["logits"][:, side - 1], atol=1e-5)
            if side == 1:
                np.testing.assert_allclose(found.weights, recorded["attention1"], atol=1e-5)
                np.testing.assert_allclose(found.hidden, recorded["hidden1"][:, 1::2], atol=1e-4)
                np.testing.assert_allclose(found.values[:, -1], recorded["phi1"], atol=1e-5)


def test_potentials_of_windows(whole):
    network, params = whole
    with np.load(data_file("bk_potentials.npz")) as file:
        images, actions, times, phi = (file[name] for name in ("windows_obs", "windows_actions", "timesteps", "pref"))
    images = np.moveaxis(images[:, :-1], 2, -1)
    with jax.default_matmul_precision("highest"):
        embedded: Any = network.apply(params, {"image": images.reshape(-1, 7, 7, 3)}, method="embed")
        found: Any = network.apply(
            params, embedded.reshape(len(phi), 5, -1), actions[:, :-1], times[:, :-1], method="last_values"
        )
    np.testing.assert_allclose(found, phi, atol=1e-5)
