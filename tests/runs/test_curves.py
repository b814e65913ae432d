"""Rows of metrics become curves: resumed runs, seeds, intervals."""

import dataclasses

import numpy as np
import pytest

from oni_jax.metrics.sinks import JsonlSink
from oni_jax.runs.curves import group_runs, last_value, mean_curve, series, smoothed
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError
from tests.show.report.runs import learning, row, write_run
from tests.support.trials import trial


def run(folder, rows, **settings):
    return Run(str(write_run(folder, rows, **settings))).metrics(("a", "mean_return", "server_state"), folder.name)


def test_a_run(tmp_path):
    found = run(tmp_path / "a", [row(10, 36.0, mean_return=25.0), row(20, 72.0, server_state="ok", mean_return=None)])
    assert found.env_steps.tolist() == [10, 20] and found.hours.tolist() == [0.01, 0.02]
    assert found.metrics["success"][0] == 0.5  # a goal pays 50
    assert "server_state" not in found.metrics
    assert [x.tolist() for x in series(found, "mean_return", "hours")] == [[0.01], [25.0]]
    assert series(found, "nothing", "hours")[0].size == 0


def test_success_keeps_the_name_that_the_environment_gave_it(tmp_path):
    path = write_run(tmp_path / "a", [row(10, 36.0, **{"episode/success": 0.25})], root_env="Catch-v0")
    found = Run(str(path)).metrics(("episode/success",), "a")
    assert found.metrics["success"].tolist() == found.metrics["episode/success"].tolist() == [0.25]


def test_a_task_without_a_goal_has_no_success(tmp_path):
    assert "success" not in run(tmp_path / "a", [row(1, 1.0, mean_return=5.0)], root_env="NetHackScore-v1").metrics


def test_a_resumed_run_goes_on_where_its_checkpoint_was(tmp_path):
    """Three starts: killed after 40, from the checkpoint of 20; killed after 30, from that of 30."""
    rows = [row(steps, secs, mean_return=steps + secs) for steps, secs in [(10, 10.0), (20, 20.0), (40, 40.0)]]
    rows += [row(steps, secs, mean_return=-steps) for steps, secs in [(25, 5.0), (30, 10.0)]]
    rows += [row(35, 3.0, mean_return=-35), row(50, 100.0, mean_return=-50)]
    found = run(tmp_path / "a", rows)
    assert found.env_steps.tolist() == [10, 20, 25, 30, 35, 50]
    assert np.allclose(found.hours * 3600, [10, 20, 25, 30, 33, 130])
    assert found.metrics["mean_return"].tolist() == [20, 40, -25, -30, -35, -50]


def test_a_first_start_that_saved_nothing(tmp_path):
    found = run(tmp_path / "a", [row(10, 10.0), row(20, 20.0), row(5, 4.0), row(15, 8.0)])
    assert found.env_steps.tolist() == [5, 15] and np.allclose(found.hours * 3600, [4, 8])


def test_steps_may_stand_still_within_a_start(tmp_path):
    rows = [row(steps, secs, a=secs) for steps, secs in [(10, 10.0), (10, 15.0), (20, 20.0), (20, 25.0), (30, 30.0)]]
    found = run(tmp_path / "a", rows)
    assert found.env_steps.tolist() == [10, 20, 30] and found.metrics["a"].tolist() == [15, 25, 30]
    assert np.allclose(found.hours * 3600, [15, 25, 30])


def test_a_start_may_take_longer_than_the_one_before(tmp_path):
    found = run(tmp_path / "a", [row(10, 5.0), row(20, 8.0), row(15, 9.0), row(30, 12.0)])
    assert found.env_steps.tolist() == [10, 15, 30] and np.allclose(found.hours * 3600, [5, 14, 17])


def test_the_newest_value_is_not_smoothed(tmp_path):
    found = run(tmp_path / "a", [*(row(i, float(i), a=i) for i in range(1, 1001)), row(1001, 1001.0)])
    assert last_value(found, "a") == 1000 and last_value(found, "nothing") is None


