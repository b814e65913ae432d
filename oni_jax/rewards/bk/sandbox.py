"""Generated code in Monty, a Python interpreter in separate processes: no files, no network, few imports, limits.

The code defines `compute_reward(obs, past_obs, past_actions) -> (float, dict of floats)`. It is called on windows, some
hundreds at a time, and sees no more of the world than these.
"""

import functools
import math
import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pydantic_monty as monty

from oni_jax.annotation.failures import one_line
from oni_jax.rewards.bk.code import FUNCTION
from oni_jax.rewards.bk.windows import Windows

CALL_SECS, CALLS_PER_SEC = 0.1, 500  # limits of one call, and of the mean of many
MAX_MEMORY_BYTES, MAX_RECURSION = 128 << 20, 100
WINDOWS_AT_ONCE = 512
NUM_PROBED = 8  # windows, at first; a code that fails on all of them, and breaks a limit, is called on no more
GRACE_SECS = 0.25  # time beyond a limit, after which a worker that does not end a call is killed
REQUEST_SECS = 5.0  # limit for all else that a worker is asked to do
MAX_BROKEN = 8  # windows of a `call` on which a code may break limits; with one more it is refused
SMALL = 32  # windows; of so few each is called apart, where one of them spoils the others
_TIMED_OUT, _CRASHED = "TimeoutError", "Crashed"
_LIMITS = (_TIMED_OUT, "MemoryError", _CRASHED)  # failures that take long
MAX_PROBLEM_CHARS = 300
UNNAMED: Mapping[str, Sequence[str]] = {}
_shown = functools.partial(one_line, max_chars=MAX_PROBLEM_CHARS)
# The same in all processes and runs; nothing waits.
_POLICY: Any = {
    "datetime": datetime(2000, 1, 1),
    "random_start": {"seed": 0},
    "sleep": "zero",
}
# Observations come as numbers in a row, which takes less time than lists of lists. What was changed by a call would be
# read by the others, of which observations are shared. It is defined before the code, with the built-ins of then, under
# a name that the code can't know: the code may give any other name another meaning.
_DRIVER = """
def NAME(
    columns, windows, actions, code,
    _range=range, _len=len, _list=list, _str=str, _dict=dict, _zip=zip, _type=type, _Exception=Exception,
):
    def nested(numbers, shape):
        rows = _list(numbers)
        for size in shape[::-1]:
            rows = [rows[i : i + size] for i in _range(0, _len(rows), size)]
        return rows

    lists = {name: nested(numbers, shape) for name, (numbers, shape) in columns.items()}
    made = [_dict(_zip(lists, values)) for values in _zip(*lists.values())]
    before, results = _str(made), []
    for numbers, past_actions in _zip(windows, actions):
        obs, past_obs = made[numbers[-1]], [made[number] for number in numbers[:-1]]
        try:
            results.append((True, code(obs, past_obs, past_actions)))
        except _Exception as error:
            results.append((False, _type(error).__name__ + ": " + _str(error)))
    return results, _str(made) == before
"""


class Value(NamedTuple):
    value: float  # 0 where it failed
    parts: Mapping[str, float]
    problem: str = ""  # its failure in one line, such as "TimeoutError: ..."; empty: none


class CodeError(Exception):
    """The code can't be used at all: in one line, why."""


