"""Published parameters by name; their values are checked by the golden data."""

import pathlib

import jax
import numpy as np
import pytest

from oni_jax.networks.classifier import MessageClassifier
from oni_jax.networks.core import RecurrentCore
from oni_jax.published.published import import_params
from oni_jax.settings.fields import UserError
from tests.golden.check import read
from tests.golden.networks import weights_of

DATA = pathlib.Path(__file__).parents[1] / "golden" / "data"
# Outputs of torch.nn.LSTM(2, 3) with element i of each parameter sin(0.7 i), for inputs cos(0.3 i).
PYTORCH_LSTM_OUTPUTS = [
    [-0.2199453, -0.7097758, -0.6119808],
    [-0.1446291, -0.8156206, -0.8781021],
    [-0.0820212, -0.7868856, -0.8478733],
    [-0.0679745, -0.6259158, -0.1363977],
]


def golden(name: str) -> dict[str, np.ndarray]:
    return read(DATA / f"{name}.npz")


def golden_weights(name: str) -> dict[str, np.ndarray]:
    return weights_of(golden(name))


def test_unknown_and_missing_arrays_are_refused():
    weights = golden_weights("torchbeast_message_small")
    import_params(weights)
    with pytest.raises(UserError, match="extra.weight"):
        import_params(weights | {"extra.weight": np.zeros(3)})


@pytest.mark.parametrize("file", ["policy_and_loss", "torchbeast_message_small", "classifier"])
def test_every_array_is_needed_in_its_shape(file):
    weights = golden_weights(file)
    import_params(weights)
    for name in weights:
        if "char_lt" not in name:  # a network without messages has none
            with pytest.raises(UserError, match="published"):
                import_params({key: array for key, array in weights.items() if key != name})
        if "core.core.bias" not in name:  # no axis of theirs changes its place
            with pytest.raises(UserError, match="published"):
                import_params(weights | {name: weights[name][..., None, None]})


def test_the_classifier_gives_what_was_recorded():
    file = golden("classifier")
    with jax.default_matmul_precision("highest"):
        logits = MessageClassifier("lt_cnn", (16, 16)).apply(import_params(weights_of(file)), file["in/message"])
    np.testing.assert_allclose(np.asarray(logits), file["out/logits"], rtol=1e-4, atol=1e-6)


def test_the_lstm_gives_what_pytorch_gives():
    rows, size, inputs = 4 * 3, 3, 2
    shapes = {"weight_ih": (rows, inputs), "weight_hh": (rows, size), "bias_ih": (rows,), "bias_hh": (rows,)}
    weights = golden_weights("policy_and_loss")
    weights = {name: array for name, array in weights.items() if not name.startswith("core.")}
    for name, shape in shapes.items():
        weights[f"core.core.{name}_l0"] = np.sin(0.7 * np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)
    params = {"params": import_params(weights)["params"]["core"]}
    core = RecurrentCore("lstm", size, 1)
    observed = np.cos(0.3 * np.arange(8, dtype=np.float32)).reshape(4, 1, inputs)
    outputs, _ = core.apply(params, observed, core.initial_state(1), np.zeros((4, 1), bool))
    np.testing.assert_allclose(np.asarray(outputs)[:, 0], PYTORCH_LSTM_OUTPUTS, atol=1e-6)
