"""Compiles the engine: gcc's link-time optimisation, its assembly made relative to a segment, and one library of it."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from oni_jax.envs.nethack.engine.relative import CONSTRUCTORS, POINTERS, UnknownFormError, rewrite
from oni_jax.envs.nethack.engine.source import BuildError, last_line
from oni_jax.envs.nethack.tasks import nethack

HERE = pathlib.Path(__file__).parent
OURS = ("terminal.c", "quick_sprintf.c")  # compiled as a part of the engine
PLAIN = ("coroutine.c", "runtime.c")  # compiled by themselves
SOURCES = ("src/*.c", "sys/share/posixregex.c", "sys/share/ioctl.c", "win/tty/*.c", "win/rl/winrl.cc") + tuple(
    f"sys/unix/unix{name}.c" for name in ("unix", "main", "res")
)
DEFINITIONS = (  # those of NLE's build
    *("-DGCC_WARN", "-DNOCLIPPING", "-DNOMAIL", "-DNOTPARMDECL", "-DDLB", "-DNOCWD_ASSUMPTIONS", "-DNDEBUG"),
    *('-DHACKDIR="/nethackdir.nle"', '-DDEFAULT_WINDOW_SYS="rl"'),
)
PROCESSOR = ("-march=x86-64", "-mtune=generic")  # hosts of several kinds may share the folder where it is kept
FLAGS = (
    *PROCESSOR,
    *("-O3", "-fPIC", "-fno-semantic-interposition", "-fno-plt", "-w", "-U_FORTIFY_SOURCE"),
    *("-fcf-protection=none", "-fno-stack-protector", "-fno-common", "-fdata-sections"),
)
LINK = ("-shared", "-Wl,-Bsymbolic", "-Wl,-z,now", "-Wl,-z,relro")
DATES = re.compile(r"last build (\w+ (\w+ +\d+ [\d:]+ \d+))")
DESCRIPTION = f"""
	.section	.data.rel.ro,"aw"
	.align	8
	.globl	oni_engine
	.type	oni_engine, @object
oni_engine:
	.quad	nle_start, nle_step, nle_end, ubirthday@dtpoff
	.quad	__start_{POINTERS}, __stop_{POINTERS}, __start_{CONSTRUCTORS}, __stop_{CONSTRUCTORS}
	.quad	oni_register
	.size	oni_engine, . - oni_engine
	.section	.note.GNU-stack,"",@progbits
