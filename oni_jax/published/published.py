"""Conversion of the published PyTorch networks' parameters to ours.

Their names are those of a PyTorch state dict; arrays are NumPy's, so that PyTorch is not needed.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.settings.fields import UserError
from oni_jax.types import PyTree

Weights = Mapping[str, np.ndarray]
Path = tuple[str, ...]


class Link(NamedTuple):
    """Conversion of a published array to ours: transposed, then its rows reordered."""

    name: str
    path: Path
    axes: tuple[int, ...]
    rows: np.ndarray | None = None  # our rows, as indices of theirs

    def convert(self, published: np.ndarray) -> np.ndarray:
        array = np.transpose(published, self.axes)
        return array if self.rows is None else array[self.rows]


DENSE, CONV_1D, CONV_2D = (1, 0), (2, 1, 0), (2, 3, 1, 0)
CONV_2D_TRANSPOSED = (3, 2, 1, 0)  # their kernels over glyphs run over (x, y), ours over (y, x)


def import_params(weights: Weights) -> PyTree:
    """Converts a published policy, ranking model, classifier or Preference Transformer to ours: {"params": ...}.

    Raises UserError where an array is missing or unknown.
    """
    params: dict = {}
    try:
        for link in _links(weights):
            _insert(params, link.path, link.convert(weights[link.name]))
        for i in range(_num_core_layers(weights)):
            for name, bias in _merged_biases(weights, i).items():
                _insert(params, ("core", f"layer_{i}", name), bias)
    except (KeyError, IndexError, ValueError) as error:  # an array is missing, or of a shape that no network has
        raise UserError(f"not the weights of a published policy, ranking model or classifier: {error!r}.") from None
    return {"params": jax.tree.map(jnp.asarray, params)}


def _insert(tree: dict, path: Path, array: np.ndarray) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = array


def _merged_biases(weights: Weights, layer: int) -> dict[str, np.ndarray]:
    """Converts the biases of a recurrent layer: summed where that computes the same."""
    input_bias, hidden_bias = (weights[f"core.core.bias_{kind}_l{layer}"] for kind in ("ih", "hh"))
    size = weights[f"core.core.weight_hh_l{layer}"].shape[1]
    if hidden_bias.size == 4 * size:  # an LSTM
        return {"input_bias": input_bias + hidden_bias}
    merged = input_bias + jnp.append(hidden_bias[: 2 * size], jnp.zeros(size, hidden_bias.dtype))
    return {"input_bias": merged, "hidden_new_bias": hidden_bias[2 * size :]}


def _num_core_layers(weights: Weights) -> int:
    return sum(bool(re.fullmatch(r"core\.core\.bias_ih_l\d+", name)) for name in weights)


def _links(weights: Weights) -> list[Link]:
    """Returns a link for every array of `weights` but the recurrent core's biases, and those that nothing reads."""
    links = list(_all_links(weights))
    unknown = weights.keys() - {link.name for link in links}
    # BK: the layer that a decoder is made of is saved beside the decoder.
    unknown = {name for name in unknown if not name.startswith(("core.core.bias_", "causal_transformer_layer."))}
    if unknown:
        raise UserError(f"unknown weights, of no published network: {', '.join(sorted(unknown))}.")
    return links


def _all_links(weights: Weights) -> Iterator[Link]:
    if "net.0.weight" in weights:
        yield from _classifier_links(weights)
    elif "preference_attention.value_embed.weight" in weights:
        yield from _preference_links(weights)
    elif any(name.startswith("encoder.basic_encoder.") for name in weights):
        yield from _rgbcrop_links(weights)
    else:
        yield from _torchbeast_links(weights)
    for i in range(_num_core_layers(weights)):
        yield Link(f"core.core.weight_ih_l{i}", ("core", f"layer_{i}", "input_kernel"), DENSE)
        yield Link(f"core.core.weight_hh_l{i}", ("core", f"layer_{i}", "hidden_kernel"), DENSE)
    heads = {"critic_linear": "value", "action_parameterization.distribution_linear": "logits", "reward_fn.1": "reward"}
    for published, ours in heads.items():
        if f"{published}.weight" in weights:
            yield from _layer(published, (ours,), DENSE)


def _layer(name: str, path: Path, axes: tuple[int, ...], rows: np.ndarray | None = None) -> Iterator[Link]:
    yield Link(f"{name}.weight", (*path, "kernel"), axes, rows)
    yield Link(f"{name}.bias", (*path, "bias"), (0,))


def _layers(names: Sequence[str], path: Path, stem: str, axes: tuple[int, ...]) -> Iterator[Link]:
    for i, name in enumerate(names):
        yield from _layer(name, (*path, f"{stem}_{i}"), axes)


def _numbered(weights: Weights, prefix: str, rank: int) -> list[str]:
    """Returns the layers `prefix.<number>` whose weight has `rank` axes, by number."""
    pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.weight")
    matches = [m for name, w in weights.items() if (m := pattern.fullmatch(name)) and np.ndim(w) == rank]
    return [m.string.removesuffix(".weight") for m in sorted(matches, key=lambda m: int(m[1]))]


def _channels_last(channels: int, *spatial: int, reverse: bool = False) -> np.ndarray:
    """Returns our rows (spatial..., channel) as indices of their flattened (channel, spatial...).

    `reverse`: they flatten the spatial axes in the opposite order.
    """
    shape = spatial[::-1] if reverse else spatial
    order = range(len(spatial), 0, -1) if reverse else range(1, len(spatial) + 1)
    return np.arange(channels * math.prod(spatial)).reshape(channels, *shape).transpose(*order, 0).ravel()


