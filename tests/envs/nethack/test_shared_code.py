"""Games that share the engine's code: the same games, on the same pages, or on separate copies."""

import os
import pathlib
import struct
import types

import numpy as np
import pytest

from oni_jax.envs.nethack import shared_code
from oni_jax.envs.nethack.shared_code import CannotShareError, SharedCode, read_only_segments
from oni_jax.envs.nethack.tasks import TASKS, nethack
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv, episode_seeds
from oni_jax.settings.worlds import NetHackConfig
from tests.envs.outputs import step_output

TASK = TASKS["NetHackScoreExtendedActions-v1"]
LIBRARY = pathlib.Path(nethack.nethack.DLPATH)


def play(share_code: bool, num_steps: int = 150, num_envs: int = 3) -> tuple[np.ndarray, str, list[str]]:
    """Records [T, N] of short seeded games, the note, and the executable mappings of NetHack's code."""
    env = NetHackVectorEnv(
        TASK, num_envs, episode_seeds(5), max_episode_steps=40, settings=NetHackConfig(share_code=share_code)
    )
    out, rows = step_output(env), []
    try:
        env.reset(out)
        for actions in np.random.default_rng(0).integers(0, len(TASK.keys), (num_steps, num_envs)):
            env.step(actions, out)
            rows.append(out.records.copy())
        mappings = [line for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if " r-xp " in line]
        return np.array(rows), env.note(), [line for line in mappings if "libnethack" in line or "memfd:nle" in line]
    finally:
        env.close()


@pytest.fixture(scope="module")
def apart():
    return play(share_code=False)


def test_sharing_games_are_the_same_games_on_the_same_pages(apart):
    records, note, mappings = play(share_code=True)
    assert_equal(records, apart[0])
    assert note == "games share the engine's code"
    assert len(mappings) == 3 and all(line.endswith(str(LIBRARY)) for line in mappings)
    assert apart[1] == "each game has a separate copy of the engine's code"
    assert len(apart[2]) == 3 and all("memfd:nle" in line for line in apart[2])


def assert_equal(records: np.ndarray, others: np.ndarray) -> None:
    for name in records.dtype.names or ():
        np.testing.assert_array_equal(records[name], others[name], name)


def fallen_back(apart) -> str:
    """Why games did not share. They were the same games, each with separate code."""
    records, note, mappings = play(share_code=True)
    assert_equal(records, apart[0])
    assert len(mappings) == 3 and all("memfd:nle" in line for line in mappings)
    prefix = "games can't share the engine's code: "
    assert note.startswith(prefix)
    return note.removeprefix(prefix)


def test_another_library_is_not_mapped(apart, monkeypatch, tmp_path):
    changed = bytearray(LIBRARY.read_bytes())
    changed[read_only_segments(bytes(changed[:4096]))[-1].offset + 1000] ^= 1
    (tmp_path / "other.so").write_bytes(changed)
    monkeypatch.setattr(SharedCode.__init__, "__defaults__", (str(tmp_path / "other.so"),))
    assert fallen_back(apart) == "a game's library is not the installed one"


def test_a_library_that_is_not_found_in_memory_is_left_alone(apart, monkeypatch):
    share = SharedCode.share
    monkeypatch.setattr(SharedCode, "share", lambda self, path, compare: share(self, path + "0", compare))
    assert "is not loaded" in fallen_back(apart)


def test_a_refused_mapping_leaves_the_game_its_code(apart, monkeypatch):
    mmap = shared_code.LIBC.mmap
    refuse = lambda address, *rest: mmap(address, *rest) if address is None else shared_code.MAP_FAILED  # noqa: E731
    monkeypatch.setattr(shared_code.LIBC, "mmap", refuse)
    assert fallen_back(apart).startswith("mmap failed")


def test_other_systems_keep_their_copies(apart, monkeypatch):
    monkeypatch.setattr(shared_code, "sys", types.SimpleNamespace(platform="other"))
    assert fallen_back(apart) == "this system's memory mapping is not known"


def test_headers():
    header = LIBRARY.read_bytes()[:4096]
    segments = read_only_segments(header)
    assert [segment.protection for segment in segments].count(5) == 1  # readable and executable
    assert all(segment.protection in (1, 5) for segment in segments)
    (start,) = struct.unpack_from("<Q", header, 32)
    moved = bytearray(header)
    moved[start + 16] ^= 1  # the first segment's address
    broken = [b"", b"\x7fELF\x01\x01" + header[6:], header[:200], bytes(moved), os.urandom(4096)]
    for bad in broken:
        with pytest.raises(CannotShareError):
            read_only_segments(bad)


def test_close_gives_everything_back():
    before = len(os.listdir("/proc/self/fd")), pathlib.Path("/proc/self/maps").read_text().count(str(LIBRARY))
    code = SharedCode()
    code.close()
    assert before == (len(os.listdir("/proc/self/fd")), pathlib.Path("/proc/self/maps").read_text().count(str(LIBRARY)))
