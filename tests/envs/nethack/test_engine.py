"""The engine that is built here: NLE's games, whatever is bound; and its making, which falls back rather than guess."""

import errno
import hashlib
import json
import os
import pathlib
import threading

import numpy as np
import pytest

from oni_jax.envs.nethack.engine import built, identity
from oni_jax.envs.nethack.engine.identity import ARRAYS, Difference, compare
from oni_jax.envs.nethack.native.layout import CannotStepError
from oni_jax.envs.nethack.native.stepper import load_stepper
from oni_jax.envs.nethack.native.vector_env import NativeVectorEnv
from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv, episode_seeds
from oni_jax.host import caches
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import NetHackConfig
from tests.envs.nethack.native import needs_engine, needs_native
from tests.envs.nethack.test_native import chosen
from tests.envs.outputs import step_output

TASK = TASKS["NetHackScoreExtendedActions-v1"]
BUILT = NetHackConfig(engine="built")
NO_TERMINAL = tuple(name for name in ARRAYS if not name.startswith("tty_"))
BOUND = {
    "all": ARRAYS,
    "no terminal": NO_TERMINAL,
    "terminal": ("tty_chars", "tty_colors", "blstats", "message", "internal", "program_state"),
    "colors alone": ("tty_colors", "blstats", "internal", "program_state"),
    "cursor alone": ("tty_cursor", "blstats", "internal", "program_state"),
}


# The games


@needs_engine
@pytest.mark.parametrize("names", BOUND.values(), ids=BOUND)
def test_games_are_those_of_the_installed_engine(names):
    assert compare(built.find_engine(), 4, 150, names) > 50


@needs_engine
@pytest.mark.slow
@pytest.mark.parametrize("names", BOUND.values(), ids=BOUND)
def test_games_are_those_of_the_installed_engine_for_long(names):
    assert compare(built.find_engine(), 64, 5000, names) > 30_000


@needs_engine
def test_games_all_over_the_dungeon_are_those_of_the_installed_engine():
    """A wizard's, who goes to any level, makes monsters and wishes."""
    assert compare(built.find_engine(), 3, 200, wizard=True) > 5


@needs_engine
@pytest.mark.slow
@pytest.mark.parametrize("names", BOUND.values(), ids=BOUND)
def test_games_all_over_the_dungeon_are_those_of_the_installed_engine_for_long(names):
    """Game 46 panics in NLE's engine, which aborts a wizard's process."""
    assert compare(built.find_engine(), 46, 500, names, wizard=True) > 1000


@needs_engine
def test_other_games_are_a_difference(monkeypatch):
    start = identity.BuiltGame.start
    monkeypatch.setattr(identity.BuiltGame, "start", lambda self, core, display: start(self, core + 1, display))
    with pytest.raises(Difference, match=r"game 0, key press \d+ .*: .*glyphs.* differ"):
        compare(built.find_engine(), 1, 50)


def played(env, num_steps, seed):
    """All records of random steps."""
    out = step_output(env)
    env.reset(out)
    actions = np.random.default_rng(seed).integers(len(TASK.keys), size=(num_steps, env.num_envs)).astype(np.int32)
    records = [out.records.copy()]
    for row in actions:
        env.step(row, out)
        records.append(out.records.copy())
    every = np.stack(records)
    return b"".join(every[name].tobytes() for name in out.records.dtype.names or ())  # not the bytes between fields


def make(seed, settings=BUILT, num_envs=3):
    return NativeVectorEnv(TASK, num_envs, episode_seeds(seed), max_episode_steps=100, settings=settings)


@needs_engine
def test_threads_play_their_games():
    """Each thread has a segment base."""
    alone = []
    for seed in range(3):
        env = make(seed)
        alone.append(played(env, 150, seed))
        env.close()
    envs = [make(seed) for seed in range(3)]
    together = [b""] * 3

    def play(seed):
        together[seed] = played(envs[seed], 150, seed)

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for env in envs:
        env.close()
    assert together == alone


@needs_engine
def test_both_engines_play_in_one_process():
    """Games are made, stepped and closed in turn."""
    envs = [make(0, NetHackConfig(engine=engine), num_envs=2) for engine in ("built", "wheel", "built", "wheel")]
    assert len({played(env, 40, 0) for env in envs}) == 1
    for env in envs[:2]:
        env.close()
    assert played(envs[2], 40, 1) == played(envs[3], 40, 1)
    for env in envs[2:]:
        env.close()


@needs_engine
def test_fewer_files_are_open():
    """A copy of NLE's library is one; a block of memory is not."""
    held = {}
    for engine in ("built", "wheel"):
        before = len(list(pathlib.Path("/proc/self/fd").iterdir()))
        env = make(0, NetHackConfig(engine=engine), num_envs=16)
        env.reset(step_output(env))
        held[engine] = len(list(pathlib.Path("/proc/self/fd").iterdir())) - before
        env.close()
    assert held["built"] <= held["wheel"] - 16