def _rgbcrop_links(weights: Weights) -> Iterator[Link]:
    image = "encoder.basic_encoder.enc"
    convs = _numbered(weights, f"{image}.conv_head", 4)
    yield from _layers(convs, ("encoder", "image_stack"), "conv", CONV_2D)
    channels = len(weights[f"{convs[-1]}.weight"])
    side = math.isqrt(weights[f"{image}.fc_layers.0.weight"].shape[1] // channels)
    yield from _layer(f"{image}.fc_layers.0", ("encoder", "image"), DENSE, _channels_last(channels, side, side))
    for published, ours in (("vector_obs_head", "vector"), ("message_head", "message")):
        yield from _layers([f"encoder.{published}.{i}" for i in (0, 2)], ("encoder",), ours, DENSE)


def _torchbeast_links(weights: Weights) -> Iterator[Link]:
    blocks: list[np.ndarray] = []  # rows of the first dense layer, part by part
    if "encoder.embed.weight" in weights:
        yield Link("encoder.embed.weight", ("encoder", "glyph_embedding"), (0, 1))
    if "encoder.embed_blstats.0.weight" in weights:
        yield from _layers([f"encoder.embed_blstats.{i}" for i in (0, 2)], ("encoder",), "blstats", DENSE)
        blocks.append(np.arange(len(weights["encoder.embed_blstats.2.weight"])))
    inputs = weights["encoder.fc.0.weight"].shape[1]
    glyph_convs = _numbered(weights, "encoder.extract_representation", 4)
    crop_convs = _numbered(weights, "encoder.extract_crop_representation", 4)
    message = list(_message_links(weights, "encoder.", ("encoder", "message")))
    message_size = len(weights[message[-1].name]) if message else 0
    glyph_block = np.arange(0)
    if glyph_convs:
        yield from _layers(glyph_convs, ("encoder", "glyphs"), "conv", CONV_2D_TRANSPOSED)
        height, width = 21, 79
        for _ in glyph_convs:
            height, width = (height + 1) // 2, (width + 1) // 2
        glyph_block = _channels_last(len(weights[f"{glyph_convs[-1]}.weight"]), height, width, reverse=True)
    if crop_convs:
        yield from _layers(crop_convs, ("encoder", "crop"), "conv", CONV_2D_TRANSPOSED)
        channels = len(weights[f"{crop_convs[-1]}.weight"])
        size = inputs - sum(map(len, blocks)) - len(glyph_block) - message_size
        side = math.isqrt(size // channels)
        blocks.append(_channels_last(channels, side, side, reverse=True))
    blocks += [glyph_block, np.arange(message_size)]
    yield from message
    yield from _layer("encoder.fc.0", ("encoder", "dense_0"), DENSE, _consecutive(blocks))
    yield from _layer("encoder.fc.2", ("encoder", "dense_1"), DENSE)


def _consecutive(blocks: Sequence[np.ndarray]) -> np.ndarray:
    starts = np.cumsum([0, *map(len, blocks)])
    return np.concatenate([start + block for start, block in zip(starts, blocks, strict=False)])


def _message_links(weights: Weights, prefix: str, path: Path) -> Iterator[Link]:
    if f"{prefix}char_lt.weight" not in weights:
        return
    yield Link(f"{prefix}char_lt.weight", (*path, "embedding"), (0, 1))
    convs = [f"{prefix}conv1", *_numbered(weights, f"{prefix}conv2_6_fc", 3)]
    yield from _layers(convs, path, "conv", CONV_1D)
    denses = _numbered(weights, f"{prefix}conv2_6_fc", 2)
    channels = len(weights[f"{convs[-1]}.weight"])
    rows = _channels_last(channels, weights[f"{denses[0]}.weight"].shape[1] // channels)
    for i, name in enumerate(denses):
        yield from _layer(name, (*path, f"dense_{i}"), DENSE, rows if i == 0 else None)


def _preference_links(weights: Weights) -> Iterator[Link]:
    image, decoder = "state_processor.conv_net", "causal_transformer.layers.0"
    convs = _numbered(weights, image, 4)
    yield from _layers(convs, ("encoder",), "conv", CONV_2D)
    channels = len(weights[f"{convs[-1]}.weight"])
    side = math.isqrt(weights[f"{image}.7.weight"].shape[1] // channels)
    yield from _layer(f"{image}.7", ("encoder", "dense"), DENSE, _channels_last(channels, side, side))
    yield from _layer(f"{image}.9", ("state",), DENSE)
    yield Link("action_processor.action_embedding.weight", ("action", "embedding"), (0, 1))
    yield Link("timestep_embedding.weight", ("time", "embedding"), (0, 1))
    for published, ours in {"self_attn": "self_attention", "multihead_attn": "cross_attention"}.items():
        yield Link(f"{decoder}.{published}.in_proj_weight", (ours, "kernel"), DENSE)
        yield Link(f"{decoder}.{published}.in_proj_bias", (ours, "bias"), (0,))
        yield from _layer(f"{decoder}.{published}.out_proj", (ours, "out"), DENSE)
    yield from _layers([f"{decoder}.linear{i}" for i in (1, 2)], (), "hidden", DENSE)
    for i in range(3):
        yield Link(f"{decoder}.norm{i + 1}.weight", (f"norm_{i}", "scale"), (0,))
        yield Link(f"{decoder}.norm{i + 1}.bias", (f"norm_{i}", "bias"), (0,))
    for name in ("query", "key", "value"):
        yield from _layer(f"preference_attention.{name}_embed", (name,), DENSE)


def _classifier_links(weights: Weights) -> Iterator[Link]:
    yield from _message_links(weights, "", ("message",))
    *hidden, logits = _numbered(weights, "net", 2)
    yield from _layers(hidden, (), "dense", DENSE)
    yield from _layer(logits, ("logits",), DENSE)
