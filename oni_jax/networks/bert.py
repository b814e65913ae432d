"""BERT (Devlin et al. 2019, arXiv:1810.04805) as a sentence encoder: the mean of its last hidden states.

Weights are read from a folder in Hugging Face's layout, such as those of sentence-transformers: `config.json` and
`model.safetensors`, with the names that BERT's tensors have there.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.host.files import open_regular
from oni_jax.host.json_files import read_json
from oni_jax.settings.fields import UserError
from oni_jax.settings.json_text import parsed
from oni_jax.types import Array

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_DTYPES = {"F32": "<f4", "F16": "<f2"}
_PREFIX = "bert."  # prefix of the names, where the file holds a head too
_MASKED = -1e9


class Shape(NamedTuple):
    """Hyperparameters; static."""

    num_layers: int
    num_heads: int
    max_length: int  # tokens
    epsilon: float  # epsilon of layer normalisation


class Bert(NamedTuple):
    shape: Shape
    params: Mapping[str, np.ndarray]  # name in the file -> array


def load_bert(folder: str) -> Bert:
    """Reads an encoder. Raises UserError: the folder holds none."""
    try:
        config = read_json(os.path.join(folder, CONFIG), follows_links=True)
        if config.get("model_type") != "bert" or config.get("hidden_act", "gelu") != "gelu":
            raise ValueError(f"its {CONFIG} is not that of a BERT with gelu")
        names = "num_hidden_layers", "num_attention_heads", "max_position_embeddings"
        num_layers, num_heads, max_length = (int(config[name]) for name in names)
        shape = Shape(num_layers, num_heads, max_length, float(config["layer_norm_eps"]))
        params = read_safetensors(os.path.join(folder, WEIGHTS))
        bert = Bert(shape, {name.removeprefix(_PREFIX): x for name, x in params.items()})
        jax.eval_shape(lambda ids: embed(bert.shape, bert.params, ids, ids), np.zeros((1, 2), np.int32))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise UserError(f"{folder}: holds no BERT ({' '.join(str(error).split())})") from None
    return bert


def read_safetensors(path: str) -> dict[str, np.ndarray]:
    """Reads the floating-point tensors of a file as float32. Raises OSError, ValueError or LookupError."""
    with open_regular(path, follows_links=True) as file:
        num_bytes = int.from_bytes(file.read(8), "little")
        if num_bytes > os.fstat(file.fileno()).st_size:
            raise ValueError(f"{WEIGHTS} is cut off or damaged")
        header = parsed(file.read(num_bytes))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if (dtype := _DTYPES.get(entry.get("dtype"))) is not None:
            start, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[start:end], dtype).reshape(entry["shape"]).astype(np.float32)
            if not np.isfinite(tensors[name]).all():
                raise ValueError(f"{name} holds NaN or inf")
    return tensors


def embed(shape: Shape, params: Mapping[str, Array], ids: Array, mask: Array) -> Array:
    """Returns vectors of length 1 of texts, [R, D] float32.

    Args:
        shape: shape of the network.
        params: its weights.
        ids: tokens [R, L] int32, those that begin and end a text included.
        mask: [R, L] int32; 1 for a token, 0 for padding.
    """
    chex.assert_equal_shape([ids, mask])

    def dense(name: str, x: Array) -> Array:
        return jnp.einsum("...i,oi->...o", x, params[f"{name}.weight"], precision="highest") + params[f"{name}.bias"]

    def norm(name: str, x: Array) -> Array:
        x = jax.nn.standardize(x, epsilon=shape.epsilon)
        return x * params[f"{name}.LayerNorm.weight"] + params[f"{name}.LayerNorm.bias"]

    def heads(x: Array) -> Array:
        return x.reshape(*x.shape[:-1], shape.num_heads, -1)

    def attention(name: str, x: Array) -> Array:
        query, key, value = (heads(dense(f"{name}.self.{part}", x)) for part in ("query", "key", "value"))
        logits = jnp.einsum("rqhd,rkhd->rhqk", query, key, precision="highest") / np.sqrt(query.shape[-1])
        weights = jax.nn.softmax(jnp.where(mask[:, None, None] > 0, logits, _MASKED))
        mixed = jnp.einsum("rhqk,rkhd->rqhd", weights, value, precision="highest").reshape(x.shape)
        return norm(f"{name}.output", dense(f"{name}.output.dense", mixed) + x)

    words, positions, kinds = (
        params[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    x = norm("embeddings", jnp.asarray(words)[ids] + positions[: ids.shape[1]] + kinds[0])
    for i in range(shape.num_layers):
        name = f"encoder.layer.{i}"
        x = attention(f"{name}.attention", x)
        hidden = jax.nn.gelu(dense(f"{name}.intermediate.dense", x), approximate=False)
        x = norm(f"{name}.output", dense(f"{name}.output.dense", hidden) + x)
    mean = jnp.sum(x * mask[..., None], axis=1) / jnp.maximum(1, jnp.sum(mask, axis=1))[:, None]
    return mean / jnp.maximum(jnp.linalg.norm(mean, axis=-1, keepdims=True), 1e-12)
