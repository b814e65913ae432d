"""Checkpoints come back as they were saved; a damaged one is told, and an older one is used."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.host.run_files import saved_secs
from oni_jax.runs.checkpointing import Checkpoints, Saved, restore_params
from oni_jax.settings.fields import UserError
from tests.support.full_disk import full_disk
from tests.support.trials import trial


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
    save(tmp_path, {step: saved(step) for step in (1, 2, 3)})
    return tmp_path


def save(folder: pathlib.Path, content: Mapping[int, Saved]) -> None:
    checkpoints = Checkpoints(str(folder), keep=2)
    for step, it in content.items():
        checkpoints.save(step, it)
    checkpoints.close()


def restore(folder: pathlib.Path, like: Saved | None = None) -> Saved | None:
    checkpoints = Checkpoints(str(folder), keep=2)
    try:
        return checkpoints.restore((like or saved(0)).state)
    finally:
        checkpoints.close()


def assert_newest(folder: pathlib.Path, number: int) -> None:
    newest = restore(folder)
    assert newest is not None
    assert_equal(newest, saved(number))


def damage(folder: pathlib.Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")


def random_damage(folder: pathlib.Path, rng: np.random.Generator) -> str:
    """Overwrites 1 to 64 bytes of a file with random ones. Returns the file's name."""
    path = rng.choice(sorted(str(path) for path in folder.rglob("*") if path.is_file() and path.stat().st_size))
    content = bytearray(pathlib.Path(path).read_bytes())
    size = min(int(rng.integers(1, 65)), len(content))
    first = int(rng.integers(0, len(content) - size + 1))
    content[first : first + size] = rng.bytes(size)
    pathlib.Path(path).write_bytes(content)
    return f"{size} bytes at {first} of {path}"


@trial("corrupt checkpoint")
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_damage_is_noticed_or_harmless(tmp_path, seed):
    rng, states = np.random.default_rng(seed), []
    checkpoints = Checkpoints(str(tmp_path / "good"), keep=2)
    for step in (1, 2):
        params = {
            "kernel": rng.normal(size=(80, 40)).astype(np.float32),
            "bias": rng.normal(size=40).astype(np.float32),
        }
        states.append({"params": params, "count": np.array(step, np.int32)})
        checkpoints.save(step, Saved(states[-1], {"table": rng.integers(0, 9, 500)}, {"counters": {"env_steps": step}}))
    checkpoints.close()
    num_noticed = 0
    for number in range(25):
        folder = tmp_path / f"damaged_{number}"
        shutil.copytree(tmp_path / "good", folder)
        where = random_damage(folder / "2", rng)
        found = restore(folder, Saved(states[0], {}, {}))
        assert found is not None, where
        step = int(found.state["count"])
        num_noticed += step == 1
        chex.assert_trees_all_equal(found.state, states[step - 1])
        assert found.progress == {"counters": {"env_steps": step}}, where
        step, params = restore_params(str(folder), states[0]["params"])
        chex.assert_trees_all_equal(params, states[step - 1]["params"])
        shutil.rmtree(folder)
    assert num_noticed > 5


@trial("corrupt checkpoint")
def test_parameters_that_are_not_finite_are_not_read(tmp_path):
    states = {1: jnp.ones((3, 2)), 2: jnp.full((3, 2), jnp.nan)}
    save(tmp_path, {step: saved(1)._replace(state={"params": {"kernel": x}}) for step, x in states.items()})
    assert restore_params(str(tmp_path), {"kernel": jnp.zeros((3, 2))})[0] == 1
    with pytest.raises(UserError, match="params.*kernel|kernel holds NaN"):
        restore_params(str(tmp_path), {"kernel": jnp.zeros((3, 2))}, 2)


def test_a_reward_may_have_seen_nothing_yet(tmp_path):
    arrays = {"seen": np.zeros((0, 3), np.float32), "captions": np.array([b"a door", b""]), "count": np.int64(2)}
    save(tmp_path, {1: saved(1)._replace(reward=arrays)})  # type: ignore
    restored = restore(tmp_path)
    assert restored and restored.reward.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(restored.reward[name], array, strict=True)


def test_the_newest_comes_back(three):
    assert_newest(three, 3)
    assert sorted(path.name for path in three.iterdir()) == ["2", "3"]


def test_the_time_that_it_holds_can_be_read_without_jax(tmp_path):
    assert saved_secs(str(tmp_path)) == 0.0
    save(tmp_path / "checkpoints", {i: Saved({"x": np.zeros(2)}, {}, {"train_secs": i + 0.5}) for i in (1, 20)})
    assert saved_secs(str(tmp_path)) == 20.5
    (tmp_path / "checkpoints" / "300").mkdir()  # damaged
    assert saved_secs(str(tmp_path)) == 0.0


def test_none_at_all(tmp_path):
    assert restore(tmp_path) is None


def test_a_step_that_is_there_is_left_as_it_is(three):
    save(three, {3: saved(99)})
    assert_newest(three, 3)


def test_a_damaged_one_is_set_aside_for_the_one_before(three, capsys):
    damage(three / "3")
    assert_newest(three, 2)
    assert "checkpoint 3 can't be read" in capsys.readouterr().out
    assert (three / "3.unreadable").is_dir()
    save(three, {3: saved(3)})
    assert_newest(three, 3)


