"""Checkpoints whose notes are damaged, or which hold something else than files: an older one is read, with a line."""

import os
import pathlib
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.runs.checkpointing import Checkpoints, Saved, restore_params
from oni_jax.settings.fields import UserError
from oni_jax.training.loop import Progress
from oni_jax.training.parts import find_progress
from tests.support.trials import trial


def saved(step: int) -> Saved:
    state = {"params": {"kernel": np.full((3, 2), step, np.float32)}}
    return Saved(state, {"table": np.arange(5)}, {"env_steps": step, "updates": 7})


@pytest.fixture
def two(tmp_path) -> pathlib.Path:
    checkpoints = Checkpoints(str(tmp_path / "checkpoints"))
    for step in (100, 200):
        checkpoints.save(step, saved(step))
    checkpoints.close()
    return tmp_path / "checkpoints"


def instead(make: Callable[[pathlib.Path], object]) -> Callable[[pathlib.Path], object]:
    return lambda path: (path.unlink(), make(path))


DAMAGES: dict[str, Callable[[pathlib.Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"a text"),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-30]),
    "another step count": lambda path: path.write_bytes(path.read_bytes().replace(b"200", b"900")),
    "another count": lambda path: path.write_bytes(path.read_bytes().replace(b'"updates": 7', b'"updates": 8')),
    "none of the values": lambda path: path.write_bytes(b"{}"),
    "a list": lambda path: path.write_bytes(b"[1]"),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "pipe": instead(os.mkfifo),
    "link": instead(lambda path: path.symlink_to("/etc/os-release")),
    "device": instead(lambda path: path.symlink_to("/dev/zero")),
    "folder": instead(pathlib.Path.mkdir),
    "removed": pathlib.Path.unlink,
}


@trial("progress damaged")
@pytest.mark.parametrize("damage", DAMAGES)
def test_older_checkpoint_is_read_in_place_of_one_with_damaged_notes(two, capfd, damage):
    DAMAGES[damage](two / "200" / "progress" / "metadata")
    step, params = restore_params(str(two), {"kernel": jnp.zeros((3, 2))})
    assert step == 100 and params["kernel"][0, 0] == 100
    assert capfd.readouterr().out.count("100 is read in its place") == 1
    checkpoints = Checkpoints(str(two))
    found = checkpoints.restore({"params": {"kernel": np.zeros((3, 2), np.float32)}})
    checkpoints.close()
    assert found and found.progress["env_steps"] == 100 and found.state["params"]["kernel"][0, 0] == 100
    assert capfd.readouterr().out.count("resuming from an older one") == 1


@trial("links and pipes")
def test_link_in_the_place_of_a_checkpoint_is_not_followed(two, capsys):
    (two / "200").rename(two.parent / "elsewhere")
    (two / "200").symlink_to(two.parent / "elsewhere")
    assert restore_params(str(two), {"kernel": jnp.zeros((3, 2))})[0] == 100
    assert "it is a link" in capsys.readouterr().out
    checkpoints = Checkpoints(str(two))
    found = checkpoints.restore({"params": {"kernel": np.zeros((3, 2), np.float32)}})
    checkpoints.close()
    assert found and found.progress["env_steps"] == 100
    assert (two / "200.unreadable").is_symlink() and (two.parent / "elsewhere" / "state").is_dir()


@trial("links and pipes")
@pytest.mark.parametrize("place", ["state/manifest.ocdbt", "reward/manifest.ocdbt", "_CHECKPOINT_METADATA"])
def test_pipe_in_a_checkpoint_is_not_waited_for(two, place):
    path = two / "200" / place
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert restore_params(str(two), {"kernel": jnp.zeros((3, 2))})[0] == 100


@trial("corrupt checkpoint")
def test_deep_json_of_a_checkpoint_is_refused_in_a_line(two):
    (two / "200" / "_CHECKPOINT_METADATA").write_bytes(b"[" * 100_000)
    with pytest.raises(UserError, match="_CHECKPOINT_METADATA of one is damaged; move that one away"):
        Checkpoints(str(two))


@pytest.mark.parametrize("value", ["many", None, [], True, 1.5])
def test_progress_of_an_earlier_version_with_other_types_is_refused_in_a_line(tmp_path, value):
    found = Saved({}, {}, {**vars(Progress()), "env_steps": 100, "updates": value})
    with pytest.raises(UserError, match="updates is"):
        find_progress(found, "", str(tmp_path))