class Sandbox:
    """A pool of workers that call a code.

    Args:
        code: the source; the functions of `obs` and of the past alone, for calls in any order, share no state.
        num_workers: processes.
        named: names of the numbers of observations, which it sees each by its name; see `Language.code`.

    Raises:
        CodeError: it does not parse or run, or has no `compute_reward`.
    """

    def __init__(self, code: str, num_workers: int = 1, named: Mapping[str, Sequence[str]] = UNNAMED):
        self._code, self._num_workers, self._named = code, num_workers, named
        self._pool = monty.Monty(
            min_processes=1,
            max_processes=num_workers,
            checkout_timeout=REQUEST_SECS,
            request_timeout=REQUEST_SECS,
            feed_duration_limit_grace=GRACE_SECS,
        ).__enter__()
        self._name = f"_oni_{secrets.token_hex(8)}"  # prefix of the names that the driver adds to the code's
        # Objects of a class can look like the numbers that they replaced.
        self._shares_observations = "class" not in code
        self._threads = ThreadPoolExecutor(num_workers, "potential")
        self.close = weakref.finalize(self, _close, self._pool, self._threads)  # also when the program ends
        self._has_worked = False
        self._broken: list[str] = []  # problems of the windows of a `call` that broke limits
        try:
            with self._session(1) as session:
                session.feed_run(f"{FUNCTION}\nNone", print_callback=_ignore)
        except monty.MontyError as error:
            self.close()
            raise CodeError(problem_of(error)) from None

    def call(self, windows: Windows) -> list[Value]:
        """Calls the code on windows.

        Raises:
            CodeError: it has never worked, and fails on all of these; or on NUM_PROBED of them, spread over all, and
                breaks a limit there, as it would take long to call it on the rest; or it breaks limits on more than
                MAX_BROKEN windows.
        """
        number = len(windows.actions)
        if not self._has_worked:
            rows = range(0, number, max(1, number // NUM_PROBED))[:NUM_PROBED]
            probed = [value for row in rows for value in self._call_all(windows.take([row]))]
            if any(result.problem.startswith(_LIMITS) for result in probed):
                self._check_works(probed)
        self._broken = []
        size = min(WINDOWS_AT_ONCE, max(1, math.ceil(number / self._num_workers)))
        chunks = [windows.take(range(i, min(i + size, number))) for i in range(0, number, size)]
        values = [value for values in self._threads.map(self._call_all, chunks) for value in values]
        self._check_works(values)
        return values

    def _check_works(self, values: Sequence[Value]) -> None:
        self._has_worked = self._has_worked or not all(value.problem for value in values)
        if values and not self._has_worked:
            raise CodeError(f"it fails on every window: {values[0].problem}")

    def _session(self, num_windows: int) -> Any:
        secs = max(CALL_SECS, num_windows / CALLS_PER_SEC)
        limits: Any = {
            "max_feed_duration_secs": secs,
            "max_memory": MAX_MEMORY_BYTES,
            "max_recursion_depth": MAX_RECURSION,
        }
        driver = _DRIVER.replace("NAME", self._name)
        return _Session(self._pool.checkout(limits=limits, os_policy=_POLICY), [driver, self._code])

    def _call_all(self, windows: Windows) -> list[Value]:
        number = len(windows.actions)
        try:
            with self._session(number) as session:
                observations, numbers = windows.distinct() if self._shares_observations else windows.apart()
                columns = {name: _flat(x) for name, x in self._columns(observations)}
                values = columns, numbers, windows.actions.tolist()
                arguments = {f"{self._name}_{i}": value for i, value in enumerate(values)}
                call = f"{self._name}({', '.join(arguments)}, {FUNCTION})"
                results, unchanged = session.feed_run(call, inputs=arguments, print_callback=_ignore)
            if unchanged or number == 1 or not self._shares_observations:
                return [_value(ok, result) for ok, result in results]
        except (monty.MontyError, TypeError) as error:  # the latter: a result that Python has no equal of
            if number == 1:
                return [Value(0.0, {}, self._counted(problem_of(error)))]
        size = SMALL if number > SMALL else 1  # one that breaks a limit, or changes its arguments, is to spoil no other
        parts = [windows.take(range(i, min(i + size, number))) for i in range(0, number, size)]
        return [value for part in parts for value in self._call_all(part)]

    def _columns(self, observations: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields what the code sees by name, of observations [N, ...]."""
        for name, x in observations.items():
            if parts := self._named.get(name):
                yield from zip(parts, x.T, strict=True)
            else:
                yield name, x

    def _counted(self, problem: str) -> str:
        """Counts a window's problem, if it took long. Raises CodeError: there were too many."""
        if problem.startswith(_LIMITS):
            self._broken.append(problem)
            if len(self._broken) > MAX_BROKEN:
                raise CodeError(f"it breaks limits again and again, on more than {MAX_BROKEN} windows: {problem}")
        return problem


def _flat(x: np.ndarray) -> tuple[Any, Sequence[int]]:
    """Returns the numbers of [N, ...], and the shape of each of the N."""
    if not x.size:
        return x.tolist(), ()
    return x.tobytes() if x.dtype == np.uint8 else x.reshape(-1).tolist(), x.shape[1:]


class _Session:
    """A session that some codes have been run in; a context manager."""

    def __init__(self, checkout: Any, codes: Sequence[str]):
        self._checkout, self._codes = checkout, codes

    def __enter__(self) -> Any:
        session = self._checkout.__enter__()
        try:
            for code in self._codes:
                session.feed_run(code, print_callback=_ignore)
        except BaseException as error:
            self._checkout.__exit__(type(error), error, error.__traceback__)
            raise
        return session

    def __exit__(self, *error: Any) -> None:
        self._checkout.__exit__(*error)


def _close(pool: monty.Monty, threads: ThreadPoolExecutor) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    pool.__exit__(None, None, None)


def _ignore(stream: str, text: str) -> None:
    """Drops what generated code prints."""


def problem_of(error: Exception) -> str:
    """Returns an error in one line."""
    if isinstance(error, TypeError):
        return f"WrongResult: {_shown(str(error))}"
    if isinstance(error, monty.MontyCrashedError):
        return f"{_TIMED_OUT if error.timed_out else _CRASHED}: {_shown(str(error))}"
    return _shown(str(error) or type(error).__name__)


def _value(ok: bool, result: Any) -> Value:
    if not ok:
        return Value(0.0, {}, _shown(result))
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        return Value(0.0, {}, f"WrongResult: gives {_shown(repr(result))[:60]}, not (float, dict of floats)")
    value, parts = result
    try:
        numbers = {str(name): _number(part) for name, part in parts.items()}
        return Value(_number(value), numbers)
    except (TypeError, ValueError, OverflowError) as error:
        return Value(0.0, {}, f"WrongResult: {_shown(str(error))}")


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"gives a {type(value).__name__}, {repr(value)[:60]}, where a number belongs")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"gives {number}")
    return number
