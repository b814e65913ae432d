"""Marks for tests of the C stepper, and of the engine that `make engine` builds: they need both built."""

import pytest

from oni_jax.envs.nethack.native.stepper import why_not
from oni_jax.envs.nethack.native.vector_env import why_not_built

needs_native = pytest.mark.skipif(bool(why_not()), reason=why_not())
needs_engine = pytest.mark.skipif(bool(why_not_built()), reason=why_not_built())
ENGINES = (pytest.param("wheel", marks=needs_native), pytest.param("built", marks=needs_engine))
