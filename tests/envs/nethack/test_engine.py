"""The engine that is built here: NLE's games, whatever is bound; and its making, which falls back rather than guess."""

import _ctypes
import ctypes
import hashlib
import json
import pathlib
import random
import shutil
import subprocess
import threading

import numpy as np
import pytest

from oni_jax.envs.nethack.engine import __main__ as program
from oni_jax.envs.nethack.engine import built, compile, identity, source
from oni_jax.envs.nethack.engine.compile import Build
from oni_jax.envs.nethack.engine.identity import ARRAYS, Difference, compare
from oni_jax.envs.nethack.engine.relative import UnknownFormError, rewrite
from oni_jax.envs.nethack.engine.source import BuildError
from oni_jax.envs.nethack.native.stepper import load_stepper
from oni_jax.envs.nethack.native.vector_env import NativeVectorEnv
from oni_jax.envs.nethack.tasks import TASKS, nethack
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv, episode_seeds
from oni_jax.envs.registry import make_vector_env
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig, NetHackConfig
from tests.envs.nethack.native import needs_engine, needs_native
from tests.envs.outputs import step_output

TASK = TASKS["NetHackScoreExtendedActions-v1"]
BUILT = NetHackConfig(engine="built")
SOURCES = pathlib.Path(compile.__file__).parent
NO_TERMINAL = tuple(name for name in ARRAYS if not name.startswith("tty_"))
BOUND = {
    "all": ARRAYS,
    "no terminal": NO_TERMINAL,
    "terminal": ("tty_chars", "tty_colors", "blstats", "message", "internal", "program_state"),
    "colors alone": ("tty_colors", "blstats", "internal", "program_state"),
    "cursor alone": ("tty_cursor", "blstats", "internal", "program_state"),
}
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")


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
    return b"".join(every[name].tobytes() for name in out.records.dtype.names or ())  # without the bytes between fields


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


