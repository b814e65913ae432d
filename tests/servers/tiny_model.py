"""A tiny Llama that answers FOO or BAR and then ends; random attention over the prompt decides which of the two.

Written as GGUF, for llama.cpp, or as transformers reads it. The residual stream's dimension 0 always holds the same
number, and dimension 1 only behind a label: from them the output layer knows whether it is time for a label or the end.
"""

import json
import pathlib
import random
import string
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

CONTEXT_SIZE = 4096  # tokens
NUM_LAYERS, HIDDEN_SIZE, NUM_HEADS, FEED_FORWARD_SIZE = 2, 64, 4, 128
HEAD_SIZE = HIDDEN_SIZE // NUM_HEADS
SLOW = HEAD_SIZE - 2  # dimension of a head; turns by 0.001 a token
UNKNOWN, BEGIN, END = range(3)
NUM_SPECIAL, NUM_BYTES = 3, 256
# A token for each byte, so that any text can be read and written; "▁" is the space of sentencepiece's vocabularies.
TOKENS = ("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(NUM_BYTES)), "▁", "FOO", "BAR")
LABELS = [TOKENS.index("FOO"), TOKENS.index("BAR")]
EPSILON = 1e-5
SEED = 9  # one whose answers differ


def made_up_messages(count: int) -> list[bytes]:
    """Messages that all differ, and that the model finds different."""
    rng = random.Random(0)
    return [
        b"You kill the %s! (%d)" % ("".join(rng.choices(string.ascii_lowercase, k=8)).encode(), i) for i in range(count)
    ]


def weights(seed: int = SEED) -> dict[str, np.ndarray]:
    """The tensors, [out, in] float32, under llama.cpp's names and in transformers' order."""
    rng = np.random.default_rng(seed)

    def normal(num_out: int, num_in: int, gain: float = 1.0) -> np.ndarray:
        return (rng.standard_normal((num_out, num_in)) * gain / np.sqrt(num_in)).astype(np.float32)

    embedding = normal(len(TOKENS), HIDDEN_SIZE, np.sqrt(HIDDEN_SIZE))
    embedding[:, 0], embedding[:, 1] = 3.0, 0.0
    embedding[LABELS, 1] = 3.0
    output = normal(len(TOKENS), HIDDEN_SIZE, 2.0)
    output[:, :2] = 0.0
    output[LABELS, 0], output[LABELS, 1] = 10.0, -20.0
    output[END, 1] = 10.0
    tensors = {"token_embd": embedding, "output": output, "output_norm": np.ones(HIDDEN_SIZE, np.float32)}
    for layer in range(NUM_LAYERS):
        block = {
            "attn_norm": np.ones(HIDDEN_SIZE, np.float32),
            "attn_q": normal(HIDDEN_SIZE, HIDDEN_SIZE, 2.0),
            "attn_k": normal(HIDDEN_SIZE, HIDDEN_SIZE, 2.0),
            "attn_v": normal(HIDDEN_SIZE, HIDDEN_SIZE),
            "attn_output": normal(HIDDEN_SIZE, HIDDEN_SIZE),
            "ffn_norm": np.ones(HIDDEN_SIZE, np.float32),
            "ffn_gate": normal(FEED_FORWARD_SIZE, HIDDEN_SIZE),
            "ffn_up": normal(FEED_FORWARD_SIZE, HIDDEN_SIZE),
            "ffn_down": normal(HIDDEN_SIZE, FEED_FORWARD_SIZE),
        }
        block["attn_output"][:2] = block["ffn_down"][:2] = 0.0
        for name in ("attn_q", "attn_k"):
            # A part of each head that turns slowly with the position: it looks at the last hundred tokens or so, for
            # an answer that hung on the whole prompt alike would hardly hang on the message.
            block[name][SLOW::HEAD_SIZE] = 0.0
            block[name][SLOW::HEAD_SIZE, 0] = 12.0
        tensors.update({f"blk.{layer}.{name}": tensor for name, tensor in block.items()})
    return tensors


def write_gguf(path: pathlib.Path) -> None:
    """One file, version 3 of the format: github.com/ggml-org/ggml/blob/master/docs/gguf.md."""
    fields = {
        "general.architecture": "llama",
        "llama.context_length": CONTEXT_SIZE,
        "llama.embedding_length": HIDDEN_SIZE,
        "llama.block_count": NUM_LAYERS,
        "llama.feed_forward_length": FEED_FORWARD_SIZE,
        "llama.attention.head_count": NUM_HEADS,
        "llama.attention.layer_norm_rms_epsilon": EPSILON,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(TOKENS),
        "tokenizer.ggml.scores": [0.0] * len(TOKENS),
        # 1 normal, 2 unknown, 3 control, 6 byte
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * NUM_BYTES + [1] * (len(TOKENS) - NUM_SPECIAL - NUM_BYTES),
        "tokenizer.ggml.unknown_token_id": UNKNOWN,
        "tokenizer.ggml.bos_token_id": BEGIN,
        "tokenizer.ggml.eos_token_id": END,
        "tokenizer.ggml.add_space_prefix": False,
    }
    tensors = {name: _interleave(tensor) if name[-2:] in ("_q", "_k") else tensor for name, tensor in weights().items()}
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    header += b"".join(_gguf_string(name) + _gguf_value(value) for name, value in fields.items())
    offset = 0
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]  # the fastest axis first
        header += _gguf_string(f"{name}.weight") + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        header += struct.pack("<IQ", 0, offset)  # 0: float32
        offset += tensor.nbytes
    # Tensors begin at multiples of 32 bytes; these have such sizes.
    assert all(tensor.nbytes % 32 == 0 for tensor in tensors.values())
    padding = b"\0" * (-len(header) % 32)
    path.write_bytes(header + padding + b"".join(tensor.tobytes() for tensor in tensors.values()))


