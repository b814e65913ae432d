"""Help by topic, and what shells complete from it."""

import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable

import pytest

from launch import __main__ as listing
from launch import completion, flags, help, inspect_reward, named_configs, train
from launch.program import split_words
from launch.programs import examples, programs
from oni_jax.rewards.registry import REWARD_TYPES
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, settings
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
        ("root_env", ["Crafter-v1", "Catch a ball, to test a change (--encoder_custom mlp_encoder): Catch-v0"]),
        ("encoder_custom", ["generic_encoder: any environment"]),
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
    """In a process without the tests' own plugins."""
    subprocess.run([sys.executable, "-c", EXPLAINED], check=True, timeout=60)


@pytest.mark.parametrize("name", sorted(programs()))
def test_the_example_of_a_program_is_understood(name):
    (example,) = examples(name)
    words = shlex.split(example)
    assert words[:3] == ["python", "-m", f"launch.{name}"]
    if name in PROGRAMS:
        own, training = split_words(words[3:])
        flags.parse(own, PROGRAMS[name])
        flags.parse(training)


def test_the_judge_s_help_survives_a_closed_pipe():
    command = f"{sys.executable} -m launch.judge --help | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.stdout.startswith("python -m launch.judge") and result.stderr == ""


def test_every_flag_at_once(capsys):
    text = said(capsys, "--help", "all")
    assert all(f"--{field.name} (" in text for field, _ in settings(Config())) and "--config (" in text


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
    assert "'trains' is unknown; write python -m launch," in capsys.readouterr().err
    assert listing.main(["completion", "csh"]) == 2
    assert "bash or zsh or fish" in capsys.readouterr().err


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("completion") / "script"
    path.write_text(completion.script("bash"))
    return str(path)


COMPLETES = """. "$1"; shift
for line in "$@"; do
    eval "COMP_WORDS=($line)"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
    _oni_jax "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
    echo "${COMPREPLY[@]}"
done"""


