"""Generated code is called in a sandbox: what it gives is checked, and what it breaks is counted."""

import glob
import os
import re
import time

import numpy as np
import pytest

from oni_jax.rewards.bk.sandbox import CodeError, Sandbox
from oni_jax.rewards.bk.windows import Windows

HEAD = "def compute_reward(obs, past_obs, past_actions):\n    "
# A failure's name -> bodies that end in it.
HOSTILE = [
    ("PermissionError", "return open('/etc/passwd').read(), {}"),
    ("ModuleNotFoundError", "import subprocess"),
    ("ModuleNotFoundError", "import socket"),
    ("ModuleNotFoundError", "import numpy"),
    ("AttributeError", "import os\n    os.system('touch /tmp/oni_jax_was_here')"),
    ("AttributeError", "return ().__class__.__bases__[0].__subclasses__()"),
    ("NameError", "return __import__('os')"),
    ("NameError", "return globals()"),
    ("TimeoutError", "while True:\n        pass"),
    ("TimeoutError", "while True:\n        try:\n            while True: pass\n        except BaseException: pass"),
    ("MemoryError", "return [0] * 10**9"),
    ("MemoryError", "return 10**10**8"),
    ("MemoryError", "kept = []\n    while True: kept.append('x' * 500000000)"),
    ("RecursionError", "return compute_reward(obs, past_obs, past_actions)"),
    ("WrongResult", "return float('nan'), {}"),
    ("WrongResult", "return float('inf'), {}"),
    ("WrongResult", "return 10**400, {}"),
    ("WrongResult", "return 1.0"),
    ("WrongResult", "return 'high', {}"),
    ("WrongResult", "return 1.0, {'part': 'high'}"),
    ("WrongResult", "return 1.0, [0.5]"),
    ("SystemExit", "raise SystemExit"),
    ("IndexError", "return past_actions[99], {}"),
]


def windows(number: int) -> Windows:
    """Each observation is the present of one window, and the past of the next."""
    now = np.arange(number)
    return Windows({"x": np.stack([[now - 1, now], [0 * now, 0 * now]], axis=-1).swapaxes(0, 1)}, now[:, None] % 3)


def called(body: str, number: int = 20, num_workers: int = 1):
    sandbox = Sandbox(HEAD + body, num_workers)
    try:
        return sandbox.call(windows(number))
    finally:
        sandbox.close()


@pytest.mark.parametrize(("name", "body"), HOSTILE)
def test_a_code_that_always_fails_is_refused_by_the_name_of_its_failure(name, body):
    with pytest.raises(CodeError, match=f"it fails on every window: {name}\\b") as refused:
        called(body)
    assert "\n" not in str(refused.value)
    assert not os.path.exists("/tmp/oni_jax_was_here")


@pytest.mark.parametrize(("name", "body"), [HOSTILE[8], HOSTILE[10], HOSTILE[14], HOSTILE[-1]])
def test_a_code_that_fails_at_times_counts_as_0_there(name, body):
    values = called(
        f"if obs['x'][0] == 5:\n        {body.replace(chr(10), chr(10) + '    ')}\n    return obs['x'][0], {{}}"
    )
    assert [value.value for value in values] == [i if i != 5 else 0 for i in range(20)]
    assert [i for i, value in enumerate(values) if value.problem] == [5]
    assert values[5].problem.startswith(f"{name}:")


@pytest.mark.parametrize("working", [19, 7])
def test_a_code_that_works_on_few_windows_of_the_first_call_is_not_refused(working):
    values = called(f"return 1.0 / (obs['x'][0] == {working}), {{}}")
    assert [value.value for value in values] == [float(i == working) for i in range(20)]


def test_a_code_that_breaks_a_limit_on_all_that_are_probed_is_called_no_more():
    started = time.monotonic()
    with pytest.raises(CodeError, match="it fails on every window: TimeoutError"):
        called(HOSTILE[8][1], 1000)
    assert time.monotonic() - started < 20  # all of them: more than 100 s


