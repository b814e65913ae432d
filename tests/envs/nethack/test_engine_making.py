"""The making of the built engine, which ends in one line where something is missing, and keeps nothing then."""

import functools
import os
import pathlib
import re
import resource
import signal
import tempfile
import types

import pytest

from oni_jax.envs.nethack.engine import __main__ as program
from oni_jax.envs.nethack.engine import built, identity, source
from oni_jax.envs.nethack.engine.compile import Build
from oni_jax.envs.nethack.engine.source import BuildError
from oni_jax.host.lock_files import lock_file
from tests.envs.nethack.native import needs_engine, needs_native


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


def block_folder(cache, monkeypatch):
    cache.mkdir()
    (cache / "oni_jax").mkdir()
    (cache / "oni_jax" / "nethack_engine").write_text("a file")
    return "Not a directory"


def have_no_temporary_folder(cache, monkeypatch):
    folder = functools.partial(tempfile.TemporaryDirectory, dir=cache / "nowhere")
    monkeypatch.setattr(program.tempfile, "TemporaryDirectory", folder)
    return "No such file or directory"


def forbid_code(name, cache, monkeypatch):
    forbidden = str(built.engine_folder()) if name == "XDG_CACHE_HOME" else f"{tempfile.gettempdir()}/oni_engine"
    statvfs = os.statvfs

    def refuse(path):
        flag = os.ST_NOEXEC if str(path).startswith(forbidden) else 0
        return types.SimpleNamespace(f_flag=flag) if isinstance(path, pathlib.Path) else statvfs(path)

    monkeypatch.setattr(os, "statvfs", refuse)
    return rf"no code runs from the disk of {forbidden}.*: set \${name} to another folder$"


def build_meanwhile(cache, monkeypatch):
    held = lock_file(str(built.engine_folder() / "building"))
    built.engine_folder().mkdir(parents=True)
    held.__enter__()
    monkeypatch.setattr(built, "held", held, raising=False)  # until the test ends
    return "in use by "


@pytest.mark.parametrize(
    "prevent",
    [
        block_folder,
        have_no_temporary_folder,
        functools.partial(forbid_code, "XDG_CACHE_HOME"),
        functools.partial(forbid_code, "TMPDIR"),
        build_meanwhile,
    ],
    ids=["folder", "temporary folder", "cache without code", "temporary folder without code", "another build"],
)
@needs_native
def test_reason_is_found_before_anything_is_fetched(capfd, cache, monkeypatch, prevent):
    monkeypatch.setattr(source, "fetch", lambda folder: pytest.fail("it was fetched"))
    reason = prevent(cache, monkeypatch)
    assert program.main() == 1
    (line,) = capfd.readouterr().out.splitlines()
    assert re.search(rf"^NetHack's engine is not built, so NLE's plays, which is slower: .*{reason}", line)


def test_full_disk_leaves_no_part_of_an_engine(cache, tmp_path):
    (tmp_path / "some.so").write_bytes(b"a library" * 1000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            built.keep(tmp_path / "some.so", {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(built.engine_folder().iterdir()) == []


FAKE_COMPILER = """#!/bin/sh
echo "$*" >> {log}
for word; do [ "$before" = -o ] && out=$word; before=$word; done
case "$*" in *"{fails_at}"*) echo "a.c:1: fatal error: killed" >&2; exit 1;; esac
case "$out" in
*/makedefs) echo '#!/bin/sh
echo "last build Sun Nov 29 11:17:59 2026" > ../include/date.h' > "$out"; chmod +x "$out";;
*) : > "$out";;
esac
"""


@pytest.mark.parametrize(
    ("fails_at", "reason"),
    [
        ("makedefs", "a.c:1: fatal error: killed"),
        ("winrl.cc", "a.c:1: fatal error: killed"),
        ("whole.so", "a.c:1: fatal error: killed"),
        ("nothing", "gcc has left no assembly"),
    ],
)
@needs_native
def test_build_ends_where_the_compiler_fails(cache, tmp_path, monkeypatch, capfd, fails_at, reason):
    compiler, log, tree = tmp_path / "some gcc", tmp_path / "log", tmp_path / "tree"
    compiler.write_text(FAKE_COMPILER.format(log=log, fails_at=fails_at))
    compiler.chmod(0o700)
    for name in ("src/a.c", "win/rl/winrl.cc"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).touch()
    for name in ("CC", "CXX"):
        monkeypatch.setenv(name, f"'{compiler}' -march=native")
    monkeypatch.setattr(source, "fetch", lambda folder: tree)
    monkeypatch.setattr(source, "edit", lambda tree: None)
    assert program.main() == 1
    last = capfd.readouterr().out.splitlines()[-1]
    assert last.startswith("NetHack's engine is not built, so NLE's plays, which is slower: ") and reason in last
    assert list(built.engine_folder().iterdir()) == []
    compilations = [line for line in log.read_text().splitlines() if "-flto" in line]
    assert all(line.rindex("-march=x86-64") > line.rindex("-march=native") for line in compilations)
    assert bool(compilations) == (fails_at != "makedefs")


def start_another(game, start, core, display):
    start(game, core + 1, display)


def crash(game, start, core, display):
    os.kill(os.getpid(), signal.SIGKILL)


@needs_engine
@pytest.mark.parametrize(
    ("play", "reason"),
    [(start_another, "game 0, key press "), (crash, "a game ends the process that plays it")],
    ids=["another game", "a crash"],
)
def test_engine_that_differs_is_not_kept(engine, cache, monkeypatch, capfd, play, reason):
    for name, value in (("fetch", lambda folder: folder / "tree"), ("edit", lambda tree: None)):
        monkeypatch.setattr(source, name, value)
    monkeypatch.setattr(Build, "library", lambda self: pathlib.Path(engine))
    monkeypatch.setattr(identity.BuiltGame, "start", functools.partialmethod(play, identity.BuiltGame.start))
    assert program.main() == 1
    assert f"so NLE's plays, which is slower: {reason}" in capfd.readouterr().out
    assert list(built.engine_folder().iterdir()) == []
