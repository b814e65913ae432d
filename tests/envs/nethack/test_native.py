"""The stepper in C: the same games as in Python, whatever happens to them; and where it can't be used, Python."""

import contextlib
import gc
import os
import pathlib
import platform
import shutil
import sys

import numpy as np
import pytest

from oni_jax.envs.nethack import game as nethack_game
from oni_jax.envs.nethack.native import layout, stepper
from oni_jax.envs.nethack.native import vector_env as native_vector_env
from oni_jax.envs.nethack.native.layout import CannotStepError, read_layout
from oni_jax.envs.nethack.native.stepper import why_not
from oni_jax.envs.nethack.native.vector_env import NativeVectorEnv
from oni_jax.envs.nethack.tasks import TASKS, nethack
from oni_jax.envs.nethack.vector_env import (
    ABORTED,
    DEATH,
    DEFAULT_OBSERVATIONS,
    MAX_STARTS,
    OBSERVATIONS,
    TASK_SUCCESSFUL,
    NetHackVectorEnv,
    episode_seeds,
)
from oni_jax.envs.registry import make_vector_env
from oni_jax.settings.worlds import EnvConfig, NetHackConfig
from tests.envs.nethack.native import ENGINES, needs_native
from tests.envs.outputs import are_equal, step_output

EXTENDED = TASKS["NetHackScoreExtendedActions-v1"]
VIEWS = ("terminal", "map")
LIBRARY = pathlib.Path(nethack.nethack.DLPATH)
SETTINGS_SIZE = 49224  # size in this NLE


class Pair:
    """The same games, stepped in Python and in C; every step is compared."""

    def __init__(self, task, num_envs, limit=60, view="terminal", observations=OBSERVATIONS, seed=0, engine="auto"):
        arguments = task, num_envs, episode_seeds(seed), 0, limit, observations
        native = NativeVectorEnv(*arguments, NetHackConfig(view, engine=engine))
        self.envs = NetHackVectorEnv(*arguments, NetHackConfig(view)), native
        self.outs = [step_output(env) for env in self.envs]
        self._rng = np.random.default_rng(seed)
        self._num_keys = len(task.keys)
        self.ends: dict[int, int] = {}  # end status -> episodes
        for env, out in zip(self.envs, self.outs):
            env.reset(out)
        self.compare()

    def step(self, num_steps=1):
        for _ in range(num_steps):
            actions = self._rng.integers(self._num_keys, size=self.envs[0].num_envs).astype(np.int32)
            for env, out in zip(self.envs, self.outs):
                env.step(actions, out)
            self.compare()
            for status in self.envs[0].end_status.tolist():
                self.ends[status] = self.ends.get(status, 0) + 1

    def compare(self):
        (python, native), (one, other) = self.envs, self.outs
        assert are_equal(one.records, other.records) and are_equal(one.finals, other.finals)
        assert np.array_equal(one.episode_stats, other.episode_stats) and one.texts == other.texts
        for name in ("end_status", "previous_blstats"):
            assert np.array_equal(getattr(python, name), getattr(native, name)), name
        for name in ("blstats", "message", "glyphs"):
            assert np.array_equal(getattr(python.arrays, name), getattr(native.arrays, name)), name
        running = np.flatnonzero(~one.records["is_first"])
        for i in running.tolist():
            assert python.kill_count(i) == native.kill_count(i) and python.scout(i) == native.scout(i)
        assert python.num_restarts == native.num_restarts
        assert python._last_failure == native._last_failure

    def close(self):
        for env in self.envs:
            env.close()


@pytest.fixture
def make_pair():
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **named: stack.enter_context(contextlib.closing(Pair(*arguments, **named)))


def test_stepper_is_built_where_there_is_a_compiler():
    is_known = sys.platform.startswith("linux") and platform.machine() == "x86_64"
    if is_known and (shutil.which("cc") or shutil.which("gcc")):
        assert why_not() == "", "run `make setup`"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("index", range(len(TASKS)), ids=list(TASKS))
