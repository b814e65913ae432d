"""Runs keep the plugins and prompt files that they were trained with, and are read from any folder by them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from oni_jax.envs import catch
from oni_jax.envs.base import Language
from oni_jax.host.plugins import module_files, root_of
from oni_jax.rewards.registry import REWARD_TYPES
from oni_jax.runs.kept import FOLDER, INDEX, as_trained, keep_files
from oni_jax.runs.plan import Plan
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values
from tests.support.processes import COMPILES_SOON, ROOT

PLUGIN = """
from oni_jax.rewards.base import LookUp
from oni_jax.rewards.combine import pay
from oni_jax.rewards.registry import RewardType, register_reward
from worths.fields import WORTH

class Kept(LookUp):
    def look_up(self, caption):
        return WORTH * bool(caption)

register_reward("kept", RewardType(lambda context: pay(context, Kept())))
"""
TRAIN = (
    "--root_env=Catch-v0 --plugin=kept_plugin --llm_reward_type=kept,online_cls --llm_reward_coeff=0.1,0.1 "
    "--answers=judge --prompt_file=words/mine.json --encoder_custom=mlp_encoder --hidden_size=8 --actor_pool=serial "
    "--num_workers=1 --num_envs_per_worker=4 --batch_size=256 --experiment=run"
).split()
# Run one after another in one process, in a folder without plugin and prompt.
READERS = """
import json, sys
from launch import evaluate, inspect_reward, report
import oni_jax
train_dir = sys.argv[1]
words = [f"--train_dir={train_dir}", "--experiment=run"]
assert evaluate.main([*words, "--episodes=8", "--num_workers=1", f"--json={train_dir}/found.json"]) == 0
assert inspect_reward.main([*words, "--llm_reward_type=online_cls"]) == 0
assert report.main(words) == 0
print("scored", oni_jax.load_run(f"{train_dir}/run").score(["The ball is near."]).tolist())
"""


def write_plugin(folder: pathlib.Path, worth: float) -> None:
    (folder / "worths").mkdir(parents=True, exist_ok=True)
    (folder / "kept_plugin.py").write_text(PLUGIN)
    (folder / "worths" / "fields.py").write_text(f"WORTH = {worth}\n")  # a package without an __init__.py


def python(folder: pathlib.Path, *words: str) -> str:
    environment = {**os.environ, **COMPILES_SOON, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_run_is_read_from_another_folder_when_its_plugin_and_prompt_are_gone(tmp_path):
    there, elsewhere, train_dir = tmp_path / "there", tmp_path / "elsewhere", f"--train_dir={tmp_path}"
    elsewhere.mkdir()
    write_plugin(there, 3.0)
    (there / "words").mkdir()
    prompt = json.loads(
        pathlib.Path(catch.__file__).with_name("catch_prompts").joinpath("classification_default.json").read_text()
    )
    (there / "words" / "mine.json").write_text(json.dumps({**prompt, "system": "Another wording."}))
    first = python(there, "-m", "launch.train", *TRAIN, train_dir, "--train_for_env_steps=512")
    assert "changed since" not in first
    write_plugin(there, 5.0)
    again = python(there, "-m", "launch.train", *TRAIN, train_dir, "--train_for_env_steps=1024")
    assert "changed since this run was last started: worths/fields.py\n" in again
    (there / "kept_plugin.py").rename(elsewhere / "another_name.py")
    (there / "words").rename(elsewhere / "other_words")
    output = python(elsewhere, "-c", READERS, str(tmp_path))
    assert "scored [5.0]" in output and "--plugin kept_plugin: is not what it was; the copy in" in output
    (found,) = json.loads((tmp_path / "found.json").read_text())["evaluations"]
    assert found["not_reported"] == {} and found["measures"]["intrinsic_return/kept"]["mean"] > 0
    assert "rule-based judge" in found["labels_by"]


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A folder with a plugin, which is the current one."""
    write_plugin(tmp_path / "there", 1.0)
    monkeypatch.chdir(tmp_path / "there")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path / "there"
    REWARD_TYPES.pop("kept", None)
    for name in ("kept_plugin", "worths", "worths.fields"):
        sys.modules.pop(name, None)


def config_of(**values) -> Config:
    return with_values(Config(), {"root_env": "Catch-v0", "plugin": "kept_plugin", **values})


