"""Published parameters by name; their values are checked by the golden data."""

import numpy as np
import pytest

from oni_jax.config import UserError
from oni_jax.networks.published import import_params
from tests.golden.networks import weights_of
from tests.golden.test_check import FILES


def test_unknown_and_missing_arrays_are_refused():
    weights = weights_of(FILES["torchbeast_message_small"])
    import_params(weights)
    with pytest.raises(UserError, match="extra.weight"):
        import_params(weights | {"extra.weight": np.zeros(3)})
    del weights["encoder.fc.0.weight"]
    with pytest.raises(UserError, match="encoder.fc.0.weight"):
        import_params(weights)
