"""Files are whole or not there, and what a killed process leaves is removed by the next."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from oni_jax.host.files import ScratchFolder, append_atomically, reserve, write_atomically
from oni_jax.settings.fields import UserError
from tests.support.full_disk import full_disk


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "file"
    for content in (b"old", b"new"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with full_disk(2), pytest.raises(OSError):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_append_is_all_or_nothing(tmp_path):
    with open(tmp_path / "file", "ab", buffering=0) as file:
        append_atomically(file, b"first,")
        with full_disk(8), pytest.raises(OSError, match="file"):
            append_atomically(file, b"second,")
        append_atomically(file, b"third")
    assert (tmp_path / "file").read_bytes() == b"first,third"


def test_room_is_kept(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    reserve(path, 100_000)
    assert path.read_bytes() == b"content" + bytes(99_993)
    assert os.stat(path).st_blocks * 512 >= 100_000
    with full_disk(200_000), pytest.raises(OSError):
        reserve(path, 300_000)


def test_write_without_room_on_the_disk_is_not_begun(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    with pytest.raises(OSError, match="No space left"):
        reserve(path, 1 << 60)
    assert os.stat(path).st_blocks == 0


def test_a_scratch_folder_is_gone_when_closed(tmp_path):
    folder = ScratchFolder(str(tmp_path))
    (tmp_path / folder.path / "file").write_text("")
    folder.close()
    folder.close()
    assert os.listdir(tmp_path) == []


HOLDER = textwrap.dedent("""
    import os, sys, time
    from oni_jax.host.files import ScratchFolder
    folder = ScratchFolder(sys.argv[1])
    os.mkdir(os.path.join(folder.path, "game"))
    print(folder.path, flush=True)
    sys.stdin.read() if sys.argv[2] == "wait" else sys.exit("left without closing")
""")


def start_holder(parent, then: str) -> tuple[subprocess.Popen, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(parent), then], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    return process, process.stdout.readline().strip()


def test_a_killed_process_leaves_a_folder_and_the_next_removes_it(tmp_path):
    living, kept = start_holder(tmp_path, "wait")
    killed, left = start_holder(tmp_path, "wait")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert os.path.isdir(left)
    ScratchFolder(str(tmp_path)).close()
    assert not os.path.exists(left) and os.path.isdir(os.path.join(kept, "game"))
    living.communicate()  # ends its standard input, and so it
    assert os.listdir(tmp_path) == []


def test_process_in_a_dead_process_s_folder_is_ended_despite_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    killed, left = start_holder(tmp_path / "linked", "wait")
    hanging = subprocess.Popen(
        [sys.executable, "-c", f"import os, time; os.open({left + '/game'!r}, 0); time.sleep(60)"]
    )
    while not any(os.path.basename(os.path.realpath(link)) == "game" for link in opened(hanging.pid)):
        time.sleep(0.02)
    killed.kill()
    killed.communicate()
    ScratchFolder(str(tmp_path / "linked")).close()
    assert hanging.wait(10) == -signal.SIGKILL


def opened(pid: int) -> list[str]:
    return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]


def test_missing_temporary_folder_is_one_line(tmp_path, monkeypatch):
    def missing() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", missing)
    with pytest.raises(UserError, match="no folder for temporary files .No usable.*set .TMPDIR"):
        ScratchFolder()
    monkeypatch.setattr("os.scandir", lambda folder: missing())  # a folder that may be written, not listed
    ScratchFolder(str(tmp_path)).close()


def test_an_exception_leaves_nothing(tmp_path):
    process, _ = start_holder(tmp_path, "leave")
    process.communicate()
    assert process.returncode == 1 and os.listdir(tmp_path) == []


def test_only_folders_of_dead_processes_are_removed(tmp_path):
    with_name = ScratchFolder(str(tmp_path))
    prefix = with_name.path[:-8]  # less what was drawn
    with_name.close()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("kept")
    os.symlink(tmp_path / "elsewhere", f"{prefix}linked")
    os.mkdir(f"{prefix}dead")
    (tmp_path / os.path.basename(f"{prefix}file")).write_text("kept")
    ScratchFolder(str(tmp_path)).close()
    assert not os.path.exists(f"{prefix}dead")
    assert (tmp_path / "elsewhere" / "file").exists() and os.path.exists(f"{prefix}file")


PRINTER = textwrap.dedent("""
    import sys
    from oni_jax.host.files import keep_printing
    keep_printing()
    for _ in range(3):
        print("a line", "é" * 5000, flush=True)
        print("another", file=sys.stderr)
    sys.exit(7)
""")


def test_output_without_a_reader_is_all_that_is_lost():
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = subprocess.run([sys.executable, "-c", PRINTER], stdout=write_end, stderr=subprocess.PIPE, text=True)
    os.close(write_end)
    assert process.returncode == 7 and process.stderr.splitlines() == ["another"] * 3


def test_characters_that_the_encoding_lacks_are_escaped():
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    process = subprocess.run([sys.executable, "-c", PRINTER], capture_output=True, text=True, env=env)
    assert process.returncode == 7 and process.stdout.startswith("a line \\xe9\\xe9")


@pytest.mark.parametrize("full", ["stdout", "stderr"])
def test_a_full_disk_takes_what_is_printed_and_nothing_else(full):
    with open("/dev/full", "w") as disk:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, full: disk}
        process = subprocess.run([sys.executable, "-c", PRINTER], **streams, text=True)  # type: ignore
    assert process.returncode == 7
    printed = process.stdout or process.stderr
    assert printed.count("\n") == 3


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(tmp_path, closed):
    code = PRINTER.replace("sys.exit", f"open({str(tmp_path / 'a')!r}, 'w').write('mine')\nsys.exit")
    process = subprocess.run(["bash", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code])
    assert process.returncode == 7 and (tmp_path / "a").read_text() == "mine"


WRITER = """
import sys
from oni_jax.host.files import write_atomically
for _ in range(60):
    write_atomically(sys.argv[1], sys.argv[2].encode() * 3_000_000)
"""


def test_processes_that_write_one_file_at_a_time_leave_it_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter]) for letter in "abc"]
    while any(writer.poll() is None for writer in writers):
        content = path.read_bytes()
        assert len(content) in (1, 3_000_000) and content == content[:1] * len(content)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert [left.name for left in tmp_path.iterdir()] == ["file"]