def test_a_run_holds_what_it_is_asked_for(tmp_path):
    assert set(run(tmp_path / "a", learning(1), root_env="NetHackScore-v1").metrics) == {"mean_return"}


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    folder = write_run(tmp_path / "a", learning(1, 3))
    with open(folder / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 99, "env_st')
    assert len(Run(str(folder)).metrics((), "a").env_steps) == 3


OF_ANOTHER_SUM = b'{"env_steps": 9000, "secs": 90.0, "checksum": 1}'


@trial("rows damaged")
@pytest.mark.parametrize(
    "line",
    [b"{", b"[1]", b'{"env_steps": 3}', b'{"env_steps": "x", "secs": 1}', b"\xff", b"", b"[" * 100_000, OF_ANOTHER_SUM],
)
def test_damaged_rows_are_left_out_and_counted(tmp_path, capsys, line):
    folder = write_run(tmp_path / "a", learning(1, 3))
    for _ in range(2):
        with open(folder / "metrics.jsonl", "ab") as file:
            file.write(line + b"\n")
    assert Run(str(folder)).metrics((), "a").env_steps.tolist() == [1000, 2000, 3000]
    assert capsys.readouterr().out == f"{folder}/metrics.jsonl: 2 damaged rows are left out\n"


@trial("rows damaged")
def test_row_with_a_changed_digit_is_left_out(tmp_path, capsys):
    folder = write_run(tmp_path / "a", [])
    sink = JsonlSink(folder / "metrics.jsonl")
    for number in range(3):
        sink.write(10 * number, row(10 * number, float(number), mean_return=25.5))
    sink.close()
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text.replace("25.5", "95.5", 1))
    assert Run(str(folder)).metrics((), "a").metrics["mean_return"].tolist() == [25.5, 25.5]
    assert "1 damaged row is left out" in capsys.readouterr().out
    (folder / "metrics.jsonl").write_text(text.replace("25.5", "95.5"))
    with pytest.raises(UserError, match="no rows"):
        Run(str(folder)).metrics((), "a")


def test_a_run_without_rows(tmp_path):
    with pytest.raises(UserError, match="no rows yet"):
        run(tmp_path / "a", [])
    (tmp_path / "a" / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match="can't be read"):
        Run(str(tmp_path / "a")).metrics((), "a")
    with pytest.raises(UserError, match="name a training run"):
        Run(str(tmp_path / "b")).metrics((), "b")


def test_runs_that_differ_in_their_seed_alone_are_one_setting(tmp_path):
    runs = [
        run(tmp_path / "score" / "seed1", learning(1), seed=1, train_for_env_steps=5, train_dir="x"),
        run(tmp_path / "other", learning(1), seed=1, gamma=0.9),
        run(tmp_path / "score" / "seed2", learning(2), seed=2),
    ]
    runs = [dataclasses.replace(x, name=name) for x, name in zip(runs, ["score/seed1", "other", "score/seed2"])]
    assert [(group.label, group.runs) for group in group_runs(runs)] == [
        ("score", (runs[0], runs[2])),
        ("other", (runs[1],)),
    ]


def test_seeds_on_several_machines_are_one_setting(tmp_path):
    machines = [{"num_workers": i + 1, "cpu_devices": i + 1} for i in range(2)]
    places = [{"llm_server_addr": f"node{i}", "label_store": f"{i}", **machine} for i, machine in enumerate(machines)]
    runs = [run(tmp_path / f"a{i}", learning(i), seed=i, **place) for i, place in enumerate(places)]
    judged = run(tmp_path / "judged", learning(1))
    assert [(group.label, len(group.runs)) for group in group_runs([*runs, judged])] == [("a", 2), ("judged", 1)]


@pytest.mark.parametrize(
    "names, label",
    [
        (("score/10", "score/11"), "score"),
        (("run1", "run2"), "run"),
        (("lr_0.1_seed1", "lr_0.1_seed2"), "lr_0.1"),
        (("apple", "apricot"), "apple, apricot"),
        (("seed=1_llm_reward_coeff=0.05", "seed=2_llm_reward_coeff=0.05"), "llm_reward_coeff=0.05"),
        (("rnd_seed=1_gamma=0.9", "rnd_seed=12_gamma=0.9", "rnd_seed=3_gamma=0.9"), "rnd_gamma=0.9"),
        (("a_a", "a_a_a"), "a_a"),
    ],
)
def test_a_label_ends_between_words(tmp_path, names, label):
    found = run(tmp_path / "a", learning(1))
    (setting,) = group_runs([dataclasses.replace(found, name=name) for name in names])
    assert setting.label == label


@pytest.mark.parametrize(
    "name, label",
    [("seed=3_gamma=0.9", "gamma=0.9"), ("fast/seed_3", "fast"), ("gamma=0.9_seed3", "gamma=0.9"), ("seed3", "seed3"),
     ("seed=31_x", "seed=31_x"), ("birdseed3", "birdseed3")],
)  # fmt: skip
def test_label_of_a_lone_run_among_groups_has_no_seed(tmp_path, name, label):
    groups = [run(tmp_path / f"a{seed}", learning(1), seed=seed) for seed in (1, 2)]
    lone = dataclasses.replace(run(tmp_path / "lone", learning(1), seed=3, gamma=0.9), name=name)
    assert [group.label for group in group_runs([*groups, lone])] == ["a", label]
    assert [group.label for group in group_runs([groups[0], lone])] == ["a1", name]


