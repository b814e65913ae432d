"""Recorded values of the published classifier and of the ranking loss, computed again by ours."""

from collections.abc import Mapping
from typing import cast

import jax.numpy as jnp
import numpy as np

from oni_jax.networks.classifier import MessageClassifier, helpful_probabilities
from oni_jax.ops import losses
from oni_jax.published.published import import_params
from tests.golden.networks import Result, compare, weights_of

Npz = Mapping[str, np.ndarray]
THRESHOLD = 0.5


def recognises(npz: Npz) -> bool:
    return _is_classifier(npz) or {"rewards", "labels", "loss"} == set(npz)


def check(npz: Npz) -> list[Result]:
    """Logits, loss and thresholded predictions; or the loss of pairs."""
    if _is_classifier(npz):
        computed = classifier_outputs(npz)
        return [compare(name, npz[name], computed[name]) for name in npz if name.startswith("out/")]
    loss = losses.ranking_loss(jnp.asarray(npz["rewards"]), jnp.asarray(npz["labels"], jnp.int32))
    return [compare("loss", npz["loss"], np.asarray(loss))]


def classifier_outputs(npz: Npz) -> dict[str, np.ndarray]:
    weights = weights_of(npz)
    classifier = MessageClassifier(hidden_sizes=(len(weights["net.0.bias"]), len(weights["net.2.bias"])))
    logits = cast(jnp.ndarray, classifier.apply(import_params(weights), jnp.asarray(npz["in/message"])))
    loss = losses.classification_loss(logits, jnp.asarray(npz["in/labels"], jnp.int32))
    predictions = helpful_probabilities(logits) > THRESHOLD
    return {
        "out/logits": np.asarray(logits),
        "out/loss": np.asarray(loss),
        "out/predictions": np.asarray(predictions, np.float32),
    }


def _is_classifier(npz: Npz) -> bool:
    return {"in/labels", "out/logits", "out/predictions"} <= set(npz)
