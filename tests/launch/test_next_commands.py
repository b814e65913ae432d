"""Commands that programs print at their ends: they are accepted as they stand, and continue with the result."""

import importlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys

import pytest

import oni_jax
from launch import annotate_pairs, ask, collect_pairs, collect_segments, flags, report, submit, sweep, train
from launch.next_commands import STARTED_BY, command, resuming
from launch.sweeps import children
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.runs.plan import with_chosen_env
from oni_jax.settings.config import Config, config_to_json
from oni_jax.settings.worlds import is_primary_process
from oni_jax.show.report.config import ReportConfig
from tests.launch.stand_in_sweep import use_stand_in
from tests.support.faults import free_port
from tests.support.processes import ROOT, Launched, rows
from tests.test_docs import PROGRAMS

CATCH = (
    "--root_env=Catch-v0 --encoder_custom=mlp_encoder --hidden_size=16 --worker_num_splits=1 --num_envs_per_worker=4 "
    "--batch_size=128 --actor_pool=serial --llm_reward_type=none --log_every_sec=0.1"
).split()
BABYAI = "BabyAI-Text-GoToLocal-RedBall-S20"


def printed(output: str) -> dict[str, str]:
    """Program -> the command printed for it, under the last `next:`."""
    lines = output.rpartition("next:\n")[2].splitlines()
    found = [line.strip() for line in lines if line.startswith("  ")]
    return {shlex.split(line)[2].removeprefix("launch."): line for line in found}


def words_of(line: str) -> list[str]:
    python, m, module, *words = shlex.split(line)
    assert os.path.samefile(os.path.join(os.getcwd(), python), sys.executable) and m == "-m" and module[:7] == "launch."
    return words


def execute(line: str, more: str = "") -> int:
    """Runs a command in this process, with flags added that make it short."""
    return importlib.import_module(shlex.split(line)[2]).main([*words_of(line), *more.split()])


def accepted(line: str) -> Config:
    """The settings of a command of launch.train, checked."""
    config = flags.parse(words_of(line))
    flags.check(config)
    return config