# Which engine plays


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder of caches."""
    monkeypatch.setattr(built, "cache_folder", lambda: str(tmp_path))
    built.find_engine.cache_clear()
    yield tmp_path
    built.find_engine.cache_clear()


def chosen(**settings):
    """(environment's type, note) of NetHack as the registry makes it."""
    env = make_vector_env(EnvConfig("NetHackScore-v1", nethack=NetHackConfig(**settings)), 1, 0, 0)
    try:
        env.reset(step_output(env))
        return type(env), env.note()
    finally:
        env.close()


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
@pytest.mark.parametrize("damage", ["library", "record", "no library", "no record", "no JSON"])
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
    elif damage == "no JSON":
        record.write_text("{")
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


@needs_engine
def test_installed_engine_plays_where_the_segment_cannot_be_set(monkeypatch):
    monkeypatch.setattr(load_stepper().library, "oni_has_segment", lambda: 0)
    kind, note = chosen()
    assert kind is NativeVectorEnv and "this system doesn't let a process set its GS register" in note


# Making it


def test_sources_are_of_a_known_version():
    assert source.VERSION == "1.3.0" and len(source.SHA256) == 64


@pytest.mark.parametrize(
    ("text", "times"), [("nothing", 0), ("one line\none line\n", 2), ("one line\n", 1)], ids=["0", "2", "1"]
)
def test_edit_needs_its_text_exactly_once(tmp_path, text, times):
    (tmp_path / "a.c").write_text(f"begin\n{text}\nend\n")
    edits = tmp_path / "edits.toml"
    edits.write_text('[[edit]]\nfile = "a.c"\nfind = "one line"\nbefore = "end"\nput = "another\\n"\n')
    if times == 1:
        source.edit(tmp_path, edits)
        assert (tmp_path / "a.c").read_text() == "begin\nanother\nend\n"
    else:
        with pytest.raises(BuildError, match=rf"^a.c has {times} times what an edit is about: 'one line'$"):
            source.edit(tmp_path, edits)
        assert "another" not in (tmp_path / "a.c").read_text()


def test_build_without_a_compiler_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-gcc")
    with pytest.raises(BuildError, match="^there is no no-such-gcc$"):
        Build(tmp_path, tmp_path, lambda *_: None).library()


@pytest.mark.parametrize("fault", [BuildError("no index"), OSError("disk full")], ids=["fetch", "disk"])
@needs_native
def test_engine_that_cannot_be_built_costs_one_line(cache, monkeypatch, capfd, fault):
    def fetch(folder):
        raise fault

    monkeypatch.setattr(source, "fetch", fetch)
    assert program.main() == 1
    last = capfd.readouterr().out.splitlines()[-1]
    assert last == f"NetHack's engine is not built, so NLE's plays, which is slower: {fault}"


@needs_engine
def test_engine_that_differs_is_not_kept(monkeypatch, capfd):
    library = built.find_engine()
    monkeypatch.setattr(built, "engine_folder", lambda: pathlib.Path("/nowhere"))
    built.find_engine.cache_clear()
    for name, value in (("fetch", lambda folder: folder / "tree"), ("edit", lambda tree: None)):
        monkeypatch.setattr(source, name, value)
    monkeypatch.setattr(Build, "library", lambda self: pathlib.Path(library))
    start = identity.BuiltGame.start
    monkeypatch.setattr(identity.BuiltGame, "start", lambda self, core, display: start(self, core + 1, display))
    monkeypatch.setattr(built, "keep", lambda *_: pytest.fail("it was kept"))
    assert program.main() == 1
    assert "so NLE's plays, which is slower: game 0, key press" in capfd.readouterr().out
    built.find_engine.cache_clear()


# Variables relative to a segment


VARIABLES = """\
	.text
	.globl	f
f:
	movl	8+state(%rip), %eax
	leaq	state(%rip), %rdx
	addq	$1, count(%rip)
	call	*hook(%rip)
	movq	shown@GOTPCREL(%rip), %rcx
	movq	stdout@GOTPCREL(%rip), %rsi
	leaq	names(%rip), %rdi
	leaq	.LC0(%rip), %r8
	ret
	.globl	state
	.section	.bss.state,"aw",@nobits
	.type	state, @object
	.size	state, 16
state:
	.zero	16
	.section	.data.count,"aw"
count:
	.quad	1
	.globl	shown
	.section	.data.rel.local.shown,"aw"
shown:
	.quad	state+8
hook:
	.quad	f
	.section	.data.rel.ro.local.table,"aw"
table:
	.quad	count
	.section	.data.rel.ro.local.names,"aw"
names:
	.quad	.LC0
	.section	.init_array,"aw"
	.quad	f
	.section	.rodata.str1.1,"aMS",@progbits,1
.LC0:
	.string	"state"
"""
OTHER = "\t.text\ng:\n\tmovq\tshown(%rip), %rax\n\tleaq\tcount(%rip), %rcx\n\t.section\t.rodata\ncount:\n\t.long\t1\n"


def test_variables_move_and_constants_stay():
    first, second = rewrite([VARIABLES, OTHER])
    for line in (
        "\tmovl\t%gs:state@dtpoff+8, %eax",
        "\tmovq\t%gs:-8, %rdx\n\tleaq\tstate@dtpoff(%rdx), %rdx",
        "\taddq\t$1, %gs:count@dtpoff",
        "\tcall\t*%gs:hook@dtpoff",
        "\tmovq\t%gs:-8, %rcx\n\tleaq\tshown@dtpoff(%rcx), %rcx",
        "\tmovq\tstdout@GOTPCREL(%rip), %rsi",
        "\tleaq\tnames(%rip), %rdi",
        '\t.section\t.tbss.state,"awT",@nobits',
        '\t.section\t.tdata.count,"awT",@progbits',
        '\t.section\t.tdata.rel.ro.local.table,"awT",@progbits',
        '\t.section\t.data.rel.ro.local.names,"aw"',
        "\t.quad\tstate@dtpoff+8",
        "\t.quad\tcount@dtpoff",
        '\t.section\toni_constructors,"aw"',
        '\t.string\t"state"',
    ):
        assert f"\n{line}\n" in first, line
    assert first.count('\t.section\toni_pointers,"a"') == 2
    assert "\tmovq\t%gs:shown@dtpoff, %rax" in second
    assert "\tleaq\tcount(%rip), %rcx" in second  # a constant that has the name of another module's variable


@pytest.mark.parametrize(
    "line",
    [
        "\tmovq\tstate@GOTPCREL(%rip), %xmm0",
        "\tleal\tstate(%rip), %eax",
        "\tmovabsq\t$state, %rax",
        "\tmovl\tstate(,%rax,4), %eax",
        "\tmovl\tstate-.L2(%rip), %eax",
        "\t.long\tstate-.",
        "\t.comm\tothers,8,8",
        '\t.section\t.tbss.x,"awT",@nobits',
        '\t.section\t.bss.x,"awG",@nobits,x,comdat\nx:',
        "\t.section\t.rodata\n\t.quad\tstate\nconstant:",
    ],
)
def test_unknown_forms_stop_the_build(line):
    with pytest.raises(UnknownFormError):
        rewrite([VARIABLES + f"\t.text\n{line}\n"])


# Our parts of it, compiled by themselves


def compiled(tmp_path, name):
    library = tmp_path / f"{name}.so"
    command = ["gcc", "-shared", "-fPIC", f"-I{SOURCES / 'include'}", str(SOURCES / f"{name}.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


@needs_gcc
def test_quick_texts_are_those_of_the_c_library(tmp_path):
    ours, theirs = compiled(tmp_path, "quick_sprintf").oni_sprintf, ctypes.CDLL(None).sprintf
    numbers = [0, 7, -1, 42, -12345, 2**31 - 1, -(2**31)]
    flags = ["", "-", "0", "2", "-2", "02", "-30", "12", "012", "+", " ", "-012", "5.3", "."]
    cases = [(f"<%{flag}{kind}>", value) for flag in flags for kind in ("d", "u", "x", "X", "c") for value in numbers]
    long_kinds = [(flag, kind) for flag in flags for kind in ("ld", "lu", "lX")]
    cases += [(f"<%{flag}{kind}|%%>", ctypes.c_long(value * 2**31)) for flag, kind in long_kinds for value in numbers]
    texts = [b"", b"x", b"a longer text than any width", b"\x80\xff"]
    cases += [(f"<%{flag}s>%", text) for flag in flags if flag not in ("0", "012", "-012", "02") for text in texts]
    cases += [("no conversion", 0), ("%%", 0), ("%s and 100%%", b"half")]
    for template, value in cases:
        one, other = (ctypes.create_string_buffer(b"\x7f" * 200, 200) for _ in range(2))
        format = template.removesuffix("%").encode() if template.endswith(">%") else template.encode()
        assert ours(one, format, value) == theirs(other, format, value) and one.raw == other.raw, (format, value)


class Point(ctypes.Structure):
    _fields_ = [("row", ctypes.c_size_t), ("column", ctypes.c_size_t)]


class Cell(ctypes.Structure):
    _fields_ = [
        ("char", ctypes.c_int32),
        *((name, ctypes.c_bool) for name in ("bold", "dim", "underline", "blink", "reverse", "invisible")),
        ("foreground", ctypes.c_int),
        ("background", ctypes.c_int),
        ("dec", ctypes.c_bool),
    ]


class Line(ctypes.Structure):
    _fields_ = [("dirty", ctypes.c_bool), ("cells", Cell * 80)]


class Screen(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_size_t),
        ("columns", ctypes.c_size_t),
        ("lines", ctypes.POINTER(ctypes.POINTER(Line))),
    ]


def emulated(engine, text):
    """(characters, colours, cursor) that NLE's emulator shows after a text."""
    engine.tmt_open.restype = ctypes.c_void_p
    engine.tmt_screen.restype, engine.tmt_cursor.restype = ctypes.POINTER(Screen), ctypes.POINTER(Point)
    size = ctypes.c_size_t
    terminal = ctypes.c_void_p(engine.tmt_open(size(24), size(80), None, None, None, ctypes.c_bool(True)))
    engine.tmt_write(terminal, text, size(len(text)))
    screen, cursor = engine.tmt_screen(terminal).contents, engine.tmt_cursor(terminal).contents
    cells = [cell for i in range(24) for cell in screen.lines[i].contents.cells]
    chars = bytes(cell.char & 0xFF for cell in cells)
    colors = bytes(
        (0 if cell.char == 32 else 7) + 16 * cell.reverse
        if cell.foreground == -1
        else ((cell.foreground - 1 | 8 * cell.bold) + 16 * cell.reverse) & 0xFF
        for cell in cells
    )
    shown = chars, colors, (cursor.row, cursor.column)
    engine.tmt_close(terminal)
    return shown


SEQUENCES = [
    b"\x1b[%d;%dH",
    b"\x1b[%dA",
    b"\x1b[%dB",
    b"\x1b[%dC",
    b"\x1b[%dD",
    b"\x1b[%dK",
    b"\x1b[0;3%dm",
    b"\x1b[%dm",
]
PLAIN = [b"\x1b[H", b"\x1b[K", b"\x1b[2J", b"\x1b[J", b"\x1b[7m", b"\x1b[1m", b"\x1b[m", b"\x1b[1;30m", b"\x1b[?25l"]
PLAIN += [
    b"\n",
    b"\r",
    b"\b",
    b"\t",
    b"\a",
    b"\x0e",
    b"\x0f",
    b"text ",
    b"more text than a line has " * 4,
    b"\xe4\xff\x01",
]
PLAIN += [b"\x1b\x1b[5m", b"\x1b[3\x1b[1m", b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[D", b"\x1b[5q"]


@needs_gcc
@pytest.mark.parametrize("seed", range(40))
def test_terminal_shows_what_the_emulator_shows(tmp_path, seed):
    rng = random.Random(seed)
    text = b""
    for _ in range(rng.randrange(1, 120)):
        part = rng.choice(PLAIN + SEQUENCES)
        text += part % tuple(rng.choice((0, 1, 2, 7, 22, 24, 31, 39, 80, 99)) for _ in range(part.count(b"%d")))
    ours = compiled(tmp_path, "terminal")
    chars, colors, cursor = (ctypes.create_string_buffer(b"\x7f" * size, size) for size in (1920, 1920, 2))
    ours.oni_terminal_open(chars, colors, cursor)
    assert cursor.raw == b"\0\0" and chars.raw == b" " * 1920 and colors.raw == bytes(1920)
    for byte in text:
        ours.oni_terminal_put(byte if byte < 128 else byte - 256)  # a char is signed
    ours.oni_terminal_flush()
    installed = ctypes.CDLL(nethack.nethack.DLPATH)
    shown = emulated(installed, text)
    _ctypes.dlclose(installed._handle)  # other tests look for what is mapped
    assert (chars.raw, colors.raw, tuple(cursor.raw)) == shown


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