def test_labels_that_would_be_the_same_name_what_differs_or_every_run(tmp_path):
    many = {"gamma": 0.9, "learning_rate": 0.1, "max_grad_norm": 1.0, "rollout": 8}
    for settings, labels in (
        ({"gamma": 0.9}, ["gamma=0.99", "gamma=0.9"]),
        (many, ["run_0, run_1", "run_2, run_3"]),
    ):
        each = [{"seed": 1}, {"seed": 2}, {"seed": 1, **settings}, {"seed": 2, **settings}]
        runs = [run(tmp_path / f"run_{i}", learning(1), **values) for i, values in enumerate(each)]
        assert [group.label for group in group_runs(runs)] == labels


def test_labels_say_what_differs_or_the_title_where_names_share_nothing(tmp_path):
    gammas = [run(tmp_path / f"{seed}{x}", learning(1), seed=seed, gamma=x) for x in (0.9, 0.99) for seed in (1, 2)]
    gammas = [dataclasses.replace(x, name=name) for x, name in zip(gammas, ["apple", "pear", "plum", "fig"])]
    assert [group.label for group in group_runs(gammas)] == ["gamma=0.9", "gamma=0.99"]
    seeds = [dataclasses.replace(x, name=f"seed={x.config.run.seed}") for x in gammas[:2]]
    assert [group.label for group in group_runs(seeds, "sweep")] == ["sweep"]


def test_mean_and_interval_over_seeds(tmp_path):
    """Lines of slope 1 per 1000 steps with offsets 1, 2 and 6: mean 3; 1 of 27 resamples has 1 three times."""
    runs = [run(tmp_path / str(seed), learning(seed, 4 + seed), seed=seed) for seed in (1, 2, 6)]
    curve = mean_curve(runs, "mean_return", "env_steps")
    assert curve and curve.interval
    assert (curve.x[0], curve.x[-1]) == (1000, 5000)  # all of them have been there
    assert np.allclose(curve.mean, curve.x / 1000 - 1 + 3)
    assert np.allclose(curve.interval[0], curve.mean - 2) and np.allclose(curve.interval[1], curve.mean + 3)


def test_the_lowest_and_the_highest_quarter_of_the_seeds_are_left_out(tmp_path):
    runs = [run(tmp_path / str(seed), learning(seed), seed=seed) for seed in (1, 2, 3, 900)]
    curve = mean_curve(runs, "mean_return", "env_steps")
    assert curve and np.allclose(curve.mean, curve.x / 1000 - 1 + 2.5)


def test_a_mean_of_episodes_begins_where_it_is_one_of_as_many_as_it_says(tmp_path):
    rows = [row(i, float(i), mean_return=i, episodes=20 * i, a=i) for i in range(1, 6)]
    found = run(tmp_path / "a", rows, stats_avg=50)
    assert series(found, "mean_return", "env_steps")[1].tolist() == [3, 4, 5]
    assert series(found, "success", "env_steps")[0].tolist() == [3, 4, 5]
    assert series(found, "a", "env_steps")[1].tolist() == [1, 2, 3, 4, 5]
    short = run(tmp_path / "b", rows, stats_avg=1000)  # it never is
    assert series(short, "mean_return", "env_steps")[1].tolist() == [1, 2, 3, 4, 5]


def test_two_seeds_have_a_mean_alone(tmp_path):
    runs = [run(tmp_path / str(seed), learning(seed), seed=seed) for seed in (1, 2)]
    curve = mean_curve(runs, "mean_return", "hours")
    assert curve and curve.interval is None and np.allclose(curve.mean[0], 1.5)
    assert mean_curve(runs, "nothing", "hours") is None


def test_seeds_with_nothing_in_common(tmp_path):
    runs = [run(tmp_path / "1", [row(1, 1.0, a=1), row(2, 2.0, a=1)]), run(tmp_path / "2", [row(3, 3.0, a=1)])]
    assert mean_curve(runs, "a", "env_steps") is None


def test_long_series_are_smoothed():
    assert smoothed(np.arange(300.0)).tolist() == list(range(300))
    noise = np.tile([0.0, 1.0], 1000)
    found = smoothed(noise)
    assert len(found) == 2000 and np.all(np.abs(found - 0.5) < 0.1)
    assert np.allclose(smoothed(np.full(1000, 3.0)), 3.0)