def test_all_tasks_are_the_same(make_pair, index, engine):
    pair = make_pair(list(TASKS.values())[index], 2, limit=50, view=VIEWS[index % 2], seed=index, engine=engine)
    pair.step(110)
    assert pair.ends[ABORTED] >= 3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("view", VIEWS)
def test_long_games_are_the_same(make_pair, view, engine):
    pair = make_pair(EXTENDED, 6, limit=5000, view=view, observations=DEFAULT_OBSERVATIONS, engine=engine)
    pair.step(500)
    assert pair.ends[DEATH] >= 3


@needs_native
@pytest.mark.parametrize("name", ["NetHackOracle-v1", "NetHackOracleSober-v1"])
def test_goals_are_reached_in_the_same_steps(make_pair, monkeypatch, name):
    """The goal is a glyph that heroes meet, in place of the Oracle."""
    wall = nethack.GLYPH_CMAP_OFF + 1
    monkeypatch.setattr("oni_jax.envs.nethack.tasks.ORACLE_GLYPH", wall)
    monkeypatch.setattr(native_vector_env, "ORACLE_GLYPH", wall)
    for continual in (False, True):
        pair = make_pair(TASKS[name]._replace(continual=continual), 4, limit=50)
        pair.step(100)
        assert (pair.ends.get(TASK_SUCCESSFUL, 0) > 3) != continual


@needs_native
def test_condition_is_tested_by_its_bit(make_pair, monkeypatch):
    """No bit at all is never set: each hero is sober."""
    wall = nethack.GLYPH_CMAP_OFF + 1
    for module in ("oni_jax.envs.nethack.tasks", native_vector_env.__name__):
        monkeypatch.setattr(f"{module}.ORACLE_GLYPH", wall)
        monkeypatch.setattr(f"{module}.HALLUCINATING", 0)
    pair = make_pair(TASKS["NetHackOracleSober-v1"], 4, limit=50)
    pair.step(100)
    assert pair.ends.get(TASK_SUCCESSFUL, 0) > 3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", TASKS)
def test_all_tasks_are_the_same_for_long(make_pair, name, view, engine):
    """64 games x 5,000 steps."""
    pair = make_pair(TASKS[name], 64, limit=1000, view=view, observations=DEFAULT_OBSERVATIONS, engine=engine)
    pair.step(5000)
    assert pair.ends[DEATH] > 100 and pair.ends[ABORTED] > 0


@needs_native
@pytest.mark.parametrize("view", VIEWS)
def test_any_statistics_and_screens_are_shown_alike(make_pair, view):
    """Heroes everywhere, also where none can stand, and large numbers."""
    pair, rng = make_pair(EXTENDED, 4, view=view), np.random.default_rng(0)
    for scale in (10, 10**4, 10**9):
        blstats = rng.integers(-scale, scale, size=(4, 27))
        blstats[:, 0], blstats[:, 1] = rng.integers(0, 79, 4), rng.integers(0, 21, 4)
        blstats[:2, :2] = [[0, 0], [78, 20]]
        screens = {name: rng.integers(0, 127, x.shape) for name, x in pair.envs[0].arrays.screen.items()}
        for env, out in zip(pair.envs, pair.outs):
            env.arrays.blstats[:] = blstats
            for name, screen in screens.items():
                env.arrays.screen[name][:] = screen
            env._observe(slice(None), out.records)
        assert are_equal(*(out.records for out in pair.outs))
    assert np.abs(pair.outs[0].records["vector_obs"]).max() == 5


@needs_native
def test_a_game_that_opens_with_a_question_starts():
    """See test_vector_env."""
    env = NativeVectorEnv(EXTENDED, 1, lambda *_: (3440655168540529677, 1684844190883426603), 0, 60)
    env.reset(step_output(env))
    assert env.num_restarts == 0
    env.close()


