"""Where the C stepper can be tested: where it is built."""

import pytest

from oni_jax.envs.nethack.native.layout import CannotStepError
from oni_jax.envs.nethack.native.stepper import load_stepper


def why_not() -> str:
    """Returns the reason why the games can't be stepped in C; "" where they can."""
    try:
        load_stepper()
    except CannotStepError as reason:
        return str(reason)
    return ""


needs_native = pytest.mark.skipif(bool(why_not()), reason=why_not())
