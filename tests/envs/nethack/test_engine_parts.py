"""Parts of the built engine: code relative to a segment, a small terminal, quick texts."""

import _ctypes
import ctypes
import pathlib
import random
import shutil
import subprocess

import pytest

from oni_jax.envs.nethack.engine import compile
from oni_jax.envs.nethack.engine.relative import UnknownFormError, rewrite
from oni_jax.envs.nethack.tasks import nethack

SOURCES = pathlib.Path(compile.__file__).parent
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")


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