# Faults


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("limit", [0, 1])
def test_games_that_ask_without_end_are_replaced_alike(make_pair, monkeypatch, limit, engine):
    monkeypatch.setattr(nethack_game, "MAX_AUTOMATIC_PRESSES", limit)
    pair = make_pair(EXTENDED, 3, limit=40, engine=engine)
    pair.step(100)
    assert pair.envs[1].num_restarts > 3 and "still prompts after" in pair.envs[1].note()


@pytest.mark.parametrize("engine", ENGINES)
def test_games_that_fail_to_start_are_replaced_alike(make_pair, capfd, engine):
    pair = make_pair(EXTENDED, 2, limit=10, engine=engine)
    python, native = (env._games[1] for env in pair.envs)
    for folder in (python._nethack._vardir, native.folder):
        os.unlink(pathlib.Path(folder, "nhdat"))  # the engine's data
    pair.step(25)
    assert [env.num_restarts for env in pair.envs] == [1, 1]
    assert "game 1 raised RuntimeError('NetHack done right after" in pair.envs[1].note()


@needs_native
def test_games_that_never_begin_are_the_process_s_failure(monkeypatch):
    monkeypatch.setattr(nethack_game, "MAX_OPENING_PRESSES", 0)
    env = NativeVectorEnv(EXTENDED, 1, episode_seeds(0))
    with pytest.raises(RuntimeError, match="did not begin within 0 key presses"):
        env.reset(step_output(env))
    assert env.num_restarts == MAX_STARTS - 1
    env.close()


@needs_native
def test_other_actions_and_buffers_are_refused():
    env = NativeVectorEnv(EXTENDED, 1, episode_seeds(0))
    out = step_output(env)
    env.reset(out)
    for action in (-1, len(EXTENDED.keys)):
        with pytest.raises(IndexError):
            env.step(np.array([action], np.int32), out)
    with pytest.raises(ValueError):
        env.step(np.zeros(2, np.int32), out)
    with pytest.raises(ValueError):
        env.step(np.zeros(1, np.int32), out._replace(finals=out.finals[:0]))
    env.close()
    env.close()
    with pytest.raises(IndexError):
        env.step(np.zeros(1, np.int32), out)


@needs_native
def test_a_finished_game_takes_no_key():
    env = NativeVectorEnv(EXTENDED, 1, episode_seeds(0), max_episode_steps=50)
    out = step_output(env)
    env.reset(out)
    env._games[0].quit()
    env.step(np.zeros(1, np.int32), out)
    assert env.num_restarts == 1 and "Called step on finished NetHack" in env.note() and out.records["truncated"].all()
    env.close()


