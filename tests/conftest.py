"""All tests compile into one folder, so that a program that several of them run is compiled once."""

import gc
import os
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests.support.launched import kill_the_rest

_compiled = tempfile.TemporaryDirectory(prefix="oni_jax_tests_")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", _compiled.name)
os.environ["ONI_JAX_CACHE"] = os.environ["JAX_COMPILATION_CACHE_DIR"]  # for stocks of maps
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

# Tests interrupt programs, which inherit it when SIGINT is ignored: so a script starts what it runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an input takes to draw says something of the machine, nothing of the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Fuzzing: pytest --hypothesis-profile long tests/annotation/test_fuzzing.py (tests must not set max_examples).
settings.register_profile("long", settings.get_profile("any machine"), max_examples=20_000)
settings.load_profile("any machine")


def pytest_collection_finish() -> None:
    """Spares the garbage collector the modules and the tests, which stay: it would walk through them each time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_is_left():
    flags = os.environ.get("XLA_FLAGS", "")
    yield
    kill_the_rest()
    os.environ["XLA_FLAGS"] = flags  # programs set it for their process