# Choice of the engine


@needs_engine
def test_built_engine_is_chosen_where_there_is_one():
    note = "games are stepped in C; games share the code of the engine that was built here"
    assert chosen() == chosen(engine="built") == (NativeVectorEnv, note)


@needs_native
def test_log_says_that_a_faster_engine_is_not_built(cache):
    kind, note = chosen()
    assert kind is NativeVectorEnv
    assert note.startswith(
        "games are stepped in C; games share the engine's code; a faster engine is not built (`make e"
    )


@needs_native
def test_built_engine_that_is_asked_for_has_to_be_there(cache):
    with pytest.raises(UserError, match=r"^--engine built: a faster engine is not built \(`make engine` or"):
        chosen(engine="built")
    with pytest.raises(UserError, match="--engine built: it is stepped in C alone"):
        chosen(engine="built", stepper="python")


@needs_engine
@pytest.mark.parametrize(
    "damage", ["library", "record", "no library", "no record", "no JSON", "other JSON", "text", "link", "pipe"]
)
def test_engine_that_was_not_compared_never_plays(cache, monkeypatch, tmp_path, damage):
    library = tmp_path / "some.so"
    library.write_bytes(b"a library")
    path = built.keep(library, {})
    record = path.with_name(built.RECORD)
    assert built.find_engine() == str(path) and json.loads(record.read_text())["sha256"]
    built.find_engine.cache_clear()
    if damage == "library":
        path.write_bytes(b"another")
    elif damage == "record":
        record.write_text("{}")
    elif damage in ("no JSON", "other JSON", "text"):
        record.write_bytes({"no JSON": b"[" * 100_000, "other JSON": b"[]", "text": b"\xff"}[damage])
    elif damage == "link":
        path.rename(tmp_path / "elsewhere.so")
        path.symlink_to(tmp_path / "elsewhere.so")
    elif damage == "pipe":
        record.unlink()
        os.mkfifo(record)
    else:
        (path if damage == "no library" else record).unlink()
    kind, note = chosen()
    assert kind is NativeVectorEnv and "games share the engine's code; " in note and "make engine" in note


@needs_native
def test_library_that_is_none_never_plays(cache, tmp_path):
    library = tmp_path / "some.so"
    library.write_bytes(b"not a library")
    built.keep(library, {})
    kind, note = chosen()
    assert kind is NativeVectorEnv and note.endswith("can't be loaded, or is not the engine")
    assert "libengine.so: file too short: " in note


@needs_engine
def test_engine_in_a_read_only_home_plays(engine, cache, monkeypatch):
    built.keep(pathlib.Path(engine), {})
    caches.cache_folder.cache_clear()
    monkeypatch.setattr(caches, "_is_writable", lambda folder: False)
    assert chosen()[1].endswith("the engine that was built here")


@needs_native
def test_engine_in_the_current_folder_never_plays(cache, monkeypatch, tmp_path):
    """Without a home, `~` stays in the path of the caches."""
    (tmp_path / "some.so").write_bytes(b"not a library")
    path = built.keep(tmp_path / "some.so", {})
    monkeypatch.chdir(cache.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", cache.name)
    monkeypatch.setattr(built, "engine_folder", lambda: path.parent.with_name("none"))
    assert "a faster engine is not built" in chosen()[1]


@needs_native
def test_home_that_cannot_be_read_holds_no_engine(cache, monkeypatch):
    stat = os.stat

    def refuse(path, *arguments, **named):
        if str(path).startswith(str(cache)):
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        patch.setattr(built, "engine_folder", lambda: cache / "none")
        with pytest.raises(CannotStepError, match="a faster engine is not built"):
            built.find_engine()


@needs_engine
def test_installed_engine_plays_where_the_segment_cannot_be_set(monkeypatch):
    monkeypatch.setattr(load_stepper().library, "oni_has_segment", lambda: 0)
    kind, note = chosen()
    assert kind is NativeVectorEnv and "this system doesn't let a process set its GS register" in note


@needs_engine
def test_version_depends_on_all_that_the_library_is_made_of(monkeypatch, tmp_path):
    before = built.version()
    monkeypatch.setattr(built, "SHA256", hashlib.sha256().hexdigest())
    built.version.cache_clear()
    assert built.version() != before
    monkeypatch.undo()
    built.version.cache_clear()
    assert built.version() == before


def test_python_s_stepper_takes_no_engine():
    assert chosen(stepper="python")[0] is NetHackVectorEnv
