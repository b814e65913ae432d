"""launch.sweep, as a user calls it; but for the last tests with a stand-in for launch.train."""

import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess

import pytest

from launch import flags, sweep
from launch.sweeps import children
from launch.sweeps.grid import plan
from oni_jax.host.run_files import last_row
from oni_jax.runs.experiment import write_settings
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values
from oni_jax.training.sizes import Machine, with_sizes
from tests.launch.stand_in_sweep import MODULE, end, use_stand_in
from tests.show.report.runs import row, write_run
from tests.support.processes import Launched, rows, summary

CATCH = "--root_env=Catch-v0 --encoder_custom=mlp_encoder --llm_reward_type=none --train_for_env_steps=1000".split()
CASES = ["--case", "low: --gamma 0.5", "--case=high: --gamma 0.9"]


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(children, "CHILD", children.CHILD)
    use_stand_in()


def run(train_dir: pathlib.Path, *words: str, training=CATCH) -> int:
    return sweep.main([*words, "--train_dir", str(train_dir), "--experiment=s", "--", *training])


def test_all_combinations_and_their_results(stand_in, tmp_path, capsys):
    assert run(tmp_path, *CASES, "--grid", "seed=1-2", "batch_size=32,64", "--jobs=4") == 0
    found = json.loads((tmp_path / "s" / "results.json").read_text())
    cells = [("low", "32"), ("low", "64"), ("high", "32"), ("high", "64")]
    assert [(entry["cell"]["case"], entry["cell"]["batch_size"]) for entry in found] == cells
    last = found[-1]
    assert last["runs"] == ["high_seed=1_batch_size=64", "high_seed=2_batch_size=64"] and last["seeds"] == [1, 2]
    assert last["mean_return"]["values"] == pytest.approx([1.9, 2.9])
    assert last["mean_return"]["mean"] == pytest.approx(2.4)
    assert last["mean_return"]["interval"] is None  # two have none
    lines = capsys.readouterr().out.splitlines()
    assert sum("starts; output:" in line for line in lines) == 8 and "[8 of 8 done" in lines[15]
    assert [line.split("|")[1].strip() for line in lines[18:22]] == [f"{a}, batch_size={b}" for a, b in cells]
    assert " 2.4 " in lines[21]
    assert run(tmp_path, *CASES, "--grid", "seed=1-3", "batch_size=32,64", "--jobs=4") == 0
    last = json.loads((tmp_path / "s" / "results.json").read_text())[-1]["mean_return"]
    assert last["interval"] == pytest.approx([min(last["values"]), max(last["values"])])  # resamples of three
    assert f"{last['mean']:.3g} [" in capsys.readouterr().out


def test_reward_type_none_goes_without_the_coefficient(tmp_path, capsys):
    training = [word for word in CATCH if "reward" not in word] + ["--llm_reward_coeff=0.1"]
    assert run(tmp_path, "llm_reward_type=none,rnd", "seed=1", "--dry_run", training=training) == 0
    none, rnd = capsys.readouterr().out.splitlines()
    assert none.endswith("--llm_reward_coeff=0") and "--llm_reward_coeff=0 " not in f"{rnd} "
    assert run(tmp_path, "llm_reward_type=none,nonsense", "--dry_run", training=training) == 2


def test_success_is_there_where_the_environment_reports_it(stand_in, tmp_path, capsys):
    words = ["root_env=Catch-v0,BabyAI-Text-GoToLocal-RedBall-S20"]
    training = ["--encoder_custom=mlp_encoder", "--llm_reward_type=none", "--train_for_env_steps=300"]
    assert run(tmp_path, *words, "--jobs=2", training=training) == 0
    of_catch, of_babyai = json.loads((tmp_path / "s" / "results.json").read_text())
    assert "success" not in of_catch and of_babyai["success"] == {"values": [0.5], "mean": 0.5, "interval": None}
    assert "| 0.5 " in capsys.readouterr().out


