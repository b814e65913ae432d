"""Word vectors from both formats, and every way a file can be wrong."""

import struct

import numpy as np
import pytest

from oni_jax.rewards.oni.word_vectors import check_word_vectors, open_word_vectors
from oni_jax.settings.fields import UserError
from tests.rewards.word_vector_files import write_fasttext, write_text

TABLE = {"gold": [1.0, 0.5, 0.0], "newt": [0.0, -2e-3, 4.0], "über": [1.0, 1.0, 1.0]}
NUM_BUCKETS = 2000
# fastText 0.9.3's answers for a file whose row i holds i throughout, so that a vector says which rows it is the mean
# of: for words that it holds and does not, letters of several bytes, shortest and longest parts.
WORDS = ("gold", "über", "日本")
FASTTEXT_SAYS = {
    (3, 6): {
        "gold": 880.9091186523438,
        "über": 792.2727661132812,
        "日本": 628.5,
        "übel": 918.7999877929688,
        "日本語": 772.0,
        "don't": 912.857177734375,
        "x": 920.0,
        "ÿ": 1828.0,
    },
    (1, 3): {
        "gold": 1133.071533203125,
        "über": 1123.857177734375,
        "日本": 843.25,
        "日本語": 790.6000366210938,
        "newt": 936.0000610351562,
        "ÿ": 1269.0,
    },
    (5, 5): {"gold": 610.0, "über": 706.3333740234375, "日本": 2.0, "日本語": 612.0, "don't": 931.3333740234375},
}


def refusal(path, lookup: str = "") -> str:
    with pytest.raises(UserError) as error:
        vectors = open_word_vectors(str(path))
        vectors.vector(lookup)
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    return str(error.value)


def numbered_rows(num_words: int) -> np.ndarray:
    return np.repeat(np.arange(num_words + NUM_BUCKETS, dtype=np.float32)[:, None], 3, axis=1)


def test_text(tmp_path):
    path = write_text(tmp_path / "a.vec", TABLE)
    check_word_vectors(path)
    vectors = open_word_vectors(path)
    for word, vector in TABLE.items():
        np.testing.assert_array_equal(vectors.vector(word), np.array(vector, np.float32))
    assert vectors.vector("Gold") is None and vectors.vector("") is None and vectors.vector("gol") is None


def test_text_as_fasttext_writes_it_with_a_blank_at_each_end_and_a_word_twice(tmp_path):
    path = tmp_path / "a.vec"
    path.write_bytes(b"3 2\na 1 2 \nb 3 4 \na 5 6 ")
    vectors = open_word_vectors(str(path))
    np.testing.assert_array_equal(vectors.vector("a"), [1, 2])
    np.testing.assert_array_equal(vectors.vector("b"), [3, 4])


@pytest.mark.parametrize("parts", FASTTEXT_SAYS)
def test_fasttext_gives_what_the_library_gives(tmp_path, parts):
    path = write_fasttext(tmp_path / "a.bin", WORDS, numbered_rows(len(WORDS)), parts)
    check_word_vectors(path)
    vectors = open_word_vectors(path)
    for word, expected in FASTTEXT_SAYS[parts].items():
        assert vectors.vector(word) == pytest.approx([expected] * 3), word


def test_fasttext_without_parts_knows_its_words_only(tmp_path):
    vectors = open_word_vectors(write_fasttext(tmp_path / "a.bin", WORDS, numbered_rows(3)[:3], (0, 0)))
    np.testing.assert_array_equal(vectors.vector("über"), [1, 1, 1])
    assert vectors.vector("uber") is None


@pytest.mark.parametrize(
    "data, said",
    [
        (b"", "neither"),
        (b"hello\n", "neither"),
        (b"{}", "neither"),
        (b"3 x\n", "neither"),
        (b"0 3\n", "neither"),
        (bytes(range(256)) * 20, "neither"),
        (b"PK\x03\x04 and so on", "unpack"),
        (b"\x1f\x8b and so on", "unpack"),
        (b"2 3\n", "cut off"),
        (b"2 3\na 1 2 3\n", "cut off"),
        (b"2 3\na 1 2 3\nb 1 2", "line 3"),
        (b"1 3\na 1 2 3\nb 1 2 3\n", "holds 2 words"),
        (b"1 3\na 1 2 x\n", "not a word and 3 numbers"),
        (b"1 3\na 1 2 nan\n", "not a word and 3 numbers"),
        (b"2 3\n" + bytes(range(256)), "not a word and 3 numbers"),
    ],
)
def test_file_without_word_vectors_is_refused(tmp_path, data, said):
    path = tmp_path / "a.vec"
    path.write_bytes(data)
    assert said in refusal(path, "a")


def test_a_cut_or_damaged_fasttext_file_is_refused(tmp_path):
    path = tmp_path / "a.bin"
    write_fasttext(path, WORDS, numbered_rows(3), (3, 6))
    whole = path.read_bytes()
    matrix_bytes = 17 + 4 * 3 * (3 + NUM_BUCKETS)
    for size in (10, 91, 93, 100, len(whole) - 2 * matrix_bytes + 4, len(whole) - matrix_bytes - 1):
        path.write_bytes(whole[:size])
        assert "cut off" in refusal(path), size
    path.write_bytes(whole[: len(whole) - matrix_bytes])  # the output layer is not needed
    open_word_vectors(str(path))
    for offset, value, said in (
        (4, struct.pack("<i", 13), "format 13"),
        (8, struct.pack("<i", 4), "sizes"),
        (8, struct.pack("<i", -1), "sizes"),
        (40, struct.pack("<i", NUM_BUCKETS + 1), "sizes"),
        (84, struct.pack("<q", 5), "pruned"),
        (len(whole) - 2 * matrix_bytes, b"\1", "quantised"),
        (len(whole) - 2 * matrix_bytes + 17, struct.pack("<f", float("inf")), "not finite"),
    ):
        path.write_bytes(whole[:offset] + value + whole[offset + len(value) :])
        assert said in refusal(path, "gold"), said


def test_no_file_tells_where_to_get_one(tmp_path):
    for path in ("", str(tmp_path / "missing.bin"), str(tmp_path)):
        for check in (check_word_vectors, open_word_vectors):
            with pytest.raises(UserError, match=r"--word_vectors.*crawl-300d-2M-subword.*https://fasttext.cc"):
                check(path)


def test_the_check_reads_the_beginning_only(tmp_path):
    path = tmp_path / "a.vec"
    path.write_bytes(b"2000000 3\na 1 2 3\n" + b"b 1\n" * 1000)
    check_word_vectors(str(path))
    assert "line 3" in refusal(path)
