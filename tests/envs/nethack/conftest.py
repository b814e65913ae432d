"""The engine that was built here, and a folder of caches without it."""

import pytest

from oni_jax.envs.nethack.engine import built
from oni_jax.host import caches


@pytest.fixture
def engine():
    """The path of the engine; to be named before `cache`."""
    return built.find_engine()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder of caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    functions = built.find_engine, caches.cache_folder
    for function in functions:
        function.cache_clear()
    yield tmp_path / "caches"
    for function in functions:
        function.cache_clear()