def test_finished_runs_are_skipped_and_others_go_on(stand_in, tmp_path, capsys):
    assert run(tmp_path, "seed=1-2", "--jobs=2") == 0
    folder = tmp_path / "s" / "seed=2"
    shutil.rmtree(folder / "checkpoints")
    end(folder, 300, 1.0)
    before = (tmp_path / "s" / "seed=1" / "output.log").read_text()
    capsys.readouterr()
    assert run(tmp_path, "seed=1-3", "--jobs=2") == 0
    assert (tmp_path / "s" / "seed=1" / "output.log").read_text() == before
    assert [line.split(",")[0] for line in (folder / "output.log").read_text().splitlines()] == ["from 0", "from 300"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("[1 of 3 done] finished already: 1") and "[3 of 3 done" in lines[4]


def test_a_failed_run_is_one_line_and_the_others_go_on(stand_in, tmp_path, capsys):
    assert run(tmp_path, "seed=13,1", "--jobs=1") == 1
    lines = capsys.readouterr().out.splitlines()
    log = tmp_path / "s" / "seed=13" / "output.log"
    failed = "seed=13 FAILED with exit code 1: error: thirteen is bad luck; output:"
    assert [line for line in lines if f"{failed} {log}" in line] == [line for line in lines if "FAILED" in line]
    assert "[1 of 2 done" in lines[3] and summary(tmp_path / "s" / "seed=1")["env_steps"] == 1000


def test_a_run_that_cannot_be_started_has_failed_and_the_others_go_on(stand_in, tmp_path, capsys):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "seed=2").write_text("a file where a folder should be")
    assert run(tmp_path, "seed=1-3", "--jobs=2") == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if "FAILED" in line]
    assert len(failed) == 1 and "seed=2 FAILED: can't be started in" in failed[0] and "File exists" in failed[0]
    assert all(summary(tmp_path / "s" / f"seed={seed}")["env_steps"] == 1000 for seed in (1, 3))


@pytest.mark.parametrize(
    "words, training, told",
    [
        ([], CATCH, "give a grid"),
        (["seeds=1-3"], CATCH, "unknown flag --seeds; did you mean --seed?"),
        (["seed=1,,2"], CATCH, "no value empty"),
        (["seed="], CATCH, "no value empty"),
        (["seed"], CATCH, "write name=value,value"),
        (["seed=1,2,2"], CATCH, "seed=2 and seed=2 are the same run"),
        (["seed=1", "gamma=0.9,0.90"], CATCH, "seed=1_gamma=0.9 and seed=1_gamma=0.90 are the same run"),
        (["seed=1-2", "seed=3"], CATCH, "seed: is there twice"),
        (["seed+judge_wrong_seed=1", "judge_wrong_seed=2"], CATCH, "--judge_wrong_seed is also given twice"),
        (["seed+=1"], CATCH, "write name=value,value"),
        (["seed+sede=1"], CATCH, "unknown flag --sede"),
        (["seed=5-1"], CATCH, "a range goes up"),
        (["seed=1-100", "batch_size=32,64,96,128,160,192,224,256,288,320,352"], CATCH, "100 x 11 are 1,100 runs"),
        (["seed=1-2"], [*CATCH, "--seed=3"], "--seed is also given after --"),
        (["seed=1-2", "--case=a: --seed 3"], CATCH, "--seed is also given in a --case"),
        (["batch_size=32,33"], CATCH, "run batch_size=33: --batch_size 33"),
        (["gamma=0.5,2"], CATCH, "run gamma=2: --gamma 2.0: must be from 0 to 1"),
        (["--case=a --gamma 2"], CATCH, "write LABEL: FLAGS"),
        (["--case=a: --gama 2"], CATCH, "did you mean --gamma?"),
        (["seed=1"], [*CATCH, "--experiment=x"], "--experiment: is a flag of the sweep"),
        (["experiment=a,b"], CATCH, "each run has a folder"),
        (["seed=1"], CATCH[:-1], "would never end"),
        (["llm_reward_type=none,online_cls"], [CATCH[0], CATCH[1], CATCH[3]], "run llm_reward_type=online_cls:"),
        (["seed=1", "--submit=--seeds 1-3"], CATCH, "--submit --seeds 1-3: the seeds are a sweep's axis"),
        (["seed=1", "--submit=--time x"], CATCH, "--time x: must be in a format of Slurm's"),
    ],
)  # fmt: skip
def test_a_bad_grid_is_refused_before_anything_starts(tmp_path, capsys, words, training, told):
    assert run(tmp_path, *words, training=training) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_settings_is_refused(stand_in, tmp_path, capsys):
    assert run(tmp_path, "seed=1") == 0
    assert run(tmp_path, "seed=1", training=[*CATCH, "--gamma=0.5"]) == 2
    assert "other settings (gamma: 0.99 -> 0.5); remove it, or choose another" in capsys.readouterr().err
    assert run(tmp_path, "seed=1", training=[*CATCH, "--num_workers=1", "--train_for_env_steps=1100"]) == 0
    assert summary(tmp_path / "s" / "seed=1")["env_steps"] == 1100


