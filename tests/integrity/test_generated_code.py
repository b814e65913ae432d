"""A generated potential that breaks the sandbox's workers, or changes what the sandbox uses, spoils nothing else."""

import os
import signal
import time

import psutil
import pytest

from oni_jax.rewards.bk.sandbox import CodeError, Sandbox
from tests.rewards.bk.test_sandbox import HEAD, called, windows
from tests.support.trials import trial

# They break no limit that the interpreter itself notices: the worker has to be killed.
STUCK = [
    "n = 3\n    for i in range(30):\n        n = n * n\n    return 1.0, {}",
    "return float(len(str(7**10000000))), {}",
]


def descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


@trial("generated code stuck")
@pytest.mark.parametrize("body", [STUCK[0], pytest.param(STUCK[1], marks=pytest.mark.slow)])
def test_code_whose_worker_is_killed_each_time_is_refused_after_few_windows(body):
    started = time.monotonic()
    with pytest.raises(CodeError, match="it fails on every window: TimeoutError: .*killed"):
        called(body, 1000)
    assert time.monotonic() - started < 10  # all of them: minutes


@trial("generated code stuck")
@pytest.mark.slow
@pytest.mark.parametrize("stuck", ["obs['x'][0] > 300", "obs['x'][0] % 40 == 7"])
def test_code_that_worked_is_refused_when_it_breaks_limits_again_and_again(stuck):
    started = time.monotonic()
    with pytest.raises(CodeError, match="breaks limits again and again"):
        called(f"if not ({stuck}):\n        return 1.0, {{}}\n    {STUCK[1]}", 1000)
    assert time.monotonic() - started < 20


@trial("generated code stuck")
def test_code_that_is_stuck_on_one_window_counts_as_0_there():
    values = called(f"if obs['x'][0] != 5:\n        return obs['x'][0], {{}}\n    {STUCK[1]}")
    assert [value.value for value in values] == [i if i != 5 else 0 for i in range(20)]
    assert values[5].problem.startswith("TimeoutError: ")


@pytest.mark.parametrize("number", [pytest.param(signal.SIGSTOP, marks=pytest.mark.slow), signal.SIGKILL])
def test_worker_that_is_lost_is_replaced(number):
    before = descendants()
    sandbox = Sandbox(f"{HEAD}return obs['x'][0], {{}}")
    for worker in descendants():
        if worker not in before:
            os.kill(worker.pid, number)
    started = time.monotonic()
    assert [(result.value, result.problem) for result in sandbox.call(windows(20))] == [(i, "") for i in range(20)]
    sandbox.close()
    assert time.monotonic() - started < 10 and {*descendants()} <= {*before}


@trial("generated code shadows")
@pytest.mark.parametrize(
    "shadow",
    [
        "def str(x): return ''",
        "range = 5",
        "zip = len = dict = list = type = None",
        "Exception = SystemExit",
        "def _oni_call_all(*args): return [(True, (1.0, {}))] * 20, True",
        "def _oni_nested(*args): return 5",
    ],
)
def test_code_s_names_replace_none_of_the_sandbox(shadow):
    code = f"{shadow}\n{HEAD}obs['x'][0] += 100\n    return past_obs[0]['x'][0] + obs['x'][0], {{}}"
    sandbox = Sandbox(code)
    values = sandbox.call(windows(9))
    sandbox.close()
    assert [result.value for result in values] == [100 + i + i - 1 for i in range(9)]


@trial("generated code shadows")
def test_objects_that_look_like_numbers_are_seen_by_no_other_call():
    look = (
        "class Five:\n    def __init__(self, n):\n        self.n = n\n"
        "    def __repr__(self):\n        return str(self.n)\n"
        "    def __eq__(self, other):\n        return True\n    def __add__(self, other):\n        return 100\n"
    )
    body = "seen = past_obs[0]['x'][0] + 0\n    obs['x'][0] = Five(obs['x'][0])\n    return float(seen), {}"
    sandbox = Sandbox(f"{look}{HEAD}{body}")
    values = sandbox.call(windows(9))
    sandbox.close()
    assert [(result.value, result.problem) for result in values] == [(i - 1.0, "") for i in range(9)]
