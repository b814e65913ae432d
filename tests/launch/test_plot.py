"""launch.plot, as a user calls it."""

import json
import shutil

import pytest

from launch import plot, report
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
    folder = train_dir / "plots"
    assert lines[2:] == [str(folder / "return.png"), str(folder / "return.pdf")]
    assert sorted(folder.iterdir()) == [folder / "return.pdf", folder / "return.png"]


@pytest.fixture
def sweep_dir(tmp_path):
    for coeff in (0.05, 0.1):
        for seed in (1, 2, 3):
            rows = [row(steps, steps / 10, mean_return=steps * seed * coeff) for steps in (100, 200)]
            name = f"seed={seed}_llm_reward_coeff={coeff}"
            settings = {"seed": seed, "llm_reward_coeff": coeff, "llm_reward_type": "online_cls", "answers": "judge"}
            write_run(tmp_path / "sweep" / name, rows, root_env="Catch-v0", **settings)
    write_run(tmp_path / "sweep" / "seed=4_llm_reward_coeff=0.1", [], root_env="Catch-v0", seed=4)
    return tmp_path / "sweep"


@pytest.mark.parametrize("words", [("sweep", "--train_dir", "{}"), ("{}/sweep",), ("{}/sweep/",)])
def test_sweep_is_drawn_in_its_folder_a_curve_for_each_setting(sweep_dir, capsys, words):
    assert plot.main([word.format(sweep_dir.parent) for word in words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines[:2]] == ["llm_reward_coeff=0.05", "llm_reward_coeff=0.1"]
    assert [line.count("(seed ") for line in lines[:2]] == [3, 3]
    assert f"skipped {sweep_dir / 'seed=4_llm_reward_coeff=0.1'}: has no rows yet" in lines
    assert {path.name for path in (sweep_dir / "plots").iterdir()} >= {"return.png", "return.pdf"}
    assert not list(sweep_dir.glob("seed=*/plots"))


def test_report_of_a_sweep_has_its_settings_curves_and_runs(sweep_dir, capsys):
    assert report.main([str(sweep_dir)]) == 0
    page = (sweep_dir / "report.html").read_text()
    assert str(sweep_dir / "report.html") in capsys.readouterr().out
    assert "<td>llm_reward_coeff=0.05</td><td>3</td>" in page and "7 runs" in page
    assert page.count("<img ") == 1 and "seed=4_llm_reward_coeff=0.1</td>" in page
    assert report.main([str(sweep_dir), "--evaluation", "x.json"]) == 2
    assert "--evaluation: is for a run's report" in capsys.readouterr().err
    for path in sweep_dir.glob("seed=*/metrics.jsonl"):
        path.write_text("")
    assert report.main([str(sweep_dir)]) == 2 and plot.main([str(sweep_dir)]) == 2
    assert "none of its 7 runs has rows of metrics yet" in capsys.readouterr().err


def test_report_of_a_sweep_names_a_lone_seed_as_the_others_and_folds_diagnostics(sweep_dir):
    for seed in (2, 3):
        shutil.rmtree(sweep_dir / f"seed={seed}_llm_reward_coeff=0.1")
    rows = [row(steps, steps / 10, mean_return=1.0, env_steps_per_sec=9.0) for steps in (100, 200)]
    path = sweep_dir / "seed=1_llm_reward_coeff=0.1" / "metrics.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert report.main([str(sweep_dir)]) == 0
    page = (sweep_dir / "report.html").read_text()
    results = page[page.index("<h2>Results") : page.index("<h2>Runs")]
    assert "<td>llm_reward_coeff=0.1</td><td>1</td>" in results and "seed=" not in results
    assert page.index('alt="return of sweep"') < page.index("<summary>Diagnostics: speed") < page.index('alt="speed of')


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
