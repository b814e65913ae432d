"""launch.plot, as a user calls it."""

import pytest

from launch import plot
from tests.show.report.runs import row, write_run


@pytest.fixture
def train_dir(tmp_path):
    for seed in (1, 2):
        rows = [row(steps, steps / 10, mean_return=steps * seed) for steps in (100, 200)]
        write_run(tmp_path / "runs" / f"score_{seed}", rows, seed=seed, root_env="Catch-v0")
    return tmp_path / "runs"


def test_names_and_folders(train_dir, capsys):
    words = ["score_1", str(train_dir / "score_2"), "--train_dir", str(train_dir)]
    assert plot.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "score: score_1 (seed 1), score_2 (seed 2)"
    missing = "intrinsic_return, success, achievements, goals, depth, labels, goal_model, reward_model, speed"
    assert lines[1] == f"not drawn, since no run has data for it: {missing}"
    folder = train_dir / "score_1" / "plots"
    assert lines[2:] == [str(folder / "return.png"), str(folder / "return.pdf")]
    assert sorted(folder.iterdir()) == [folder / "return.pdf", folder / "return.png"]


def test_a_run_by_two_names_is_one(train_dir, capsys):
    words = ["score_1", str(train_dir / "score_1"), "score_2", "--train_dir", str(train_dir)]
    assert plot.main(words) == 0
    assert capsys.readouterr().out.splitlines()[0] == "score: score_1 (seed 1), score_2 (seed 2)"


def test_a_seed_that_comes_twice_is_told(train_dir, capsys):
    write_run(train_dir / "score_3", [row(100, 10.0, mean_return=1)], seed=2, root_env="Catch-v0")
    assert plot.main(["score_1", "score_2", "score_3", "--train_dir", str(train_dir)]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("score_3 (seed 2); some have the same seed")


def test_chosen_metrics(train_dir, capsys):
    rows = [
        row(100 * i, 10.0 * i, **{"loss/entropy": 1.0 / i, "episode/intrinsic_return/online_cls": i}) for i in (1, 2)
    ]
    write_run(train_dir / "labelled", rows, llm_reward_type="online_cls", root_env="Catch-v0")
    words = ["labelled", "--train_dir", str(train_dir), "--metrics"]
    assert plot.main([*words, "loss/entropy,episode/intrinsic_return/<type>"]) == 0
    folder = train_dir / "labelled" / "plots"
    stems = ("loss_entropy", "episode_intrinsic_return")
    assert {*folder.iterdir()} == {folder / f"{stem}.{suffix}" for stem in stems for suffix in ("png", "pdf")}
    capsys.readouterr()
    assert plot.main([*words, "loss/entropi,loss/entropy"]) == 2
    error = capsys.readouterr().err
    assert error == "error: --metrics loss/entropi: no run has data for it; did you mean loss/entropy?\n"


@pytest.mark.parametrize(
    "words, told",
    [
        ([], "name the experiments"),
        (["nothing"], "nothing/config.json can't be read"),
        (["empty"], "holds no rows yet"),
        (["score_1", "--plots"], "did you mean --plots_dir?"),
    ],
)
def test_bad_input_is_one_line(train_dir, capsys, words, told):
    write_run(train_dir / "empty", [])
    assert plot.main([*words, "--train_dir", str(train_dir)]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
