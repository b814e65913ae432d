"""The README's commands run as they are printed, those of docs/extending.md too; those that need more say so."""

import contextlib
import importlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from oni_jax.annotation.prompts import load_prompt
from oni_jax.envs.base import Language
from oni_jax.settings.annotation import AnnotationConfig
from tests.test_docs import README, ROOT, commands

# Appended to the printed flags, so that it takes seconds.
SHORT = {
    "launch.train": "--train_for_env_steps 256 --batch_size 128 --hidden_size 16 --num_workers 1 "
    "--num_envs_per_worker 4 --max_episode_steps 60",
    "launch.evaluate": "--episodes 4 --num_workers 1",
}
IN_PROCESS = ("launch.inspect_reward", "launch.evaluate", "launch.report", "launch.ls")  # JAX is imported already
NEEDS = ("a GPU", "a server", "a terminal", "minutes")


def files_of(page: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the Python files that a page shows, each under the name that it begins with."""
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        (folder / code.removeprefix('"""').partition(":")[0]).write_text(code)


def run(line: str, folder: pathlib.Path, short: bool = True) -> None:
    """Runs a line in a folder, made `short` or as it is printed; in this process those that are short and may."""
    if line.startswith("make "):
        words = shlex.split(line, comments=True)[1:]
        command = ["make", "--dry-run", "--no-print-directory", *words, "ARGS="]  # not those of `make test`
        line = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    python, *words = shlex.split(line, comments=True)
    assert python == ".venv/bin/python", line
    more = SHORT.get(words[1], "") if short and "--help" not in words else ""
    if short and words[1] in IN_PROCESS:
        with contextlib.chdir(folder):
            assert importlib.import_module(words[1]).main([*words[2:], *more.split()]) == 0, line
        return
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *words, *more.split()]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def test_the_readme_s_commands(tmp_path):
    files_of(README, tmp_path)
    for line in commands(README):
        need = re.search(r"# needs (.*)", line)
        assert not need or need[1] in NEEDS, line
        if not need:
            run(line, tmp_path)
    trained = tmp_path / "train_dir" / "make_train"
    assert (trained / "report.html").is_file() and (trained / "messages.csv").is_file()
    assert list((trained / "recordings").glob("*.gif")) and (trained / "evaluation.json").is_file()
    assert json.loads((tmp_path / "train_dir/gold/summary.json").read_text())["env_steps"] == 256


@pytest.mark.slow
def test_the_examples_of_extending_learn(tmp_path):
    page = ROOT / "docs" / "extending.md"
    files_of(page, tmp_path)
    prompts = re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "lake_prompts").mkdir()
    (tmp_path / "lake_prompts" / "classification_default.json").write_text(prompts[0])
    prompt = load_prompt(AnnotationConfig(), Language(tmp_path / "lake_prompts"))
    assert "goal is 3 steps south" in prompt.user((b"The goal is 3 steps south and 1 steps east.",))
    for line in commands(page):
        if "# needs a server" not in line:  # see tests/test_llm_reward.py
            run(line, tmp_path, short=False)
    for name in ("lake", "line"):
        assert json.loads((tmp_path / f"train_dir/{name}/summary.json").read_text())["mean_return"] > 0.9


@pytest.mark.parametrize(("words", "builds"), [("train", 1), ("train WORLD=babyai", 0), ("setup", 1)])
def test_make_builds_the_engine_where_nethack_is_played(words, builds):
    command = ["make", "--dry-run", "--always-make", *words.split()]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sum("-m oni_jax.envs.nethack.engine" in line for line in lines) == builds
