"""The recipe in launch/docker, as far as it can be told without Docker."""

import re

import pytest

from launch import flags
from tests.launch.stand_ins import LAUNCH

yaml = pytest.importorskip("yaml")
DOCKER = LAUNCH / "docker"


def test_training_understands_its_flags():
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    command = [re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in services["training"]["command"]]
    config = flags.parse(command)
    flags.check(config)
    assert config.annotation.llm_server_addr == "server:9001"
    assert "9001" in services["server"]["command"]
    assert (LAUNCH.parent / services["training"]["build"]["dockerfile"]).exists()


def test_files_of_the_image_exist():
    kept = re.findall(r"^!(.*)", (DOCKER / "Dockerfile.dockerignore").read_text(), re.M)
    assert kept and all((LAUNCH.parent / name).exists() for name in kept)
