"""Embeddings kept in a file: nothing is embedded twice, and no file ends a run."""

import numpy as np
import pytest

from oni_jax.rewards.embeddings import kept_embeddings
from oni_jax.rewards.embeddings.kept_embeddings import KeptMemo


class Embedder:
    """Counts what it embeds."""

    def __init__(self, size: int = 3, sign: float = 1.0):
        self.asked: list[str] = []
        self._size, self._sign = size, sign

    def __call__(self, texts):
        self.asked += texts
        rows = [np.random.default_rng(list(text.encode())).normal(size=self._size) for text in texts]
        return self._sign * np.array(rows, np.float32)


TEXTS = ["eat cow", "chop tree", "caf\u00e9"]


def kept(folder, embed: Embedder, texts=TEXTS, name: str = "m") -> np.ndarray:
    memo = KeptMemo(embed, str(folder), name)
    found = memo(texts)
    memo.write()
    return found


def test_next_run_reuses_embeddings(tmp_path, capsys):
    first = kept(tmp_path, Embedder())
    (path,) = tmp_path.iterdir()
    later = Embedder()
    np.testing.assert_array_equal(kept(tmp_path, later), first)
    assert later.asked == []
    np.testing.assert_array_equal(kept(tmp_path, later, [*TEXTS, "sleep"])[:3], first)
    assert later.asked == [TEXTS[0], "sleep"]  # one again, to see that it is the same model
    kept(tmp_path, other := Embedder(), name="another")
    assert other.asked == TEXTS and len([*tmp_path.iterdir()]) == 2
    kept(tmp_path, third := Embedder(), ["sleep"])
    assert third.asked == [] and path.exists() and capsys.readouterr().out == ""


def test_new_embeddings_are_written_now_and_then(tmp_path, monkeypatch):
    memo = KeptMemo(Embedder(), str(tmp_path), "m")
    memo(["a"])
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    memo(["b"])
    assert path.read_bytes() == before
    monkeypatch.setattr(kept_embeddings, "WRITE_EVERY_SECS", 0.0)
    memo(["c"])
    kept(tmp_path, again := Embedder(), ["a", "b", "c"])
    assert again.asked == []


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_damaged_file_costs_a_line(tmp_path, capsys, content):
    first = kept(tmp_path, Embedder())
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-40] if content is None else content)
    np.testing.assert_array_equal(kept(tmp_path, again := Embedder()), first)
    assert again.asked == TEXTS
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"warning: {path}: can't be read") and "embedded again" in line
    kept(tmp_path, third := Embedder())
    assert third.asked == []


@pytest.mark.parametrize("other", [Embedder(size=4), Embedder(sign=-1.0)])
def test_another_model_of_the_same_name_is_noticed(tmp_path, capsys, other):
    kept(tmp_path, Embedder())
    found = kept(tmp_path, other, [*TEXTS, "sleep"])
    np.testing.assert_array_equal(found, other([*TEXTS, "sleep"]))
    assert capsys.readouterr().out.count("another model's vectors") == 1
    np.testing.assert_array_equal(kept(tmp_path, other), found[:3])
    assert capsys.readouterr().out == ""


def test_no_embedding_is_kept_without_a_folder(tmp_path):
    kept(tmp_path / "none", Embedder())
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_can_not_be_written_costs_a_line(tmp_path, capsys, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_embeddings, "write_atomically", full)
    assert len(kept(tmp_path, Embedder())) == 3
    assert "No space left on device" in capsys.readouterr().out
