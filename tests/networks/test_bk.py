"""BK's network: the trunk against convolutions written out, and initial weights."""

import jax
import numpy as np
import pytest

from oni_jax.networks.bk import make_bk_encoder
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import ArraySpec, EnvSpec

NETWORK = NetworkConfig(encoder_custom="bk_encoder", hidden_size=512)


def spec_of(*shape: int, dtype: str = "uint8") -> EnvSpec:
    return EnvSpec({"image": ArraySpec(shape, dtype)}, 7, False, ())


def reference(images: np.ndarray, params: dict, layers: list[tuple[int, int]]) -> np.ndarray:
    """layers: stride and padding of each. One output cell after the other."""
    x = images
    for i, (stride, padding) in enumerate(layers):
        kernel, bias = params[f"conv_{i}"]["kernel"], params[f"conv_{i}"]["bias"]
        x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
        size = len(kernel)
        height, width = ((side - size) // stride + 1 for side in x.shape[1:3])
        out = np.empty((len(x), height, width, kernel.shape[-1]))
        for row in range(height):
            for column in range(width):
                patch = x[:, row * stride :, column * stride :][:, :size, :size]
                out[:, row, column] = np.tensordot(patch, kernel, 3) + bias
        x = np.maximum(out, 0)
    return x.reshape(len(x), -1) @ params["dense"]["kernel"] + params["dense"]["bias"]


@pytest.mark.parametrize(
    ("side", "limit", "scale", "layers"),
    [(7, 8, np.array([10, 5, 3]), [(1, 1)] * 3), (64, 256, 255, [(4, 0), (2, 0), (1, 0)])],
)
def test_the_trunk_is_that_of_the_paper(side, limit, scale, layers):
    encoder = make_bk_encoder(NETWORK, spec_of(side, side, 3))
    images = np.random.default_rng(0).integers(0, limit, (2, side, side, 3), np.uint8)
    params = jax.jit(encoder.init)(jax.random.key(0), {"image": images})["params"]
    expected = reference(images / scale, jax.tree.map(np.asarray, params), layers)
    found = np.asarray(encoder.apply({"params": params}, {"image": images}))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert expected.min() < 0  # no ReLU after the dense layer
    for layer in params.values():
        bound = np.prod(layer["kernel"].shape[:-1]) ** -0.5
        for x in layer.values():
            assert np.abs(x).max() <= bound
        assert np.std(layer["kernel"]) == pytest.approx(bound / 3**0.5, rel=0.1)


@pytest.mark.parametrize("spec", [spec_of(7, 7, 1), spec_of(147), spec_of(20, 20, 3), spec_of(7, 7, 3, dtype="int32")])
def test_other_images_are_refused(spec):
    with pytest.raises(UserError, match="--encoder_custom bk_encoder: the image is"):
        make_bk_encoder(NETWORK, spec)


def test_first_policies_are_nearly_uniform_and_first_values_nearly_zero():
    """Kernels of the heads are orthogonal times BK's gains, biases zero."""
    spec = spec_of(7, 7, 3)
    policy = make_policy(
        NetworkConfig(encoder_custom="bk_encoder", hidden_size=32, use_rnn=False, policy_heads="bk"), spec
    )
    heads = dict(init_params(policy, spec, jax.random.key(0))["params"])
    del heads["encoder"]
    gains = {"logits_hidden": 0.01, "logits": 0.01, "value_hidden": 0.1, "value": 0.01}
    assert heads.keys() == gains.keys()
    for name, gain in gains.items():
        np.testing.assert_allclose(np.linalg.svd(heads[name]["kernel"], compute_uv=False), gain, rtol=1e-4)
        assert not np.any(heads[name]["bias"])
