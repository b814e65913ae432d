"""Settings that a plugin brings are flags, and are kept with the run. The example is that of docs/extending.md."""

import json
import pathlib
import shlex
import sys
from collections.abc import Iterator
from unittest import mock

import pytest

import oni_jax
from launch import evaluate, flags, help, train
from launch.next_commands import resuming
from launch.sweeps.grid import plan
from oni_jax.config import Config, UserError, section_of
from oni_jax.envs import registry
from oni_jax.host.plugins import load_plugins
from oni_jax.networks.registry import ENCODERS
from oni_jax.rewards.registry import REWARD_TYPES
from oni_jax.runs.run import Run
from oni_jax.settings.config import changed, check_resume, check_values, config_from_json, config_to_json
from oni_jax.settings.fields import settings
from oni_jax.settings.plugins import BROUGHT
from tests.test_docs import ROOT, commands
from tests.test_readme import files_of

PAGE = ROOT / "docs" / "extending.md"
HALL = "--plugin hall --root_env Hall-v0 --llm_reward_type door --llm_reward_coeff 1"
QUICK = (
    "--encoder_custom mlp_encoder --hidden_size 8 --use_rnn false --batch_size 64 --rollout 16 --recurrence 16 "
    "--actor_pool serial --num_envs_per_worker 4 --experiment hall"
)
BROKEN = """import dataclasses
from oni_jax.config import setting
from oni_jax.rewards.registry import RewardType, register_reward
{body}
register_reward("broken", RewardType(lambda context: None, settings=(Broken,)))
"""