def completed_each(script: str, lines: Iterable[tuple[str, ...]]) -> list[list[str]]:
    """What one bash offers for the last of the words of each line."""
    words = ["bash", "-c", COMPLETES, "bash", script, *map(shlex.join, lines)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert result.stderr == ""
    return [line.split() for line in result.stdout.splitlines()]


def completed(script: str, *words: str) -> list[str]:
    (offered,) = completed_each(script, [words])
    return offered


TRAINERS = ["launch.train", "launch.train_goals", "launch.train_potential", "launch.train_reward"]


def test_bash_completes_programs_flags_and_values(bash_script):
    python = (".venv/bin/python", "-m")
    assert completed(bash_script, *python, "launch.tr") == TRAINERS
    assert completed(bash_script, *python, "launch.train", "--batch") == ["--batch_size"]
    assert completed(bash_script, *python, "launch.inspect_reward", "--batch") == []
    assert completed(bash_script, *python, "launch.train", "--bootstrap", "") == ["value", "published"]
    assert completed(bash_script, *python, "launch.train", "--bootstrap", "=", "p") == ["published"]
    assert completed(bash_script, *python, "launch.train", "--bootstrap", "=") == ["value", "published"]
    assert "score_retrieval" in completed(bash_script, *python, "launch.train", "--config", "score_")
    assert completed(bash_script, "oni-train", "--root_env", "NetHackOracleS")[0] == "NetHackOracleSober-v1"
    assert completed(bash_script, *python, "launch.judge", "--laten") == ["--latency_secs"]
    assert completed(bash_script, *python, "launch.train", "--device", "c") == ["cuda", "cpu"]
    assert completed(bash_script, "python", "-m", "pytest", "") == []
    assert completed(bash_script, *python, "launch.train", "--encoder_custom", "mlp") == ["mlp_encoder"]


@pytest.mark.parametrize("oni", [("oni",), (".venv/bin/oni",), ("python", "-m", "launch")])
def test_bash_completes_the_program_that_runs_the_others(bash_script, oni):
    assert completed(bash_script, *oni, "tr") == ["train", "train_goals", "train_potential", "train_reward"]
    assert completed(bash_script, *oni, "completion", "") == ["bash", "zsh", "fish"]
    assert completed(bash_script, *oni, "train", "--roo") == ["--root_env"]
    assert completed(bash_script, *oni, "train", "--llm_reward_type", "online_") == [
        name for name in REWARD_TYPES if name.startswith("online_")
    ]
    assert completed(bash_script, *oni, "ls", "--roo") == []


def test_nothing_is_offered_twice(bash_script):
    flags_of = dict(zip(programs(), completed_each(bash_script, [("oni", name, "--") for name in programs()])))
    assert all(len(offered) == len({*offered}) > 0 for offered in flags_of.values()), flags_of
    lines = [("oni", "train", flag, "") for flag in flags_of["train"]]
    for line, values in zip(lines, completed_each(bash_script, lines), strict=True):
        assert len(values) == len({*values}), line


def test_a_key_is_answered_soon(bash_script):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(3):
        completed(bash_script, "oni", "train", "--roo")  # with the start of a shell, and of the script
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 3 < 0.3  # however busy all else is


def test_bash_leaves_python_what_it_had(tmp_path, bash_script):
    script = tmp_path / "script"
    own = '_own() { COMPREPLY=("own:$2"); }; complete -F _own python'
    script.write_text(f"{own}; . {bash_script}; . {bash_script}; cd {tmp_path}")
    for words in (("python", "-m", "pyt"), ("python", "file.py", "--x"), ("python", "file.py", "launch", "tr")):
        assert completed(str(script), *words) == [f"own:{words[-1]}"]
    assert completed(str(script), "python", "-m", "launch.tr") == TRAINERS


def test_every_program_can_be_completed():
    for name in programs():
        assert len(completion.program_words(name)) > 1, name


def test_every_script_holds_every_program_flag_and_value():
    for shell in completion.SHELLS:
        text = " ".join(completion.script(shell).replace("\\ ", " ").replace(")", "").replace("'", "").split())
        for name in programs():
            known = completion.program_words(name)
            assert f"{name} -* echo {' '.join(flag for flag, *_ in known)}; return" in text, (shell, name)
            for flag, *values in known:
                assert not values or f"{name} {flag} echo {' '.join(values)}; return" in text, (shell, name, flag)


FISH = "source {script}; complete -C '{line}'"
ZSH = """typeset -A _comps; compdef() { : }; compset() { PREFIX=${PREFIX#*=} }; _files() { echo files }
compadd() { shift; print -l -- ${(P)1} | grep -- "^$PREFIX" }
. SCRIPT; words=(${=:-LINE}); CURRENT=$#words; PREFIX=${words[-1]}; _oni_jax"""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(tmp_path, shell):
    if not (program := shutil.which(shell)):
        pytest.skip(f"there is no {shell}")
    script = tmp_path / "script"
    script.write_text(completion.script(shell))

    def offered(line: str) -> list[str]:
        code = FISH.format(script=script, line=line)
        if shell == "zsh":
            code = ZSH.replace("SCRIPT", str(script)).replace("LINE", line)
        result = subprocess.run([program, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        return result.stdout.split()

    assert (
        offered("oni tr")
        == offered("python -m launch tr")
        == ["train", "train_goals", "train_potential", "train_reward"]
    )
    assert offered("oni train --roo") == offered("oni-train --roo") == ["--root_env"]
    assert offered("python -m launch.train --encoder_custom mlp") == ["mlp_encoder"]
    before = "--bootstrap=" if shell == "fish" else ""
    assert offered("oni train --bootstrap=p") == [f"{before}published"]


def test_the_scripts_are_written_without_jax():
    code = (
        "import sys; from launch.__main__ import main; "
        "assert not any(main(['completion', shell]) for shell in ('fish', 'zsh', 'bash')); "
        "assert 'jax' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "compdef" in result.stdout, result.stderr