def test_one_that_was_not_finished_is_not_seen(three):
    (three / "3").rename(three / "4.orbax-checkpoint-tmp-1")
    assert_newest(three, 2)


@trial("corrupt checkpoint")
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


def test_failed_save_is_reported_and_ends_nothing(three, capsys, monkeypatch):
    checkpoints = Checkpoints(str(three), keep=2)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints._manager, "save", full)
    checkpoints.save(4, saved(4))
    checkpoints.close()
    assert "No space left on device" in capsys.readouterr().out
    assert_newest(three, 3)


def test_saved_arrays_may_be_overwritten_at_once(tmp_path):
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


def test_an_unreadable_one_is_set_aside_again(three):
    for _ in range(2):
        damage(three / "3")
        assert_newest(three, 2)
        save(three, {3: saved(3)})
    assert len(list(three.glob("3.unreadable*"))) == 2


def delete(path: pathlib.Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def halve(path: pathlib.Path) -> None:
    if path.is_file():
        os.truncate(path, path.stat().st_size // 2)
    else:
        shutil.rmtree(path)
        path.mkdir()


def test_a_half_deleted_one_is_read_whole_or_not_at_all(three, tmp_path_factory):
    """Whichever of its files or folders is missing, or cut off."""
    places = [three / "3", *sorted((three / "3").rglob("*"))]
    num_set_aside = 0
    for path in places:
        for spoil in (delete, halve):
            copy = tmp_path_factory.mktemp("copy") / "checkpoints"
            shutil.copytree(three, copy)
            spoil(copy / path.relative_to(three))
            newest = restore(copy)
            set_aside = not (copy / "3").is_dir()
            num_set_aside += set_aside
            assert newest is not None, path
            assert_equal(newest, saved(2 if set_aside else 3))
    assert num_set_aside > len(places) / 2


def test_strangers_in_the_folder_are_passed_over(three):
    (three / "notes.txt").write_text("not a checkpoint")
    (three / "7").write_text("not a folder")
    (three / "best").mkdir()
    (three / "²").mkdir()
    (three / "9").mkdir()
    assert_newest(three, 3)
    save(three, {step: saved(step) for step in (10, 11, 12)})
    names = {path.name for path in three.iterdir()}
    assert {"11", "12", "notes.txt", "best", "²"} <= names and not {"3", "10"} & names
    assert_newest(three, 12)
    assert restore_params(str(three), saved(0).state["params"])[0] == 12


def test_a_file_in_the_folders_place_is_refused_in_a_line(tmp_path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(UserError, match="checkpoints") as error:
        Checkpoints(str(tmp_path / "checkpoints"))
    assert "\n" not in str(error.value)


@trial("full disk")
def test_a_full_disk_is_told_and_the_last_good_one_stays(three, capsys):
    checkpoints = Checkpoints(str(three), keep=2)
    with full_disk():
        for step in (4, 5):
            checkpoints.save(step, saved(step))
        checkpoints.close()
    told = capsys.readouterr()
    assert told.out.count("\n") == told.out.count("can't be written") == 2 and told.err == ""
    assert sorted(whole(three)) == [2, 3]
    assert_newest(three, 3)


@pytest.mark.parametrize("max_bytes", [0, 30, 300])
def test_saving_goes_on_when_there_is_room_again(three, max_bytes, capsys):
    """Whatever fails first: the arrays, the JSON, orbax's notes on either."""
    checkpoints = Checkpoints(str(three), keep=2)
    threads = {*threading.enumerate()}
    for step in (4, 5, 6, 7):
        with full_disk(max_bytes):
            checkpoints.save(step, saved(step))
            checkpoints.save(step, saved(step))  # waits for the first, and tries again
            assert checkpoints.finish()
        assert sorted(whole(three)) == [2, 3] and len(unfinished(three)) <= 1
    for thread in {*threading.enumerate()} - threads:
        threading.Thread.join(thread, timeout=30)  # orbax's raises its thread's error again
        assert not thread.is_alive(), thread.name
    assert capsys.readouterr().out.count("can't be written") == 8
    checkpoints.save(8, saved(8))
    checkpoints.close()
    assert sorted(path.name for path in three.iterdir()) == ["3", "8"]
    assert_newest(three, 8)


def large(value: int) -> Saved:
    state = {"params": {str(i): jnp.full((100_000,), float(value)) for i in range(8)}}
    return Saved(state, {"table": np.full(100_000, value)}, {"counters": value})


SAVER = textwrap.dedent("""
    import itertools, sys
    from oni_jax.runs.checkpointing import Checkpoints
    from tests.runs.test_checkpointing import large
    checkpoints = Checkpoints(sys.argv[1], keep=2)
    for step in itertools.count(1):
        checkpoints.save(step, large(step))
""")


def test_a_kill_while_saving_costs_only_what_was_not_finished(tmp_path):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    saver = subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path)], env=environment)
    while max(whole(tmp_path), default=0) < 4 or not unfinished(tmp_path):
        assert saver.poll() is None
        time.sleep(0.001)
    saver.send_signal(signal.SIGKILL)
    saver.wait()
    expected = max(whole(tmp_path))
    newest = restore(tmp_path, large(0))
    assert newest is not None
    assert_equal(newest, large(expected))
    assert not unfinished(tmp_path)


def whole(folder: pathlib.Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]


def unfinished(folder: pathlib.Path) -> list[pathlib.Path]:
    return list(folder.glob("*.orbax-checkpoint-tmp*"))