@pytest.fixture(autouse=True)
def hall(tmp_path, monkeypatch) -> Iterator[pathlib.Path]:
    """A folder with the example, which is the current one; what it registers lasts for a test."""
    files_of(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    environments, modules = [*registry.ENVIRONMENTS], {*sys.modules}
    brought = {owner: [*kinds] for owner, kinds in BROUGHT.items()}
    with mock.patch.dict(BROUGHT, brought), mock.patch.dict(REWARD_TYPES), mock.patch.dict(ENCODERS):
        yield tmp_path
    registry.ENVIRONMENTS[:] = environments
    for name in {"hall", "broken", "tuned_encoder"} - modules:
        sys.modules.pop(name, None)


def values_of(config: Config) -> dict[str, object]:
    return {field.name: value for field, value in settings(config) if field.name.startswith(("hall_", "door_"))}


def parse(line: str) -> Config:
    return flags.parse(shlex.split(line))


def refusal(capfd, line: str) -> str:
    """The line with which launch.train refuses a command line."""
    assert train.main(shlex.split(line)) == 2
    told = capfd.readouterr().err
    assert told.count("\n") == 1, told
    return told


def test_settings_of_a_plugin_are_flags():
    config = parse(f"{HALL} --hall_length 5 --hall-start=middle --door_pay 0.5")
    assert values_of(config) == {"hall_length": 5, "hall_start": "middle", "door_pay": 0.5}
    module = sys.modules["hall"]
    assert section_of(config.env, module.HallConfig) == module.HallConfig(5, "middle")
    assert section_of(config, module.DoorConfig) == module.DoorConfig(0.5) != section_of(Config(), module.DoorConfig)
    assert values_of(parse("--hall_length 3 --plugin=hall"))["hall_length"] == 3  # before the plugin


def test_command_line_without_the_plugin_has_no_such_flag(capfd):
    load_plugins("hall")
    assert values_of(parse("--root_env Catch-v0")) == {}
    assert "unknown flag --hall_length" in refusal(capfd, "--root_env Catch-v0 --hall_length 3")


@pytest.mark.parametrize(
    "line, told",
    [
        ("--hall_length 1", "--hall_length 1: must be from 2 to 64"),
        ("--hall_length x", "--hall_length x: must be a whole number"),
        ("--hall_start right", "must be one of left, middle"),
        ("--hall_lenght 3", "did you mean --hall_length?"),
        ("--root_env Catch-v0 --hall_length 3", "--hall_length 3: has no meaning in Catch-v0"),
        ("--llm_reward_type count --door_pay 3", "--door_pay 3.0: has no meaning without --llm_reward_type door"),
        ("--plugin no_such_module", "No module named"),
    ],
)
def test_bad_values_are_one_line(capfd, line, told):
    assert told in refusal(capfd, f"{HALL} {line}")


@pytest.mark.parametrize(
    "body, told",
    [
        ("gamma: float = setting(1.0, '')", "--gamma is a flag already"),
        ("llm_reward: float = setting(1.0, '')", "--llm_reward is a flag already"),
        ("resume: str = setting('', '')", "--resume is a flag already"),
        ("mine: float = setting(1.0, '', aliases=('seed',))", "--seed is a flag already"),
        ("mine: float = setting(1.0, '', flag='Mine-2')", "--Mine-2 is no name of a flag"),
        ("mine: tuple = setting((), '')", "mine must be an int, float, bool or str"),
        ("mine: float = setting(1, '')", "mine must be an int, float, bool or str"),
        ("mine: float = 1.0", "mine must be a `setting(...)`"),
        ("mine: str = setting('a', '', choices=('b',))", "the default 'a' of mine is outside"),
        ("mine: float = setting(-1.0, '')", "the default -1.0 of mine is outside"),
    ],
)
def test_settings_that_cannot_be_are_one_line(capfd, hall, body, told):
    text = f"@dataclasses.dataclass(frozen=True)\nclass Broken:\n    {body}"
    (hall / "broken.py").write_text(BROKEN.format(body=text))
    line = refusal(capfd, "--plugin broken --llm_reward_type none")
    assert told in line and "--plugin broken" in line


@pytest.mark.parametrize(
    "body, told",
    [
        ("@dataclasses.dataclass\nclass Broken:\n    mine: int = setting(1, '')", "must be a frozen dataclass"),
        ("class Broken:\n    mine = 1", "must be a frozen dataclass"),
        (
            "@dataclasses.dataclass(frozen=True)\nclass LearnerConfig:\n    mine: int = setting(1, '')\n"
            "Broken = LearnerConfig",
            "settings of the name learner are there already",
        ),
    ],
)
def test_classes_that_are_no_settings_are_one_line(capfd, hall, body, told):
    (hall / "broken.py").write_text(BROKEN.format(body=body))
    assert told in refusal(capfd, "--plugin broken --llm_reward_type none")


def test_names_of_two_plugins_that_clash_are_one_line(capfd, hall):
    text = "@dataclasses.dataclass(frozen=True)\nclass Broken:\n    door_pay: float = setting(1.0, '')"
    (hall / "broken.py").write_text(BROKEN.format(body=text))
    assert "broken.Broken: --door_pay is a flag already" in refusal(capfd, f"{HALL} --plugin broken")


def test_annotations_may_be_texts(hall):
    text = "@dataclasses.dataclass(frozen=True)\nclass Broken:\n    mine: int = setting(1, '')"
    code = "from __future__ import annotations\n" + BROKEN.format(body=text)
    (hall / "broken.py").write_text(code)
    config = parse("--plugin broken --mine 3")
    assert section_of(config, sys.modules["broken"].Broken).mine == 3
    assert config_from_json(config_to_json(config)) == config


def test_help_lists_them(capfd):
    assert train.main(["--plugin", "hall", "--help", "hall_length"]) == 0
    assert "--hall_length (8)  Squares of the hall." in capfd.readouterr().out
    assert train.main(["--help", "--plugin=hall"]) == 0
    assert "--door_pay" in capfd.readouterr().out
    assert "hall" not in help.help_text("train", Config(), "all")


def test_rewards_of_a_run_have_a_value_each():
    config = parse("--plugin hall --llm_reward_type door,count --llm_reward_coeff 1,1 --door_pay 0.5,1 --hall_length 3")
    load_plugins("hall")
    door = sys.modules["hall"].DoorConfig
    assert [section_of(term.reward, door).door_pay for term in config.terms()] == [0.5, 1.0]
    assert config_from_json(config_to_json(config)) == config


def test_settings_are_read_again_where_the_plugin_is_loaded_later(hall):
    config = parse(f"{HALL} --llm_reward_type door,count --hall_length 5 --door_pay 0.5,1.0")
    (hall / "run").mkdir()
    (hall / "run" / "config.json").write_text(config_to_json(config))
    BROUGHT["EnvConfig"].clear(), BROUGHT["RewardConfig"].clear()  # as where it is not loaded
    unread = Run("run").config
    assert values_of(unread) == {"hall_length": 5, "hall_start": "left", "door_pay": 0.5}
    check_values(unread)
    del REWARD_TYPES["door"], sys.modules["hall"]
    registry.ENVIRONMENTS.pop()
    module = (load_plugins("hall"), sys.modules["hall"])[1]
    read = Run("run").plan.config
    assert section_of(read, module.HallConfig).hall_length == 5
    assert [section_of(term.reward, module.DoorConfig).door_pay for term in read.terms()] == [0.5, 1.0]


def test_values_of_another_type_are_refused():
    text = config_to_json(parse(f"{HALL} --hall_length 5"))
    with pytest.raises(UserError, match="hall_length is 'x'"):
        config_from_json(text.replace('"hall_length": 5', '"hall_length": "x"'))


def test_changes_on_resume_are_named_and_fixed_ones_refused(hall):
    (hall / "broken.py").write_text(
        BROKEN.format(
            body="@dataclasses.dataclass(frozen=True)\nclass Broken:\n    mine: int = setting(1, '', fixed=True)\n"
            "    free: int = setting(1, '')"
        )
    )
    old, new, before = (parse(f"--plugin broken {line}") for line in ("--mine 2", "--mine 2 --free 3", ""))
    assert changed(old, new) == ["free: 1 -> 3"]
    check_resume(old, new)
    with pytest.raises(UserError, match="mine: 2 -> 1: can't change.* --mine=2"):
        check_resume(old, before)
    assert changed(Config(), before) == ["plugin: '' -> 'broken'"]  # it had none: the defaults


def test_sweep_has_axes_of_them(hall):
    training = shlex.split(f"{HALL} --door_pay 0.5 --encoder_custom mlp_encoder --train_for_env_steps 64")
    runs = plan(["hall_length=3,5"], [], training, str(hall / "sweep"))
    assert [values_of(run.config)["hall_length"] for run in runs] == [3, 5]
    with pytest.raises(UserError, match="--grid door_pay: --door_pay is also given after --"):
        plan(["door_pay=1,2"], [], training, str(hall / "sweep"))


def test_commands_of_several_processes_name_them(hall):
    processes = "--coordinator_address a:1 --num_processes 2 --process_id 0"
    config = parse(f"{HALL} --hall_length 5 {processes}")
    assert all("--hall_length 5" in line for line in resuming(config, "run"))


def test_an_encoder_finds_its_settings(hall):
    (hall / "tuned_encoder.py").write_text(
        (hall / "lake_encoder.py").read_text().replace('"lake_encoder"', '"tuned_encoder"')
        + "\nimport dataclasses\nfrom oni_jax.config import section_of, setting\n"
        "@dataclasses.dataclass(frozen=True)\nclass TunedConfig:\n    tuned_name: str = setting('observation', '')\n"
        "register_encoder('tuned', EncoderType(lambda network: (section_of(network, TunedConfig).tuned_name,), make,"
        " settings=(TunedConfig,)))\n"
    )
    config = parse("--plugin tuned_encoder --encoder_custom tuned --tuned_name place")
    assert [*ENCODERS["tuned"].observations(config.network)] == ["place"]
    assert [*ENCODERS["tuned"].observations(Config().network)] == ["observation"]


def test_run_is_trained_resumed_and_evaluated_with_them(hall, capfd):
    words = shlex.split(f"{HALL} --hall_length 4 --door_pay 0.5 {QUICK} --train_for_env_steps 128")
    assert train.main(words) == 0
    folder = hall / "train_dir" / "hall"
    kept = json.loads((folder / "config.json").read_text())
    assert (kept["hall"], kept["door"]) == ({"hall_length": 4, "hall_start": "left"}, {"door_pay": 0.5})
    assert train.main(["--resume", str(folder), "--door_pay", "0.25", "--train_for_env_steps", "192"]) == 0
    assert "settings changed since this run was last started: door_pay: 0.5 -> 0.25;" in capfd.readouterr().out
    assert json.loads((folder / "config.json").read_text())["door"] == {"door_pay": 0.25}
    run = oni_jax.load_run(str(folder))
    assert run.score([b"1 squares to the door.", b"2 squares to the door."]).tolist() == [0.25, 0.0]
    lengths = {}
    for length in ("", "--hall_length 8", "--hall_length 2"):
        line = f"--experiment hall --episodes 8 --num_workers 1 --policy random --json {hall / 'a.json'} {length}"
        assert evaluate.main(line.split()) == 0
        (found,) = json.loads((hall / "a.json").read_text())["evaluations"]
        lengths[length] = found["measures"]["length"]["mean"]
    assert lengths["--hall_length 2"] < lengths[""] < lengths["--hall_length 8"]


def test_python_takes_them(hall):
    values = {"plugin": "hall", "root_env": "Hall-v0", "llm_reward_type": "none", "hall_length": 3}
    env = oni_jax.make_vec("Hall-v0", 2, plugin="hall", hall_length=3)
    observations, _ = env.reset(seed=1)
    assert observations["observation"].ravel().tolist() == [3.0, 3.0]
    with pytest.raises(UserError, match="hall_length is 'x': must be of type int"):
        oni_jax.train(**{**values, "hall_length": "x"})
    with pytest.raises(UserError, match="hall_lenght: there is no such setting; did you mean hall_length?"):
        oni_jax.train(**values, hall_lenght=4)


@pytest.mark.slow
def test_example_of_extending_runs(hall):
    from tests.test_readme import run

    for line in commands(PAGE):
        if "hall" in line:
            run(line, hall, short=False)