@pytest.mark.parametrize("result", ["1.0, {Own(): 1}", "1.0, {(Own(),): 1}"])
def test_a_result_that_python_can_t_hold_is_a_failure_of_its_window(result):
    head = "class Own:\n        pass\n    "
    values = called(f"{head}if obs['x'][0] != 5:\n        return obs['x'][0], {{}}\n    return {result}")
    assert [value.value for value in values] == [i if i != 5 else 0 for i in range(20)]
    assert values[5].problem.startswith("WrongResult: unhashable")


def test_a_code_s_names_stay_separate():
    names = ("columns", "windows", "actions", "_nested", "_call_all")
    sandbox = Sandbox("".join(f"{name} = [7]\n" for name in names) + f"{HEAD}return {'[0] + '.join(names)}[0], {{}}")
    values = sandbox.call(windows(3))
    sandbox.close()
    assert [(result.value, result.problem) for result in values] == [(35, "")] * 3


def test_catastrophic_patterns_end():
    """Monty's patterns don't backtrack without end, so this is a value or a failure, and soon."""
    body = "import re\n    return (1.0 if re.match('(a+)+$', 'a' * 40 + 'b') else 0.5), {}"
    assert {value.value for value in called(body)} <= {0.0, 0.5}


def test_values_come_in_order_from_several_workers():
    values = called("return obs['x'][0] - past_obs[-1]['x'][0] + 10 * past_actions[0], {'now': obs['x'][0]}", 1500, 2)
    assert [value.value for value in values] == [1 + 10 * (i % 3) for i in range(1500)]
    assert [value.parts for value in values] == [{"now": i} for i in range(1500)]


def test_a_code_sees_nested_lists_of_numbers():
    rng, size = np.random.default_rng(0), (3, 3)  # three windows of two steps and the present
    steps = {
        "image": rng.integers(0, 256, (*size, 2, 4, 3)).astype(np.uint8),
        "direction": rng.integers(-5, 5, size).astype(np.int32),
        "level": rng.integers(0, 256, size).astype(np.uint8),
        "stats": rng.normal(size=(*size, 2)),
        "open": rng.random((*size, 2)) < 0.5,
        "nothing": np.zeros((*size, 0), np.uint8),
    }
    actions = rng.integers(0, 9, (3, 2))
    lists = [[{name: x[i, t].tolist() for name, x in steps.items()} for t in range(3)] for i in range(3)]
    expected = [str((window[-1], window[:-1], taken)) for window, taken in zip(lists, actions.tolist())]
    sandbox = Sandbox(f"EXPECTED = {expected}\n{HEAD}return EXPECTED.index(str((obs, past_obs, past_actions))), {{}}")
    values = sandbox.call(Windows(steps, actions))
    sandbox.close()
    assert [(result.value, result.problem) for result in values] == [(0, ""), (1, ""), (2, "")]


def test_changes_by_a_code_spoil_no_other_call():
    values = called("obs['x'][0] += 100\n    return past_obs[0]['x'][0] + obs['x'][0], {}", 9)
    assert [value.value for value in values] == [100 + i + i - 1 for i in range(9)]


def test_time_and_chance_are_the_same_in_every_call(capfd):
    body = "import random, time\n    print('spam')\n    time.sleep(100)\n    return random.random() + time.time(), {}"
    first, second = called(body, 1), called(body, 1)
    assert first == second and not first[0].problem
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("", "compute_reward"),
        ("x = 1", "compute_reward"),
        ("def compute_reward(:", "xpected"),
        ("import numpy as np\n", "numpy"),
        ("while True: pass\n", "TimeoutError"),
    ],
)
def test_code_that_can_t_be_called_is_refused(code, problem):
    with pytest.raises(CodeError, match=problem):
        Sandbox(code)


def test_no_process_outlives_it():
    sandbox = Sandbox(f"{HEAD}return 1, {{}}", 2)
    sandbox.call(windows(1100))
    workers = children()
    assert workers
    sandbox.close()
    assert not [pid for pid in workers if os.path.exists(f"/proc/{pid}") and "monty" in command(pid)]


def children() -> list[int]:
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(pid) == os.getpid()]


def parent(pid: int) -> int:
    for path in glob.glob(f"/proc/{pid}/status"):
        found = re.search(r"PPid:\s*(\d+)", open(path).read())
        return int(found[1]) if found else 0
    return 0


def command(pid: int) -> str:
    try:
        return open(f"/proc/{pid}/cmdline").read()
    except OSError:
        return ""