def files_of(folder: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_modules_that_a_plugin_imports_are_files_of_it(plugin):
    sys.path.append(str(plugin))
    assert root_of("kept_plugin") == str(plugin)
    assert module_files(["kept_plugin"]) == ["kept_plugin.py", "worths/fields.py"]
    (plugin / "worths" / "__init__.py").write_text("from . import more\n")
    (plugin / "worths" / "more.py").write_text("import numpy, no_such_module, kept_plugin\n")
    found = module_files(["kept_plugin"])
    assert found == ["kept_plugin.py", "worths/__init__.py", "worths/fields.py", "worths/more.py"]


def test_files_of_an_installed_plugin_are_its_package_s_alone(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    (folder / "installed_rewards").mkdir(parents=True)
    (folder / "installed_rewards" / "__init__.py").write_text("import installed_helper\nfrom . import more\n")
    (folder / "installed_rewards" / "more.py").write_text("a damaged file")
    (folder / "installed_helper.py").write_text("")
    monkeypatch.syspath_prepend(folder)
    assert module_files(["installed_rewards"]) == ["installed_rewards/__init__.py", "installed_rewards/more.py"]


def test_prompts_of_a_plugin_s_environment_are_files_of_it(tmp_path):
    config = with_values(Config(), {"root_env": "Corridor-v0", "plugin": "tests.support.corridor_plugin"})
    assert keep_files(Plan(config), str(tmp_path)) == []
    kept = files_of(tmp_path / FOLDER / "plugins")
    assert (
        "tests/support/corridor_plugin.py" in kept
        and "tests/support/corridor_prompts/classification_default.json" in kept
    )
    assert not [path for path in kept if path.startswith("oni_jax")]


def test_environment_without_its_folder_of_prompts_keeps_its_modules(plugin, tmp_path):
    class Bare(Plan):
        language = Language(plugin / "no_such_folder")  # type: ignore[assignment]

    assert keep_files(Bare(config_of()), str(tmp_path)) == []
    assert files_of(tmp_path / FOLDER / "plugins") == ["kept_plugin.py", "worths/fields.py"]


def test_plugin_that_is_what_it_was_is_used_and_another_one_is_not(plugin, tmp_path, capsys):
    keep_files(Plan(config_of()), str(tmp_path))
    sys.modules.pop("kept_plugin", None)
    before = [*sys.path]
    as_trained(str(tmp_path), config_of())
    assert sys.path == before and capsys.readouterr().out == ""
    write_plugin(plugin, 2.0)
    as_trained(str(tmp_path), config_of())
    assert sys.path[0] == str(tmp_path / FOLDER / "plugins") and "is not what it was" in capsys.readouterr().out


def test_copy_that_has_changed_is_not_run(plugin, tmp_path):
    keep_files(Plan(config_of()), str(tmp_path))
    sys.modules.pop("kept_plugin", None)
    (plugin / "kept_plugin.py").unlink()
    (tmp_path / FOLDER / "plugins" / "kept_plugin.py").write_text("1 / 0\n")
    before = [*sys.path]
    as_trained(str(tmp_path), config_of())
    assert sys.path == before


def test_relative_paths_are_those_of_the_folder_in_which_the_run_was_started(tmp_path, monkeypatch):
    (tmp_path / "there" / "model").mkdir(parents=True)
    (tmp_path / "there" / "recorded").write_text("")  # the word is no path
    (tmp_path / "there" / "mine.json").write_text("{}")
    values = {"reward_dir": "model", "word_vectors": "missing.txt", "answers": "recorded", "prompt_file": "mine.json"}
    config = with_values(Config(), values)
    config = with_values(config, {"others": ((config.reward, config.annotation),)})
    monkeypatch.chdir(tmp_path / "there")
    keep_files(Plan(config), str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there" / "mine.json").unlink()
    for found in as_trained(str(tmp_path), config).terms():
        assert found.reward.reward_dir == str(tmp_path / "there" / "model")
        assert (found.reward.word_vectors, found.annotation.answers) == ("missing.txt", "recorded")
        assert pathlib.Path(found.annotation.prompt_file).read_text() == "{}"


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"plugins": {}}', '{"plugins": {"kept_plugin": [1]}}', '{"prompts": 3, "a": 1}']
)
def test_run_without_what_it_kept_has_its_settings_as_they_are(tmp_path, content):
    config = config_of(prompt_file="mine.json", reward_dir="model")
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / INDEX).write_text(content)
    assert as_trained(str(tmp_path), config) == config
    assert Run(str(tmp_path)).folder == str(tmp_path)
