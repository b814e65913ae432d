"""Settings of a network, inferred from the shapes of its parameters."""

import math
from collections.abc import Mapping
from typing import Any

from oni_jax.networks.core import CELLS
from oni_jax.networks.images import CONV_LAYERS
from oni_jax.networks.messages import ARCHITECTURES
from oni_jax.settings.fields import UserError
from oni_jax.types import PyTree

MAP_SHAPE = (21, 79)


def policy_settings(params: PyTree) -> dict[str, Any]:
    """Infers fields of NetworkConfig from a policy's parameters {"params": ...}. Raises UserError: unknown network."""
    tree = params["params"]
    encoder = tree["encoder"]
    found = _rgbcrop_settings(encoder) if "image_stack" in encoder else encoder_settings(params)
    found["encoder_custom"] = "nle_rgbcrop_encoder" if "image_stack" in encoder else "nle_torchbeast_encoder"
    layers = tree.get("core", {})
    found["use_rnn"] = bool(layers)
    if layers:
        size, width = layers["layer_0"]["hidden_kernel"].shape
        names = (name for name, cell in CELLS.items() if width == cell.num_gates * size)
        rnn_type = next(names, None) or _unknown(f"a recurrent core of {size} units with {width} gates")
        found |= {"hidden_size": size, "rnn_num_layers": len(layers), "rnn_type": rnn_type}
    return found


def encoder_settings(params: PyTree) -> dict[str, Any]:
    """Infers fields of NetworkConfig from parameters {"params": {"encoder": ...}} of a TorchbeastEncoder."""
    encoder = params["params"]["encoder"]
    found: dict[str, Any] = {
        "encoder_hidden_dim": encoder["dense_1"]["kernel"].shape[1],
        "encoder_msg_model": "none",
        "use_blstats": "blstats_0" in encoder,
        "use_crop": "crop" in encoder,
        "use_glyphs": "glyphs" in encoder,
    }
    rest = encoder["dense_0"]["kernel"].shape[0]  # number of its inputs; in the end, of the crop's
    if "message" in encoder:
        embedding_dim = encoder["message"]["embedding"].shape[1]
        names = {architecture.embedding_dim: name for name, architecture in ARCHITECTURES.items()}
        found["encoder_msg_model"] = names.get(embedding_dim) or _unknown(f"characters embedded in {embedding_dim}")
        rest -= ARCHITECTURES[found["encoder_msg_model"]].hidden_sizes[-1]
    if found["use_blstats"]:
        found["encoder_embedding_dim"] = encoder["blstats_1"]["kernel"].shape[1]
        rest -= found["encoder_embedding_dim"]
    for part in ("glyphs", "crop"):
        if part in encoder:
            num_layers = len(encoder[part])
            features = encoder[part][f"conv_{num_layers - 1}"]["kernel"].shape[-1]
            found["encoder_embedding_dim"] = encoder["glyph_embedding"].shape[1]
            found["encoder_num_layers"] = num_layers
            if part == "glyphs":  # each convolution halves the map's sides, rounded up
                rest -= features * math.prod(-(-side // 2**num_layers) for side in MAP_SHAPE)
            else:
                found["encoder_crop_dim"] = math.isqrt(rest // features)
    return found


def _rgbcrop_settings(encoder: Mapping[str, Any]) -> dict[str, Any]:
    kernels = [encoder["image_stack"][f"conv_{i}"]["kernel"].shape for i in range(len(encoder["image_stack"]))]
    layers = [(shape[-1], shape[0]) for shape in kernels]
    for subtype, known in CONV_LAYERS.items():
        if layers == [(features, size) for features, size, _ in known]:
            width = encoder["image"]["kernel"].shape[1]
            return {"encoder_type": "conv", "encoder_subtype": subtype, "hidden_size": width}
    return _unknown(f"an image encoder of convolutions (features, side) {layers}")


def _unknown(what: str) -> Any:
    raise UserError(f"unknown network: {what}")
