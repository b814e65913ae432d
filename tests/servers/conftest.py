"""Real servers, each with the tiny model. FastChat's tests are skipped where it can't be installed."""

import subprocess

import pytest

from oni_jax.annotation.label_store import LabelStore
from tests.servers import fastchat, llama_cpp


@pytest.fixture(scope="session")
def fastchat_installed():
    try:
        fastchat.install()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"FastChat can't be installed here: {error}")


@pytest.fixture(params=["llama_cpp", "fastchat"])
def server_class(request):
    if request.param == "llama_cpp":
        return llama_cpp.LlamaServer
    request.getfixturevalue("fastchat_installed")
    return fastchat.FastChat


@pytest.fixture
def server(server_class, tmp_path):
    with server_class(tmp_path) as server:
        yield server


@pytest.fixture
def llama_server(tmp_path):
    with llama_cpp.LlamaServer(tmp_path) as server:
        yield server


@pytest.fixture
def store(tmp_path):
    return LabelStore(str(tmp_path / "labels.sqlite"))
