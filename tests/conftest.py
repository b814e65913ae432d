"""All tests compile into one folder, so that a program that several of them run is compiled once."""

import gc
import os
import pathlib
import signal
import tempfile

import jax
import pytest
from hypothesis import HealthCheck, settings

from oni_jax.host.runtime import return_memory
from tests.support.launched import kill_the_rest
from tests.support.maps import write_repeated_stock

_compiled = tempfile.TemporaryDirectory(prefix="oni_jax_tests_")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", _compiled.name)
os.environ["ONI_JAX_CACHE"] = os.environ["JAX_COMPILATION_CACHE_DIR"]  # stocks of maps, see tests/support/maps.py
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

# Tests interrupt programs, which inherit it when SIGINT is ignored: so a script starts what it runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The time to draw an input says something of the machine, nothing of the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Fuzzing: pytest --hypothesis-profile long tests/annotation/test_fuzzing.py (tests must not set max_examples).
settings.register_profile("long", settings.get_profile("any machine"), max_examples=20_000)
settings.load_profile("any machine")


MAX_RESIDENT_BYTES = 3 << 29  # limit for a process between two modules; a module adds half a GB at most


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # processes that it starts find it
        write_repeated_stock()


def pytest_collection_finish() -> None:
    """Spares the garbage collector the modules and the tests, which stay: it would walk through them each time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_is_left():
    flags = os.environ.get("XLA_FLAGS", "")
    yield
    kill_the_rest()
    os.environ["XLA_FLAGS"] = flags  # programs set it for their process


@pytest.fixture(autouse=True, scope="module")
def _compiled_programs_are_dropped():
    """Drops compiled programs, which JAX keeps, between modules; it costs seconds, so not until there are many."""
    yield
    if _resident_bytes() > MAX_RESIDENT_BYTES:
        jax.clear_caches()
        gc.collect()
        return_memory()


def _resident_bytes() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
