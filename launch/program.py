"""Common part of all programs: command line, help, stop requests, exit codes."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from launch import flags, help
from launch.interrupts import interruptible
from oni_jax.host.files import keep_printing
from oni_jax.host.printing import escape_printed, printed_escaped
from oni_jax.host.runtime import ChildError, StopRequest, UnsavedError, ending
from oni_jax.settings.fields import Program, UserError


def program(
    name: str, defaults: Program, check: Callable[[Program], None], run: Callable[[Program, StopRequest], int]
) -> Callable[..., int]:
    """Makes a program's `main`: it takes a command line, that of the process when left out; see `run_program`."""
    return lambda argv=None: run_program(name, argv, defaults, check, run)


def brief_program(
    name: str, defaults: Program, check: Callable[[Program], None], run: Callable[[Program], int]
) -> Callable[..., int]:
    """Makes the `main` of a program that has nothing to save; see `run_brief_program`."""
    return lambda argv=None: run_brief_program(name, argv, defaults, check, run)


def run_program(
    name: str,
    argv: Sequence[str] | None,
    defaults: Program,
    check: Callable[[Program], None],
    run: Callable[[Program, StopRequest], int],
) -> int:
    """Runs a program with a command line (that of the process when None).

    Args:
        name: the module's, for the help.
        argv: command line without the program's name.
        defaults: the program's settings, with their defaults.
        check: raises UserError for bad values, before anything is started.
        run: the program; returns the exit code.

    Returns:
        The exit code: 1 a process of the run failed (its error on stderr), 2 bad input (one line on stderr),
        130 interrupted twice, else that of `run`.
    """
    stop = StopRequest()
    signals = stop.installed(until_exit=argv is None)
    return run_brief_program(name, argv, defaults, check, lambda config: run(config, stop), signals)


def run_brief_program(
    name: str,
    argv: Sequence[str] | None,
    defaults: Program,
    check: Callable[[Program], None],
    run: Callable[[Program], int],
    signals: AbstractContextManager | None = None,
) -> int:
    """Runs a program as `run_program` does, but one that has nothing to save: unless handled, a signal ends it.

    signals: handles them while it runs.
    """
    if is_process := argv is None:
        keep_printing()
        escape_printed()
    words = sys.argv[1:] if argv is None else argv
    with nullcontext() if is_process else printed_escaped():
        try:
            if help.wants_help(words):
                print(help.help_text(name, flags.with_given_plugins(words, defaults), help.asked_topic(words)))
                return 0
            with signals or interruptible():
                config = flags.parse(words, defaults)
                check(config)
                return run(config)
        except (UserError, ChildError, UnsavedError, KeyboardInterrupt, OSError) as error:
            code, line = ending(error)
            if not line:
                raise
            print(line, file=sys.stderr, flush=True)
            if is_process and isinstance(error, KeyboardInterrupt):
                sys.stdout.flush()
                os._exit(code)  # a thread that compiles would crash while Python ends
            return code


def split_words(argv: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Splits a command line (that of the process when None) at `--`: the program's flags, and those of launch.train."""
    words = sys.argv[1:] if argv is None else list(argv)
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]