def in_shell(line: str, more: str = "") -> str:
    done = subprocess.run(
        f"{line} {more}", shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> tuple[pathlib.Path, str]:
    """The folder of a run that was ended by SIGINT, under a name that needs quoting, and its output."""
    train_dir = tmp_path_factory.mktemp("runs")
    program = Launched("launch.train", *CATCH, f"--train_dir={train_dir}", "--experiment=a run's")
    program.wait_for(lambda: len(rows(train_dir / "a run's")) > 1)
    program.process.send_signal(signal.SIGINT)
    output = program.finish(60)
    assert program.process.returncode == 0, output
    return train_dir / "a run's", output


@pytest.mark.slow
def test_training_that_was_interrupted_goes_on_and_is_looked_at(interrupted):
    folder, output = interrupted
    found = printed(output)
    assert list(found) == ["train", "evaluate", "plot", "report"]  # Catch can't be played in the terminal
    steps = max(int(path.name) for path in (folder / "checkpoints").iterdir())
    assert f"{folder}: saved at {steps:,} environment steps" in output

    shown = in_shell(found["evaluate"], "--episodes 4 --num_workers 1")
    assert (folder / "evaluation.json").is_file() and list(printed(shown)) == ["report"]
    assert execute(found["plot"]) == 0 and (folder / "plots" / "return.png").is_file()
    of_report = printed(in_shell(found["report"]))
    assert list(of_report) == ["train"] and accepted(of_report["train"]) == accepted(found["train"])
    (folder / "evaluation.json").unlink()
    assert printed(in_shell(found["report"]))["evaluate"] == found["evaluate"]

    shown = in_shell(found["train"], f"--train_for_env_steps {steps + 128}")
    assert f"resumed at {steps:,} environment steps" in shown and "settings changed" in shown
    further = accepted(printed(shown)["train"])
    assert further.run.train_for_env_steps > steps + 128 and further.network.hidden_size == 16
    # Taken up again it is done, and says how to go further, before anything is started.
    shown = in_shell(found["train"])
    assert shown.startswith(f"{folder}: {steps + 128:,} environment steps are done already")
    assert accepted(printed(shown)["train"]).run == further.run and len(shown.splitlines()) == 7


def test_no_command_is_offered_for_a_run_without_a_checkpoint(tmp_path, monkeypatch, capsys):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a plugin's")

    monkeypatch.setattr(oni_jax, "train", fail)
    with pytest.raises(RuntimeError, match="a plugin's"):
        train.main([*CATCH, f"--train_dir={tmp_path}"])
    assert capsys.readouterr().out == ""


FAILING = """
from oni_jax.rewards.base import Reward
from oni_jax.rewards.registry import RewardType, register_reward

class Failing(Reward):
    num_batches = 0

    def observe(self, captions):
        self.num_batches += 1
        if self.num_batches == 4:
            raise ValueError("the fourth")

register_reward("failing", RewardType(lambda context: Failing()))
"""


@pytest.mark.slow
def test_a_run_that_a_plugin_ended_says_where_it_was_saved(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(FAILING)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    words = "--plugin=failing --llm_reward_type=failing --llm_reward_coeff=1".split()
    program = Launched("launch.train", *CATCH, *words, f"--train_dir={tmp_path}", "--experiment=run")
    output = program.finish(60)
    assert program.process.returncode == 1 and "ValueError: the fourth" in output
    assert "saved at 384 environment steps" in output and "train" in printed(output.partition("Traceback")[0])
    assert rows(tmp_path / "run")[-1]["updates"] == 3


@pytest.mark.slow
def test_primary_process_prints_the_command_of_each(tmp_path):
    def finish(*words: list[str]) -> list[str]:
        programs = [Launched("launch.train", *run_words) for run_words in words]
        outputs = [program.finish(120) for program in programs]
        assert [program.process.returncode for program in programs] == [0, 0], outputs
        return outputs

    where = f"--coordinator_address=127.0.0.1:{free_port()}", "--num_processes=2"
    words = [*CATCH, "--actor_pool=process", "--num_workers=1", "--train_for_env_steps=512", *where, "--goal=a, b"]
    words += [f"--train_dir={tmp_path}", "--experiment=a run's"]
    first, second = finish([*words, "--process_id=0"], [*words, "--process_id=1"])
    assert "saved at 512" in first and "saved at" not in second and "next:" not in second
    lines = [line.strip() for line in first.partition("next:\n")[2].splitlines()]
    assert [line.split()[2] for line in lines[:3]] == ["launch.train", "launch.train", "launch.evaluate"]
    resumed = finish(*map(words_of, lines[:2]))
    assert "resumed at 512 environment steps" in resumed[0] and "saved at 1,024" in resumed[0]


def test_primary_process_under_slurm_prints_how_all_are_started(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    config = flags.parse([*CATCH, "--experiment=x"])
    for index in range(4):
        monkeypatch.setenv("SLURM_PROCID", str(index))
        assert is_primary_process(config.devices) == (index == 0)
    (line,) = resuming(config, "train_dir/x")
    before, _, rest = line.partition(f"{shlex.split(command('train', config))[0]} ")
    assert before == "srun --ntasks=4 " and accepted(f"python {rest}".replace("python", sys.executable)) == config


def test_a_job_that_was_submitted_goes_on_by_submitting_it_again(monkeypatch, capsys):
    training = ["--root_env=Catch-v0", "--encoder_custom=mlp_encoder", "--goal=it's, gold", "--experiment=x"]
    training += ["--llm_reward_type=online_cls", "--llm_reward_coeff=0.1"]
    words = ["--nodes=2", "--server=node", "--sbatch=--partition=gpu --mem=4G", "--", *training]
    assert submit.main(["--dry_run", *words]) == 0
    script = capsys.readouterr().out
    (variable,) = [line for line in script.splitlines() if line.startswith(f"{STARTED_BY}=")]
    shell = f"{variable}\nexport {STARTED_BY}; printenv {STARTED_BY}"
    line = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout
    monkeypatch.setenv(STARTED_BY, line)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    (again,) = resuming(flags.parse(training), "train_dir/x")
    assert submit.main(["--dry_run", *words_of(again)]) == 0
    assert capsys.readouterr().out == script
    (further,) = resuming(flags.parse(training), "train_dir/x", train_for_env_steps=7)
    assert flags.parse(further.partition(" -- ")[2].split()[-1:]).run.train_for_env_steps == 7


def test_printed_commands_lead_from_pairs_to_training(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = "--directory=d --num_pairs=8 --num_envs=2 --num_env_steps=200 --root_env=NetHackScore-v1"
    assert collect_pairs.main(words.split()) == 0
    line = printed(capsys.readouterr().out)["annotate_pairs"]
    assert execute(line, "--n_annotation_chunks 2 --annotator score") == 0
    line = printed(capsys.readouterr().out)["annotate_pairs"]
    assert "--chunk_number 1" in line and execute(line) == 0
    line = printed(capsys.readouterr().out)["train_reward"]
    small = "--encoder_msg_model none --use_blstats --encoder_embedding_dim 8 --encoder_hidden_dim 8"
    assert execute(line, f"--num_epochs 1 --batch_size 8 {small}") == 0
    config = accepted(printed(capsys.readouterr().out)["train"])
    assert os.path.isdir(os.path.join(config.reward.reward_dir, "reward_model"))


def test_the_labels_of_the_judge_are_those_that_a_reward_is_trained_on(tmp_path, capsys):
    from tests.offline.pairs import random_dataset

    random_dataset(tmp_path / "d", num_pairs=4)
    assert annotate_pairs.main(["--directory", str(tmp_path / "d"), "--judge_wrong_fraction=0.5"]) == 0
    program = flags.parse(words_of(printed(capsys.readouterr().out)["train_reward"]), PROGRAMS["train_reward"])
    assert [path.stem for path in (tmp_path / "d" / "preference").glob("*.npy")] == [program.training.annotator]


@pytest.mark.slow
def test_printed_commands_lead_from_episodes_to_training(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = f"--directory=s --policy=random --root_env={BABYAI} --episodes=4 --max_episode_steps=30"
    assert collect_segments.main(words.split()) == 0
    found = printed(capsys.readouterr().out)
    assert list(found) == ["write_potential", "annotate_segments", "write_goals"]

    assert execute(found["write_potential"], "--num_rounds 1 --num_samples 1") == 0
    assert execute(printed(capsys.readouterr().out)["check_potential"], "--num_windows 20") == 0
    config = accepted(printed(capsys.readouterr().out)["train"])
    assert config.reward.reward_dir == "s_potential" and config.env.root_env == BABYAI

    assert execute(found["annotate_segments"], "--num_pairs 32 --segment_length 4") == 0
    line = printed(capsys.readouterr().out)["train_potential"]
    assert execute(line, "--encoder_custom mlp_encoder --hidden_size 8 --width 8 --batch_size 16 --num_epochs 1") == 0
    config = accepted(printed(capsys.readouterr().out)["train"])
    assert (config.reward.reward_dir, config.reward.potential.horizon) == ("s_preferences", 4)

    assert execute(found["write_goals"], "--num_rounds 2") == 0
    assert flags.parse(words_of(printed(capsys.readouterr().out)["train"])).reward.reward_dir == "s_goals"


def test_asked_prompt_is_trained_with(capsys):
    words = ["--config=score_retrieval", "--goal=The player's gold.", "--message=You kill the newt!"]
    assert ask.main(words) == 0
    config = accepted(printed(capsys.readouterr().out)["train"])
    assert config == flags.parse(words[:2])
    assert ask.main(["--llm_reward_type=online_cls", words[2]]) == 0  # a coefficient is missing
    assert "next:" not in capsys.readouterr().out


def test_a_world_without_prompts_offers_none(tmp_path, capsys):
    assert (
        collect_segments.main(f"--directory={tmp_path}/s --policy=random --root_env=Catch-v0 --episodes=2".split()) == 0
    )
    assert "next:" not in capsys.readouterr().out


def test_a_sweep_is_drawn_and_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(children, "CHILD", children.CHILD)
    use_stand_in()
    training = ["--root_env=Catch-v0", "--encoder_custom=mlp_encoder", "--llm_reward_type=none"]
    words = ["seed=1-2", f"--train_dir={tmp_path}", "--experiment=my sweep", "--", *training]
    assert sweep.main([*words, "--train_for_env_steps=1000"]) == 0
    found = printed(capsys.readouterr().out)
    assert execute(found["plot"]) == 0
    assert "seed=1 (seed 1), seed=2 (seed 2)" in capsys.readouterr().out
    assert execute(found["ls"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["seed=1", "finished"],
        ["seed=2", "finished"],
    ]


def test_a_sweep_with_a_run_that_failed_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(children, "CHILD", children.CHILD)
    use_stand_in()
    training = ["--root_env=Catch-v0", "--encoder_custom=mlp_encoder", "--llm_reward_type=none"]
    words = [
        "seed=13,1",
        "--case=a: --goal 'x, y'",
        "--case=b: --gamma 0.5",
        f"--train_dir={tmp_path}",
        "--",
        *training,
    ]
    assert sweep.main([*words, "--train_for_env_steps=1000"]) == 1
    found = printed(capsys.readouterr().out)
    assert list(found) == ["sweep", "plot", "ls"]
    assert execute(found["sweep"]) == 1  # again seeds of 13
    shown = capsys.readouterr().out
    assert "[2 of 4 done] finished already: 2" in shown and printed(shown) == found


def test_a_job_is_listed_when_it_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "sbatch").write_text("#!/bin/sh\n/bin/cat > /dev/null\necho Submitted\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    job = ["--", "--llm_reward_type=none", "--train_dir", f"{tmp_path}"]
    assert submit.main(job) == 0
    assert execute(printed(capsys.readouterr().out)["ls"]) == 0
    assert submit.main(["--dry_run", *job]) == 0
    assert "next:" not in capsys.readouterr().out


@pytest.mark.parametrize("words", ["", "--goal_conditioned false", "--goal_suggester oracle"])
def test_policy_is_evaluated_and_played_with_the_goals_that_it_was_trained_with(tmp_path, capsys, words):
    config = flags.parse([*"--config ellm_llm --experiment run".split(), *words.split(), f"--train_dir={tmp_path}"])
    (tmp_path / "run" / "checkpoints" / "640").mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text(config_to_json(with_chosen_env(config)))
    train._show_next(config)
    of_training = printed(capsys.readouterr().out)
    assert "play" in of_training
    report._show_next(ReportConfig(train_dir=str(tmp_path), experiment="run"))
    lines = [line for line in capsys.readouterr().out.splitlines() if "launch.evaluate" in line]
    for line in (of_training["evaluate"], *lines):
        assert flags.parse(words_of(line), EvaluationConfig()).goal_suggester == ""
    assert len(lines) == 2


@pytest.mark.parametrize("text", ["a b", "it's", "$HOME", "-x", "a=b", "a;b", "--seed=2", '"'])
def test_any_name_comes_back(text):
    line = command("evaluate", EvaluationConfig(), experiment=text, json=text, seed=3, greedy=True)
    program = flags.parse(words_of(line), EvaluationConfig())
    assert (program.experiment, program.json, program.seed) == (text, text, 3)


def test_device_and_defaults(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert command("evaluate", EvaluationConfig()).endswith("-m launch.evaluate --device cpu")
    monkeypatch.delenv("JAX_PLATFORMS")
    line = command("train", Config(), config="score_motif", root_env=Config().env.root_env, reward_dir="r")
    assert flags.parse(words_of(line)).env.root_env == Config().env.root_env  # the file has another
