"""Where the C stepper can be tested: where it is built."""

import pytest

from oni_jax.envs.nethack.native.stepper import why_not

needs_native = pytest.mark.skipif(bool(why_not()), reason=why_not())
