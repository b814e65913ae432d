"""Values that are no values: vectors of zeros, and numbers that float32 can't hold."""

import numpy as np
import pytest

from oni_jax.ops.bounds import MAX_REWARD, bounded
from oni_jax.rewards.embeddings.embeddings import ServerEmbedder
from oni_jax.settings.fields import UserError
from tests.rewards.embeddings.test_embeddings import server, vectors_of
from tests.support.trials import trial


def vectors(numbers: list[float]):
    return lambda body, number: (200, {"data": [{"index": i, "embedding": numbers} for i in range(len(body["input"]))]})


@trial("embeddings of zeros")
def test_server_that_answers_zeros_gives_no_embeddings():
    with server(vectors([0.0, 0.0])) as (config, _), pytest.raises(UserError, match="bad_vectors: .*zeros"):
        ServerEmbedder(config, "")(["a"])


@trial("embeddings of zeros")
def test_server_that_begins_to_answer_zeros_is_away():
    later = vectors([0.0, 0.0, 0.0])
    with server(lambda body, number: (vectors_of if number == 1 else later)(body, number)) as (config, _):
        embed = ServerEmbedder(config, "")
        assert np.linalg.norm(embed(["bb"])) == pytest.approx(1)
        for texts in (["a"], ["bb", "c"]):
            with pytest.raises(UserError, match="gives no embeddings"):
                embed(texts)


@pytest.mark.parametrize("size", [1e300, 1e-300, -1e300])
def test_vectors_of_any_size_have_length_1(size):
    with server(vectors([3 * size, 4 * size])) as (config, _):
        np.testing.assert_allclose(ServerEmbedder(config, "")(["a"]), np.sign(size) * np.array([[0.6, 0.8]]), rtol=1e-6)


@trial("huge reward")
@pytest.mark.parametrize("value", [1e300, -1e300, 1e38, 10**400, np.float64(1e200)])
def test_finite_number_stays_finite(value):
    (found,) = bounded([value])
    assert found == np.float32(MAX_REWARD if value > 0 else -MAX_REWARD)
    assert np.isfinite(np.square(found) * np.float32(1e6))


def test_other_numbers_stay_as_they_are():
    others = [0.1, -3.0, np.nan, np.inf]
    np.testing.assert_array_equal(bounded(others), np.array(others, np.float32))