"""

Report = Callable[[str, int, int], None]
"""(what, how many are done, of how many)"""


class Build:
    """A build of the engine.

    Args:
      source: NLE's source.
      work: folder for what is made.
      report: is called with the progress.
    """

    def __init__(self, source: pathlib.Path, work: pathlib.Path, report: Report):
        self._source, self._work, self._report = source, work, report
        self._num_jobs = max(1, len(os.sched_getaffinity(0)))
        self._c, self._cc = (
            shlex.split(os.environ.get(name) or usual) for name, usual in (("CC", "gcc"), ("CXX", "g++"))
        )
        self._includes = [f"-I{folder}" for folder in (work / "include", source / "include", HERE / "include")]

    def library(self) -> pathlib.Path:
        """Builds the library. Raises BuildError."""
        missing = [name for name in (*self._c[:1], *self._cc[:1], "as", "make") if not shutil.which(name)]
        if missing:
            raise BuildError(f"there is no {' and no '.join(missing)}")
        for name in ("include", "util", "dat", "objects", "assembly"):
            (self._work / name).mkdir()
        self._make_headers()
        objects = self._compile()
        assembly = self._optimise(objects)
        return self._link(assembly)

    def _make_headers(self) -> None:
        """Makes the headers that NetHack's makedefs writes, with the date of the installed library."""
        tool = self._work / "util" / "makedefs"
        sources = [self._source / name for name in ("util/makedefs.c", "src/monst.c", "src/objects.c")]
        self._run([*self._c, "-O1", "-w", *DEFINITIONS, *self._includes, "-o", tool, *sources])
        for option in ("-o", "-p", "-v"):
            self._run([tool, option], cwd=tool.parent)
        header = self._work / "include" / "date.h"
        installed = DATES.search(pathlib.Path(nethack.nethack.DLPATH).read_bytes().decode("latin-1"))
        made = DATES.search(header.read_text())
        if not installed or not made:
            raise BuildError("the date of a build is not where it was")
        text = header.read_text()
        for ours, theirs in zip(made.groups(), installed.groups(), strict=True):
            text = text.replace(ours, theirs)
        header.write_text(text)

    def _compile(self) -> list[pathlib.Path]:
        """Compiles all files for link-time optimisation."""
        sources = sorted(path for pattern in SOURCES for path in self._source.glob(pattern))
        sources += [HERE / name for name in OURS]
        objects = [self._work / "objects" / f"{i}_{path.stem}.o" for i, path in enumerate(sources)]
        before = ["-include", HERE / "include" / "quick_sprintf.h"]

        def compile_one(i: int) -> None:
            compiler = [*self._cc, "-std=c++14"] if sources[i].suffix == ".cc" else [*self._c, *before]
            command = [*compiler, *FLAGS, "-flto", *DEFINITIONS, *self._includes, "-c", sources[i], "-o", objects[i]]
            self._run(command)

        self._each(compile_one, range(len(sources)), "compiled")
        return objects

    def _optimise(self, objects: Sequence[pathlib.Path]) -> list[pathlib.Path]:
        """Returns the assembly of the whole program, optimised."""
        self._report("optimised", 0, 1)
        exports = self._exports("nle_start; nle_step; nle_end")
        command = [*self._cc, *FLAGS, *LINK, f"-flto={self._num_jobs}", "-save-temps", exports, "-o", "whole.so"]
        self._run([*command, *objects, "-lm"], cwd=self._work / "assembly")
        found = sorted((self._work / "assembly").glob("*.ltrans*.s"))
        if not found:
            raise BuildError("gcc has left no assembly")
        self._report("optimised", 1, 1)
        return found

    def _link(self, assembly: Sequence[pathlib.Path]) -> pathlib.Path:
        """Makes the code relative, and one library of it."""
        try:
            texts = rewrite(path.read_text() for path in assembly)
        except UnknownFormError as error:
            raise BuildError(f"gcc has written a form that is not known: {str(error).strip()!r}") from None
        parts = [self._work / "objects" / f"part{i}.s" for i in range(len(texts) + 1)]
        for path, text in zip(parts, [*texts, DESCRIPTION], strict=True):
            path.write_text(text)
        parts += [HERE / name for name in PLAIN]
        objects = [self._work / "objects" / f"{path.stem}.plain.o" for path in parts]

        def assemble(i: int) -> None:
            self._run([*self._c, *PROCESSOR, "-O2", "-fPIC", f"-I{HERE / 'include'}", "-c", parts[i], "-o", objects[i]])

        self._each(assemble, range(len(parts)), "assembled")
        library = self._work / "libengine.so"
        self._run([*self._cc, *LINK, "-s", self._exports("oni_engine"), "-o", library, *objects, "-lm"])
        return library

    def _exports(self, names: str) -> str:
        """Returns the linker's option that hides all other names."""
        path = self._work / f"{names.split(';')[0]}.map"
        path.write_text(f"{{ global: {names}; local: *; }};\n")
        return f"-Wl,--version-script={path}"

    def _run(self, command: Iterable[object], cwd: pathlib.Path | None = None) -> None:
        parts = [str(part) for part in command]
        variables = os.environ | {"LC_ALL": "C"}  # errors are looked for in English
        done = subprocess.run(
            parts, cwd=cwd or self._work, env=variables, capture_output=True, text=True, errors="replace"
        )
        if done.returncode:
            raise BuildError(f"{parts[0]} failed: {_first_error(done.stderr) or done.returncode}")

    def _each(self, function: Callable, items: Sequence, what: str) -> None:
        with ThreadPoolExecutor(self._num_jobs) as pool:
            for i, _ in enumerate(pool.map(function, items)):
                self._report(what, i + 1, len(items))


def _first_error(text: str) -> str:
    """Returns what went wrong first, of a compiler's output."""
    return next((line.strip()[:300] for line in text.splitlines() if "error" in line), last_line(text))