def test_sizes_that_are_left_to_the_machine_are_those_of_the_run(stand_in, tmp_path, capsys):
    words = [*CATCH, "--batch_size=0", "--precision=auto"]
    assert run(tmp_path, "seed=1", training=words) == 0
    folder = str(tmp_path / "s" / "seed=1")
    chosen, _ = with_sizes(Run(folder).config, Machine(8, 1 << 34), on_device=True)
    assert chosen.learner.batch_size
    write_settings(chosen, folder)
    capsys.readouterr()
    assert run(tmp_path, "seed=1", training=words) == 0, capsys.readouterr().err
    assert run(tmp_path, "seed=1", training=[*words, "--batch_size=64"]) == 2
    assert f"(batch_size: {chosen.learner.batch_size} -> 64)" in capsys.readouterr().err


def test_finished_run_has_the_summary_s_time(stand_in, tmp_path, capsys):
    """The last save may find a checkpoint of the same steps, from before the limit of time."""
    end(tmp_path / "s" / "seed=1", 200, 59.0)
    (tmp_path / "s" / "seed=1" / "summary.json").write_text(json.dumps({"env_steps": 200, "train_secs": 60.1}))
    assert run(tmp_path, "seed=1", "--dry_run", training=[*CATCH, "--train_for_seconds=60"]) == 0
    assert capsys.readouterr().out == "\n"


def test_rows_of_an_earlier_start_are_not_counted_twice(tmp_path):
    (planned,) = plan(["seed=1"], [], [*CATCH, "--train_for_seconds=60"], str(tmp_path / "s"))
    write_run(pathlib.Path(planned.folder), [row(200, 30.0)])
    before = last_row(planned.folder)
    child = children.Child(planned, subprocess.Popen("true"), 30.0, before)
    child.process.wait()
    assert children._fraction(child) == 0.5
    write_run(pathlib.Path(planned.folder), [row(220, 6.0)])
    assert children._fraction(child) == pytest.approx(0.6)


def test_a_time_limit_counts_over_all_starts(stand_in, tmp_path, capsys):
    words = [*CATCH, "--train_for_seconds=60"]
    folder = tmp_path / "s" / "seed=1"
    end(folder, 200, 60.5)
    assert run(tmp_path, "seed=1-2", "--dry_run", training=words) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["--experiment=s/seed=2"]


def test_steps_that_no_checkpoint_holds_are_trained_again(stand_in, tmp_path, capsys):
    """After a second Ctrl-C, and where the disk was full, the summary counts more than can be resumed."""
    folder = tmp_path / "s" / "seed=1"
    end(folder, 200, 20.0)
    (folder / "summary.json").write_text(json.dumps({"env_steps": 900, "train_secs": 60.5}))
    assert run(tmp_path, "seed=1", training=[*CATCH, "--train_for_seconds=60"]) == 0
    assert (folder / "output.log").read_text().startswith("from 200,")
    assert summary(folder)["train_secs"] == 60.0
    assert "seed=1 is done" in capsys.readouterr().out


def test_a_run_that_was_killed_has_trained_for_what_it_saved(stand_in, tmp_path):
    folder = tmp_path / "s" / "seed=1"
    end(folder, 200, 20.0)
    (folder / "summary.json").unlink()
    assert run(tmp_path, "seed=1", training=[*CATCH, "--train_for_seconds=60"]) == 0
    assert summary(folder)["train_secs"] == 60.0


def test_dry_run_shows_commands_that_train_understands(tmp_path, capsys):
    assert run(tmp_path, "seed=3-4,7", "--case=a: --goal 'x, y'", "--dry_run") == 0
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert {" ".join(words[:3]) for words in commands} == {"python -m launch.train"}
    configs = [flags.parse(words[3:]) for words in commands]
    assert [config.run.experiment for config in configs] == ["s/a_seed=3", "s/a_seed=4", "s/a_seed=7"]
    assert [config.run.seed for config in configs] == [3, 4, 7] and configs[0].annotation.goal == "x, y"
    assert run(tmp_path, "seed=3", "--dry_run", "--submit=--time 1:00:00") == 0
    assert capsys.readouterr().out.startswith("python -m launch.submit --time 1:00:00 -- --root_env=Catch-v0")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names", [("seed", "judge_wrong_seed"), ("judge_wrong_seed", "seed")])
