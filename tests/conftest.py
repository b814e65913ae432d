"""All tests compile into one folder, so that a program that several of them run is compiled once."""

import os
import tempfile

_compiled = tempfile.TemporaryDirectory(prefix="oni_jax_tests_")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", _compiled.name)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