def open_files():
    return sorted(os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")[:-1])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("is_closed", [True, False])
def test_closing_leaves_no_file(tmp_path, monkeypatch, is_closed, engine):
    """A library that stays loaded would be another engine's, whose path is the same: of a file descriptor."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    env = NativeVectorEnv(EXTENDED, 2, episode_seeds(0), settings=NetHackConfig(engine=engine))
    env.reset(step_output(env))
    assert (pathlib.Path("/proc/self/maps").read_text().count("memfd:nle") > 0) == (engine == "wheel")
    if is_closed:
        env.close()
    del env
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before and list(tmp_path.iterdir()) == []
    assert pathlib.Path("/proc/self/maps").read_text().count("memfd:nle") == 0


def bytes_a_reset(num_resets, engine, num_envs=4):
    """Growth of memory in bytes a reset, after the first few; files and threads don't grow."""
    env = NativeVectorEnv(
        EXTENDED, num_envs, episode_seeds(0), max_episode_steps=3, settings=NetHackConfig(engine=engine)
    )
    out = step_output(env)
    env.reset(out)
    actions = np.random.default_rng(0).integers(28, size=(3, num_envs)).astype(np.int32)
    try:
        held = []
        for rounds in (max(25, num_resets // 10), num_resets // num_envs):
            for _ in range(rounds):
                for row in actions:
                    env.step(row, out)
            assert out.records["is_first"].all()
            gc.collect()
            counts = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
            held.append((resident_bytes(), *counts))
        assert held[0][1:] == held[1][1:]
        return (held[1][0] - held[0][0]) / num_resets
    finally:
        env.close()


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("engine", ENGINES)
def test_resets_leave_no_files_and_threads(engine):
    assert bytes_a_reset(200, engine) < 50_000


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.slow
def test_many_resets_leave_no_memory(engine):
    """Loading the library anew, as NLE does, leaves 100 bytes and more each time."""
    assert bytes_a_reset(100_000, engine) < 50


# Machines without it


def chosen(**settings):
    """(environment's type, note) of NetHack as the registry makes it."""
    config = EnvConfig("NetHackScore-v1", nethack=NetHackConfig(**settings))
    env = make_vector_env(config, 1, 0, 0)
    try:
        env.reset(step_output(env))
        return type(env), env.note()
    finally:
        env.close()


@needs_native
def test_native_stepper_is_the_default_where_possible():
    assert chosen(engine="wheel") == (NativeVectorEnv, "games are stepped in C; games share the engine's code")
    assert chosen()[0] is NativeVectorEnv
    assert chosen(stepper="python") == (NetHackVectorEnv, "games share the engine's code")


@pytest.fixture
def forget():
    """Has the stepper loaded and checked again."""
    stepper.load_stepper.cache_clear()
    yield
    stepper.load_stepper.cache_clear()


@pytest.mark.parametrize(
    ("module", "name", "value", "reason"),
    [
        (stepper, "EXTENSION", "oni_jax.envs.nethack.native._missing", "the extension is not built: install"),
        (stepper, "_fingerprint", lambda: "another", "the extension is of another version"),
        (stepper, "GLIBC_VERSIONS", ((1, 0), (2, 10)), "this C library is not known: glibc 2."),
        (stepper, "GLIBC", "musl", "this C library is not known"),
        (layout, "KNOWN_BUILDS", {}, "NLE's library is another build, "),
        (layout, "BIRTHDAY", "u", "the engine's u has 2392 bytes instead of 8"),
        (layout, "FUNCTIONS", ("nle_start", "nle_step", "settings"), "the engine's functions are not in its code"),
        (platform, "machine", lambda: "riscv64", "this system is not Linux on x86-64"),
        (native_vector_env.LIBC, "dlopen", lambda *_: None, "the engine's symbols can't be resolved"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@needs_native
def test_python_steps_where_something_is_not_known(forget, monkeypatch, module, name, value, reason):
    monkeypatch.setattr(module, name, value)
    kind, note = chosen(engine="wheel")
    assert kind is NetHackVectorEnv
    assert note.startswith(f"games are stepped in Python, which is slower: {reason}") and "\n" not in note


@needs_native
def test_goals_of_others_are_tested_in_python():
    task = EXTENDED._replace(goal=lambda blstats, messages, glyphs: np.ones(len(blstats), bool))
    with pytest.raises(CannotStepError, match="the task's goal is tested in Python"):
        NativeVectorEnv(task, 1, episode_seeds(0))


def test_layouts():
    content = LIBRARY.read_bytes()
    found = read_layout(content, SETTINGS_SIZE)
    assert found.writable < found.data_end < found.memory_end
    assert found.num_constructors > 0 and found.num_destructors > 0
    broken = [b"", content[:5000], b"\x7fELF\x01\x01" + content[6:], content[:64] + bytes(len(content) - 64)]
    for bad in broken:
        with pytest.raises(CannotStepError):
            read_layout(bad, SETTINGS_SIZE)
    with pytest.raises(CannotStepError, match=f"settings has {SETTINGS_SIZE} bytes instead of 8"):
        read_layout(content, 8)


def test_headers_are_read_carefully():
    """Whatever the first bytes are, an answer or CannotStepError."""
    content, rng = LIBRARY.read_bytes(), np.random.default_rng(0)
    for _ in range(30):
        changed = bytearray(content[:1024])
        changed[int(rng.integers(16, 700))] ^= int(rng.integers(1, 256))
        with contextlib.suppress(CannotStepError):
            read_layout(bytes(changed) + content[1024:], SETTINGS_SIZE)
