"""Windows of arrays, and what a code reads of them."""

import numpy as np
import pytest

from oni_jax.rewards.bk.code import Reads, arguments_read, read_code
from oni_jax.rewards.bk.windows import Windows, make_windows, names_read
from oni_jax.settings.fields import UserError

T, B, H = 3, 4, 2


def observed() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"image": (2, 2), "past2/image": (H, 2, 2), "place": (), "past2/place": (H,), "past2/actions": (H,)}
    return {name: rng.integers(0, 2, (T, B, *shape)).astype(np.uint8) for name, shape in shapes.items()}


def test_windows_are_those_of_the_arrays():
    x = observed()
    assert sorted(names_read(["image", "place"], H)) == sorted(x)
    windows = make_windows(x, ["image", "place"], H)
    made, numbers = windows.distinct()
    assert len(numbers) == T * B
    for i, number in enumerate(numbers):
        t, b = divmod(i, B)
        for name in ("image", "place"):
            expected = [*x[f"past2/{name}"][t, b], x[name][t, b]]
            np.testing.assert_array_equal(made[name][number], expected)
            np.testing.assert_array_equal(windows.take([i]).steps[name][0], expected)
        np.testing.assert_array_equal(windows.actions[i], x["past2/actions"][t, b])


def test_equal_windows_have_equal_digests_and_others_have_not():
    windows = make_windows(observed(), ["image", "place"], H)
    digests, numbers = windows.digests(), windows.distinct()[1]
    equal = np.all(windows.actions[:, None] == windows.actions, axis=-1)
    for i in range(T * B):
        for j in range(T * B):
            assert (digests[i] == digests[j]) == (numbers[i] == numbers[j] and equal[i, j])
    assert (
        Windows({"x": np.zeros((1, 1, 2))}, np.zeros((1, 0))).digests()
        != Windows({"x": np.ones((1, 1, 2))}, np.zeros((1, 0))).digests()
    )


def test_equal_observations_are_one():
    steps = 5 + np.arange(4)[None] + np.arange(3)[:, None]  # three windows that slide by one
    made, numbers = Windows({"x": steps}, np.zeros((3, 3), np.int32)).distinct()
    assert made["x"].tolist() == [5, 6, 7, 8, 9, 10] and numbers == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]


def test_windows_without_the_past_differ_in_the_present_alone():
    steps, actions = np.array([[0, 1, 5], [2, 3, 5]]), np.array([[0, 1], [2, 3]])
    windows = Windows({"x": steps}, actions)
    one, other = windows.without(past=True, actions=True).digests()
    assert one == other
    for kept in ({"past": False, "actions": True}, {"past": True, "actions": False}):
        one, other = windows.without(**kept).digests()
        assert one != other
    cut = windows.without(past=True, actions=True)
    assert cut.steps["x"].tolist() == [[5], [5]] and cut.actions.shape == (2, 0)


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("def compute_reward(obs, past_obs, past_actions): return 1, {}", Reads(False, False)),
        ("def compute_reward(a, b, c): return len(b), {}", Reads(True, False)),
        ("def compute_reward(a, b, c): return [c for _ in a], {}", Reads(False, True)),
        ("def compute_reward(a, b, c):\n    def f(): return b\n    return f(), {}", Reads(True, False)),
        ("def compute_reward(*args): return 1, {}", Reads(True, True)),
        ("def compute_reward(a, b, c): return locals(), {}", Reads(True, True)),
        ("compute_reward = lambda a, b, c: (1, {})", Reads(True, True)),
        ("def compute_reward(a, b, c):\n try: return 1, {}\n except A, B: pass", Reads(True, True)),  # Python 3.14's
    ],
)
def test_arguments_that_a_code_reads(code, reads):
    assert arguments_read(code) == reads


def test_a_code_is_read_from_a_file_or_its_folder(tmp_path):
    (tmp_path / "code-final.py").write_text("published = 1\n")
    assert read_code(str(tmp_path)) == (str(tmp_path / "code-final.py"), "published = 1\n")
    (tmp_path / "potential.py").write_text("ours = 1\n")
    assert read_code(str(tmp_path)) == (str(tmp_path / "potential.py"), "ours = 1\n")
    assert read_code(str(tmp_path / "code-final.py"))[1] == "published = 1\n"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("potential.txt", b"", "holds none of potential.py, code-final.py"),
        ("potential.py", b"\xff", "can't be read"),
        ("potential.py", b"#" * 300_000, "is larger than"),
        (
            "potential.py",
            b"def compute_reward(o, p, a): return np.sum(o), {}",
            "uses np, .* as plain Python",
        ),
        ("code-final.py", b"X = OBJECT_TO_IDX['wall']", "uses OBJECT_TO_IDX, .* rewrite it as plain Python"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, name, content, problem):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=problem):
        read_code(str(tmp_path))
    with pytest.raises(UserError, match="can't be read"):
        read_code(str(tmp_path / "nothing.py"))
