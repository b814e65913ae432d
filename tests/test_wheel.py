"""The package as users install it: a wheel in a fresh environment, outside this folder (`make test-wheel`).

WHEEL_PYTHON names another Python than the tests' that builds and installs it.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import oni_jax
from oni_jax.runs.shared_file import shipped
from tests.support.processes import ROOT

PYTHON = os.environ.get("WHEEL_PYTHON", sys.executable)
SMALL = "--num_workers=1 --num_envs_per_worker=8 --batch_size=256 --hidden_size=16 --train_for_env_steps=1024"
NETHACK = f"-m launch.train --config=score_retrieval --experiment=nethack {SMALL}"
PROGRAMS = (
    "-m launch.train --root_env=Catch-v0 --encoder_custom=mlp_encoder --llm_reward_type=none --experiment=caught "
    + SMALL,
    NETHACK,
    "-m launch.answers",
    "-m launch.evaluate babyai --episodes=8 --num_workers=1",
    "-m launch.export train_dir/caught",
    "-m launch.import caught.zip --experiment=again",
)


def tracked() -> list[pathlib.Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60).stdout
    return [ROOT / name.decode() for name in listed.split(b"\0") if name]


def data_files() -> set[str]:
    """Files of the packages that are no modules, as a checkout has them."""
    paths = {str(path.relative_to(ROOT)) for path in tracked() if path.suffix != ".py" and path.exists()}
    return {path for path in paths if re.match("(oni_jax|launch)/", path) and not re.match("launch/docker/", path)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    """Built from the tracked files alone."""
    folder = tmp_path_factory.mktemp("built")
    for path in filter(pathlib.Path.exists, tracked()):
        copy = folder / "source" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    command = [PYTHON, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", str(folder / "source")]
    subprocess.run(command, check=True, timeout=500)
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.slow
def test_wheel_holds_the_extension_and_all_data(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {*archive.namelist()}
    assert oni_jax.__version__ in wheel.name
    assert any(re.fullmatch(r"oni_jax/envs/nethack/native/_stepper\..*\.so", name) for name in names)
    assert data_files() - names == set()
    assert {f"oni_jax/runs/policies/{name}.zip" for name in shipped()} <= names and len(shipped()) == 3


@pytest.mark.slow
def test_wheel_trains_where_nothing_else_is(wheel, tmp_path):
    subprocess.run([PYTHON, "-m", "venv", tmp_path / "venv"], check=True, timeout=200)
    python = str(tmp_path / "venv" / "bin" / "python")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
    environment["JAX_PLATFORMS"] = "cpu"
    install = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "requirements.txt"), str(wheel)]
    subprocess.run(install, check=True, env=environment, timeout=900)
    (tmp_path / "work").mkdir()

    def run(*words: str) -> str:
        options = {"cwd": tmp_path / "work", "env": environment, "timeout": 600}
        result = subprocess.run([python, *words], capture_output=True, text=True, **options)
        assert result.returncode == 0, f"{words}\n{result.stdout}{result.stderr}"
        return result.stdout

    assert run("-c", "import oni_jax; print(oni_jax.__file__)").startswith(str(tmp_path / "venv"))
    said = [run(*program.split()) for program in PROGRAMS]
    assert "games are stepped in C" in said[PROGRAMS.index(NETHACK)]
