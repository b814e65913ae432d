"""Checkpoints come back as they were saved; a damaged one is told, and an older one is used."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.checkpointing import Checkpoints, Saved
from oni_jax.config import UserError


def saved(value: float) -> Saved:
    state = {"params": {"kernel": jnp.full((3, 2), value)}, "count": (jnp.asarray(7, jnp.int32), ())}
    return Saved(state, {"table": np.arange(5)}, {"counters": {"env_steps": int(value)}})


def assert_equal(a: Saved, b: Saved) -> None:
    jax.tree.map(np.testing.assert_array_equal, a.state, b.state)
    assert jax.tree.structure(a.state) == jax.tree.structure(b.state)
    np.testing.assert_array_equal(a.reward["table"], b.reward["table"])
    assert a.progress == b.progress


@pytest.fixture
def three(tmp_path) -> pathlib.Path:
    """Checkpoints 1, 2, 3, of which the newest two are kept."""
    checkpoints = Checkpoints(str(tmp_path), keep=2)
    for step in (1, 2, 3):
        checkpoints.save(step, saved(step))
    checkpoints.close()
    return tmp_path


def restore(folder: pathlib.Path, like: Saved | None = None) -> Saved | None:
    checkpoints = Checkpoints(str(folder), keep=2)
    try:
        return checkpoints.restore((like or saved(0)).state)
    finally:
        checkpoints.close()


def damage(folder: pathlib.Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")


def test_the_newest_comes_back(three):
    assert sorted(path.name for path in three.iterdir()) == ["2", "3"]
    newest = restore(three)
    assert newest is not None
    assert_equal(newest, saved(3))


def test_none_at_all(tmp_path):
    assert restore(tmp_path) is None


def test_a_step_that_is_there_is_left_as_it_is(three):
    checkpoints = Checkpoints(str(three), keep=2)
    checkpoints.save(3, saved(99))
    checkpoints.close()
    newest = restore(three)
    assert newest is not None
    assert_equal(newest, saved(3))


def test_a_damaged_one_is_set_aside_for_the_one_before(three, capsys):
    damage(three / "3")
    newest = restore(three)
    assert newest is not None
    assert_equal(newest, saved(2))
    assert "checkpoint 3 can't be read" in capsys.readouterr().out
    assert (three / "3.unreadable").is_dir()
    checkpoints = Checkpoints(str(three), keep=2)
    checkpoints.save(3, saved(3))
    checkpoints.close()
    again = restore(three)
    assert again is not None
    assert_equal(again, saved(3))


def test_one_that_was_not_finished_is_not_seen(three):
    (three / "3").rename(three / "4.orbax-checkpoint-tmp-1")
    newest = restore(three)
    assert newest is not None
    assert_equal(newest, saved(2))


def test_only_damaged_ones_are_refused_and_left_alone(three):
    damage(three)
    with pytest.raises(UserError, match=r"3 can't be read") as caught:
        restore(three)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in three.iterdir()) == ["2", "3"]


def test_those_of_another_network_are_refused(three):
    like = saved(0)
    like.state["params"]["kernel"] = jnp.zeros((4, 2))
    with pytest.raises(UserError, match="another network"):
        restore(three, like)


def test_what_cannot_be_saved_is_told_and_ends_nothing(three, capsys, monkeypatch):
    checkpoints = Checkpoints(str(three), keep=2)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints._manager, "save", full)
    checkpoints.save(4, saved(4))
    checkpoints.close()
    assert "No space left on device" in capsys.readouterr().out
    newest = restore(three)
    assert newest is not None
    assert_equal(newest, saved(3))


def test_what_is_saved_may_be_overwritten_at_once(tmp_path):
    """The next update reuses the memory of the state that is being saved in the background."""
    overwrite = jax.jit(lambda x: x + 1, donate_argnums=0)
    state = jnp.arange(1_000_000.0)
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save(1, Saved({"x": state}, {}, {}))
    for _ in range(3):
        state = overwrite(state)
    state.block_until_ready()
    checkpoints.close()
    checkpoints = Checkpoints(str(tmp_path))
    restored = checkpoints.restore({"x": state})
    checkpoints.close()
    assert restored is not None
    np.testing.assert_array_equal(restored.state["x"], np.arange(1_000_000.0))