def write_transformers(folder: pathlib.Path) -> None:
    """Configuration, tokenizer and safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float32",
        "vocab_size": len(TOKENS),
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": FEED_FORWARD_SIZE,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_HEADS,
        "num_key_value_heads": NUM_HEADS,
        "max_position_embeddings": CONTEXT_SIZE,
        "rms_norm_eps": EPSILON,
        "tie_word_embeddings": False,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
    }
    special = {"unk_token": TOKENS[UNKNOWN], "bos_token": TOKENS[BEGIN], "eos_token": TOKENS[END]}
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    space = {"pattern": {"String": " "}, "content": "▁"}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": TOKENS[i], **flags} for i in range(NUM_SPECIAL)],
        "normalizer": {"type": "Replace", **space},
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": TOKENS[UNKNOWN],
            "byte_fallback": True,
            "vocab": {token: i for i, token in enumerate(TOKENS)},
            "merges": [],
        },
    }
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT_SIZE, **special}
    contents = {"config": config, "tokenizer": tokenizer, "tokenizer_config": tokenizer_config}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "model.safetensors").write_bytes(_safetensors(weights()))


def _safetensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    """The tensors under transformers' names."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        header[_transformers_name(name)] = dict(dtype="F32", shape=tensor.shape, data_offsets=[offset, end])
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensor.tobytes() for tensor in tensors.values())


def _transformers_name(name: str) -> str:
    names = {
        "token_embd": "model.embed_tokens",
        "output": "lm_head",
        "output_norm": "model.norm",
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    if name.startswith("blk."):
        _, layer, part = name.split(".")
        return f"model.layers.{layer}.{names[part]}.weight"
    return f"{names[name]}.weight"


def _interleave(tensor: np.ndarray) -> np.ndarray:
    """Reorders each head's dimensions: transformers rotates i with i + 8, llama.cpp 2i with 2i + 1."""
    halves = tensor.reshape(NUM_HEADS, 2, HEAD_SIZE // 2, HIDDEN_SIZE)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(HIDDEN_SIZE, HIDDEN_SIZE)


def _gguf_string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _gguf_value(value: object) -> bytes:
    """The value behind its type's number; whole numbers are unsigned, but for those in lists."""
    if isinstance(value, list):
        code = {str: 8, float: 6, int: 5}[type(value[0])]
        return struct.pack("<IIQ", 9, code, len(value)) + b"".join(_gguf_value(element)[4:] for element in value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _gguf_string(value)
    code, form = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}[type(value)]  # type: ignore
    return struct.pack(f"<I{form}", code, value)
