"""A disk without locks: a library, put before the C library, in which locking fails."""

import os
import pathlib
import shutil
import subprocess

import pytest

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int file, int command) {
    char link[64], path[4096];
    if (command != F_SETLK && command != F_SETLKW && command != F_GETLK && command != F_OFD_SETLK) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    return name && strstr(name, getenv("LOCKLESS_NAME")) != NULL;
}

#define FCNTL(NAME)                                                        \
    int NAME(int file, int command, ...) {                                 \
        va_list words;                                                     \
        va_start(words, command);                                          \
        void *word = va_arg(words, void *);                                \
        va_end(words);                                                     \
        if (fails(file, command)) {                                        \
            errno = atoi(getenv("LOCKLESS_ERRNO"));                        \
            return -1;                                                     \
        }                                                                  \
        int (*real)(int, int, ...) = dlsym(RTLD_NEXT, #NAME);              \
        return real(file, command, word);                                  \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

int flock(int file, int operation) {
    (void)file, (void)operation;
    errno = atoi(getenv("LOCKLESS_ERRNO"));
    return -1;
}
"""


def lockless_environment(folder: pathlib.Path, name: str, error: int) -> dict[str, str]:
    """Returns the environment of a process whose `flock` fails, and locks on files with `name` in theirs.

    Skips the test where there is no C compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, library = folder / "lockless.c", folder / "lockless.so"
    source.write_text(_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "LOCKLESS_NAME": name, "LOCKLESS_ERRNO": str(error)}
