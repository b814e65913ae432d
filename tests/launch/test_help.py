"""Help by topic."""

import shlex
import subprocess
import sys

import pytest

from launch import __main__ as listing
from launch import evaluate, flags, help, inspect_reward, named_configs, plot, report, train
from launch.program import split_words
from launch.programs import examples, programs
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, settings
from tests.support.processes import ROOT
from tests.test_docs import PROGRAMS


def said(capsys, *words: str) -> str:
    assert train.main(list(words)) == 0
    return capsys.readouterr().out


def test_the_overview_names_every_flag_and_topic_and_fits_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = said(capsys, "--help")
    assert set(text.split()) >= {f"--{field.name}" for field, _ in settings(Config())}
    assert "Trains an agent" in text and "\nreward: The intrinsic reward." in text
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize("words", [("--help", "reward"), ("--help=reward",), ("--seed", "3", "-h", "reward")])
def test_a_topic(capsys, words):
    text = said(capsys, *words)
    assert "--llm_reward_coeff (0.0)" in text and "--batch_size" not in text


@pytest.mark.parametrize("flag", ["llm_reward", "--llm-reward", "llm_reward_coeff"])
def test_a_flag_by_any_of_its_names(capsys, flag):
    assert " ".join(said(capsys, f"--help={flag}").split()) == (
        "--llm_reward_coeff (0.0) Weight of the intrinsic reward; above 0 for every type but none. Also --llm_reward."
    )


@pytest.mark.parametrize(
    "flag, told",
    [
        ("config", "--config ('')  Named settings (--help configs), or a run's config.json; other flags override it."),
        ("--device", "--device (gpu)  <gpu|cuda|cpu>: With cpu no accelerators; else JAX's default."),
    ],
)
def test_a_flag_that_is_no_setting(capsys, flag, told):
    assert said(capsys, f"--help={flag}").split() == told.split()
    assert told.split()[0] in said(capsys, "--help").split()


@pytest.mark.parametrize(
    "flag, told",
    [
        ("llm_reward_type", ["online_cls: an LLM says", "bk-goal: shaped"]),
        ("root_env", ["Crafter-v1", "Catch a ball, to test a change: Catch-v0"]),
        ("encoder_custom", ["auto: what fits the environment", "generic_encoder: any environment"]),
    ],
)
def test_a_flag_s_values_are_explained(capsys, flag, told):
    text = " ".join(said(capsys, "--help", flag).split())
    assert all(words in text for words in told)


EXPLAINED = """from oni_jax.envs.registry import ENVIRONMENTS
from oni_jax.networks.registry import ENCODERS
from oni_jax.rewards.registry import REWARD_TYPES
assert all(entry.about for entry in (*REWARD_TYPES.values(), *ENCODERS.values(), *ENVIRONMENTS))"""


def test_all_that_is_registered_is_explained():
    """In a process without the tests' plugins."""
    subprocess.run([sys.executable, "-c", EXPLAINED], check=True, timeout=60)


@pytest.mark.parametrize("name", sorted(programs()))
def test_the_example_of_a_program_is_understood(name):
    assert examples(name)
    for words in map(shlex.split, examples(name)):
        assert words[:3] == ["python", "-m", f"launch.{name}"]
        if name in PROGRAMS:
            given, training = split_words(words[3:])
            flags.parse(given, PROGRAMS[name])
            flags.parse(training)


def test_the_judge_s_help_survives_a_closed_pipe():
    command = f"{sys.executable} -m launch.judge --help | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.stdout.startswith("python -m launch.judge") and result.stderr == ""


def test_every_flag_at_once(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = said(capsys, "--help", "all")
    assert all(f"--{field.name} (" in text for field, _ in settings(Config())) and "--config (" in text
    assert "The intrinsic reward." in text and "--extrinsic_reward." in text
    assert max(map(len, text.splitlines())) <= 120


def test_an_unknown_topic_is_one_line(capsys):
    assert train.main(["--help", "batchsize"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "did you mean --help batch_size?" in told and "annotation" in told


def test_a_small_program_needs_no_overview(capsys):
    assert inspect_reward.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "--num_messages (20)" in text and "--config" not in text


def test_the_named_configs(capsys):
    text = said(capsys, "--help", "configs")
    assert all(name in text for name in named_configs.names())
    with pytest.raises(UserError):
        help.help_text("inspect_reward", inspect_reward.InspectionConfig(), "configs")


@pytest.mark.parametrize("name", ["train", "launch.train"])
def test_a_program_is_run_by_its_name(capsys, name):
    assert listing.main([name, "--help", "seed"]) == 0
    assert capsys.readouterr().out == said(capsys, "--help", "seed")
    result = subprocess.run([sys.executable, "-m", "launch", name, "--seed", "x"], capture_output=True, text=True)
    assert result.returncode == 2 and "--seed" in result.stderr and result.stderr.count("\n") == 1


def test_words_for_programs_that_are_not_there(capsys):
    assert listing.main([]) == 0
    assert "launch.train " in capsys.readouterr().out
    assert listing.main(["trains", "--seed", "1"]) == 2
    told = capsys.readouterr().err
    assert "'trains' is unknown; did you mean train? Write python -m launch," in told and told.count("\n") == 1


@pytest.mark.parametrize("words", [["-m", "launch.trian"], ["-um", "launch.trian", "--seed", "1"]])
def test_module_that_is_no_program_is_one_line(words):
    result = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert "'launch.trian' is unknown; did you mean train?" in result.stderr


def test_usage_errors_of_benchmarks_are_one_line():
    for words in (["benchmarks.startup", "--nope", "1"], ["benchmarks.studies", "run", "catch_jugde"]):
        result = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert result.returncode == 2 and result.stderr.count("\n") == 1 and "error: " in result.stderr
    assert "did you mean catch_judge?" in result.stderr


def test_run_that_is_not_there_has_a_suggestion(tmp_path, capsys):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "config.json").write_text("{}")
    assert evaluate.main([f"--train_dir={tmp_path}", "--experiment=frist"]) == 2
    assert f"did you mean {tmp_path}/first? Name a training run" in capsys.readouterr().err
    assert train.main([f"--resume={tmp_path}/frist"]) == 2
    assert f"did you mean {tmp_path}/first?" in capsys.readouterr().err


@pytest.mark.parametrize("program", [plot, report])
def test_folder_without_runs_is_named(tmp_path, monkeypatch, capsys, program):
    monkeypatch.chdir(tmp_path)
    assert program.main(["mine"]) == 2
    error = capsys.readouterr().err
    assert f"there is no folder {tmp_path}/train_dir: start where the run was trained" in error
    assert error.count("\n") == 1
