"""Bad updates in a row end the run, in a line that names what was not finite first."""

import pytest

from oni_jax.learner.bad_updates import BadUpdates
from oni_jax.learner.update import SOURCES
from oni_jax.settings.fields import UserError

GOOD = {"loss/bad_update": 0.0, "loss/not_finite": -1.0}


def bad(source: str) -> dict[str, float]:
    return {"loss/bad_update": 1.0, "loss/not_finite": float(SOURCES.index(source))}


def test_the_limit_is_of_updates_in_a_row(capsys):
    updates = BadUpdates(3)
    for metrics in 2 * [bad("observations"), bad("observations"), GOOD]:
        updates.check(metrics)
    assert capsys.readouterr().out == "warning: an update was skipped: the observations are not finite\n"
    updates.check(bad("intrinsic rewards"))
    updates.check(bad("parameters"))
    with pytest.raises(UserError, match="--max_bad_updates 3: .* not finite first: the intrinsic rewards; .*"):
        updates.check(bad("loss or its gradients"))


@pytest.mark.parametrize("name", ["reward/bad_steps_in_row", "reward/online_motif/bad_steps_in_row"])
def test_the_reward_model_has_the_same_limit(name):
    updates = BadUpdates(3)
    updates.check({**GOOD, name: 2.0})
    with pytest.raises(UserError, match="--max_bad_updates 3: .* of the reward model"):
        updates.check({**GOOD, name: 3.0})
