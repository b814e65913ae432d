"""Starting anew with large pages."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from oni_jax.runtime import use_large_pages
print(os.getpid(), flush=True)
use_large_pages()
print(os.environ["GLIBC_TUNABLES"], sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("given", "used", "starts"),
    [
        ("", "glibc.malloc.hugetlb=1", 2),
        ("glibc.malloc.check=0", "glibc.malloc.check=0:glibc.malloc.hugetlb=1", 2),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0", 1),
    ],
)
def test_a_program_starts_anew_once_as_the_same_process(given, used, starts):
    command = [sys.executable, "-c", PROGRAM, "--flag", "a word"]
    ended = subprocess.run(command, env={**os.environ, "GLIBC_TUNABLES": given}, capture_output=True, text=True)
    *pids, last = ended.stdout.splitlines()
    assert len(pids) == starts and len(set(pids)) == 1, ended.stderr
    assert last == f"{used} ['--flag', 'a word']"