def test_an_axis_may_set_several_flags(names, tmp_path):
    runs = plan([f"{'+'.join(names)}=3-4", "gamma=0.5"], [], CATCH, str(tmp_path / "s"))
    assert [run.name for run in runs] == ["seed=3_gamma=0.5", "seed=4_gamma=0.5"]
    assert [run.cell for run in runs] == [{"gamma": "0.5"}] * 2  # seeds of one cell
    assert [(run.config.run.seed, run.config.annotation.judge.wrong_seed) for run in runs] == [(3, 3), (4, 4)]


def test_jobs_by_default(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr("launch.sweep.memory_bytes", lambda: 16 << 30)
    monkeypatch.setattr("shutil.which", lambda name: None)

    def jobs(**values) -> int:
        return sweep.default_jobs([with_values(Config(), values)])

    assert jobs() == 1 and jobs(num_workers=7) == 2 and jobs(num_workers=1) == 5  # 16 GiB
    assert jobs(actor_pool="serial") == jobs(root_env="Crafter-v1") == 5
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert jobs(root_env="Crafter-v1") == 2 and jobs(num_workers=1) == 1
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert jobs(num_workers=1) == 1


@pytest.mark.parametrize("jobs, most", [((), 1), (("--jobs=4",), 2)])
def test_runs_are_spread_over_the_gpus(stand_in, tmp_path, capsys, jobs, most):
    words = ["--case=bad: --seed 13", *(f"--case={name}: --seed {i}" for i, name in enumerate("abcd", 1))]
    assert run(tmp_path, *words, "--gpus=0,GPU-8f", *jobs) == 1  # the bad one, whose GPU is free again
    seen = {name: (tmp_path / "s" / name / "output.log").read_text().split("GPU ")[1].split()[0] for name in "abcd"}
    assert {*seen.values()} == {"0", "GPU-8f"}
    running = {"0": 0, "GPU-8f": 0}
    for line in capsys.readouterr().out.splitlines():
        words = line.partition("] ")[2].split()
        if "starts" in words:
            gpu = words[words.index("GPU") + 1].rstrip(";")
            running[gpu] += 1
            assert running[gpu] <= most and seen.setdefault(words[0], gpu) == gpu
        elif "is done" in line or "FAILED" in line:
            running[seen[words[0]]] -= 1


@pytest.mark.parametrize(
    "words", [["--gpus=0,0"], ["--gpus=0;1"], ["--gpus=all"], ["--gpus=0,1", "--submit=--time 1:00:00"]]
)
def test_gpus_that_can_t_be_assigned_are_refused(tmp_path, capsys, words):
    assert run(tmp_path, "seed=1-2", *words) == 2
    assert "--gpus" in capsys.readouterr().err and not (tmp_path / "s").exists()


def test_submits_each_run(tmp_path, monkeypatch, capsys):
    told = "/bin/cat >> scripts\necho $JAX_PLATFORMS >> platforms"
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\n{told}\necho Submitted\n")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path / "runs", "seed=1-2", "--submit=--time 1:00:00 --gpus_per_node=0") == 0
    scripts = (tmp_path / "scripts").read_text()
    platforms = (tmp_path / "platforms").read_text()
    assert platforms == "\n\n"
    words = ["--case=a: --device cpu", "--case=b: --gamma 0.5", "--submit=--time 1:00:00"]
    assert run(tmp_path / "others", *words) == 0
    assert (tmp_path / "platforms").read_text() == f"{platforms}cpu\n\n"
    for seed in (1, 2):
        assert f"#SBATCH --job-name=s/seed={seed}\n" in scripts
        assert f"--seed={seed} --train_dir={tmp_path / 'runs'} --experiment=s/seed={seed}" in scripts


def stand_in_sweep(tmp_path: pathlib.Path, *words: str) -> Launched:
    rest = [f"--train_dir={tmp_path}", "--experiment=s", "--", *CATCH, "--train_for_env_steps=1000000"]
    return Launched(MODULE, *words, *rest)


def test_an_interrupt_stops_the_runs_that_go_on(tmp_path):
    program = stand_in_sweep(tmp_path, "seed=1-4", "--jobs=2")
    program.wait_for(lambda: all(rows(tmp_path / "s" / f"seed={seed}") for seed in (1, 2)))
    groups = {os.getpgid(process.pid) for process in program.descendants()}
    assert len(groups) == 2 and os.getpgid(program.process.pid) not in groups  # Ctrl-C comes to the sweep alone
    program.process.send_signal(signal.SIGINT)
    output = program.finish(20)
    assert program.process.returncode == 0, output
    assert (
        "SIGINT: 2 runs save and end after the update" in output and "Ctrl-C again ends at once; waiting for " in output
    )
    assert output.count("stopped at") == 2 and "ETA" not in output[output.index("SIGINT: ") - 40 :]
    assert not (tmp_path / "s" / "seed=3").exists() and summary(tmp_path / "s" / "seed=1")["env_steps"] > 0
    assert program.leftovers() == []


@pytest.mark.slow
def test_a_second_interrupt_kills_them(tmp_path):
    program = stand_in_sweep(tmp_path, "seed=14,1", "--jobs=2")
    program.wait_for(lambda: all(rows(tmp_path / "s" / f"seed={seed}") for seed in (14, 1)))
    program.process.send_signal(signal.SIGINT)
    program.wait_for(lambda: "stopped at" in program.output())
    program.process.send_signal(signal.SIGINT)
    output = program.finish(20)
    assert program.process.returncode == 130 and "interrupted twice" in output
    assert program.leftovers() == []


TINY = (
    "--root_env=Catch-v0 --encoder_custom=mlp_encoder --hidden_size=16 --worker_num_splits=1 --num_envs_per_worker=4 "
    "--batch_size=128 --actor_pool=serial --llm_reward_type=none --log_every_sec=0.1"
).split()


@pytest.mark.slow
def test_training_is_stopped_and_counts_as_far_as_it_came(tmp_path):
    words = ["seed=1", "--jobs=1", f"--train_dir={tmp_path}", "--", *TINY]
    program = Launched("launch.sweep", *words, "--train_for_env_steps=100000000")
    program.wait_for(lambda: rows(tmp_path / "sweep" / "seed=1"))
    program.process.send_signal(signal.SIGTERM)
    output = program.finish()
    assert program.process.returncode == 0 and output.count("stopped at") == 1, output
    assert program.leftovers() == []
    again = Launched("launch.sweep", *words, "--train_for_env_steps=128")
    output = again.finish()
    assert again.process.returncode == 0 and "1 of 1 done] finished already: 1" in output and "starts" not in output
    assert [entry["seeds"] for entry in json.loads((tmp_path / "sweep" / "results.json").read_text())] == [[1]]


def test_no_run_outlives_a_killed_sweep(tmp_path):
    program = Launched(
        "launch.sweep", "seed=1", f"--train_dir={tmp_path}", "--", *TINY, "--train_for_env_steps=10000000"
    )
    program.wait_for(lambda: (tmp_path / "sweep" / "seed=1" / "metrics.jsonl").exists())
    program.kill()
    assert program.leftovers(but_files=True) == []


@pytest.mark.slow
def test_a_sweep_stopped_in_the_middle_goes_on(tmp_path):
    words = ["--case=none:", "--case=judge: --llm_reward_type=online_cls --llm_reward_coeff=0.1", "seed=1-2"]
    words = [*words, "--jobs=1", f"--train_dir={tmp_path}", "--", *TINY, "--train_for_env_steps=20480"]
    program = Launched("launch.sweep", *words)
    program.wait_for(lambda: rows(tmp_path / "sweep" / "none_seed=2"))
    program.process.send_signal(signal.SIGINT)
    assert "[1 of 4 done" in program.finish() and program.process.returncode == 0
    again = Launched("launch.sweep", *words)
    output = again.finish()
    assert again.process.returncode == 0 and "[4 of 4 done" in output, output
    assert (
        output.count("starts;") == 3 and "resumed at" in (tmp_path / "sweep" / "none_seed=2" / "output.log").read_text()
    )
    assert again.leftovers() == []
