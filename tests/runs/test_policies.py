"""The package's policies: small, with a card, and better than random play on the same episodes."""

import os

import pytest

import oni_jax
from oni_jax.runs.shared_file import read_shared, shipped
from tests.support.processes import ROOT

EPISODES = {"babyai": 16, "crafter": 16, "nethack": 8}  # they are the same each time
BETTER_BY = {"babyai": 0.5, "crafter": 2.0, "nethack": 10.0}  # difference of mean returns


def test_policies_are_small_and_have_cards():
    assert [*shipped()] == ["babyai", "crafter", "nethack"]
    assert sum(map(os.path.getsize, shipped().values())) < 4_000_000
    page = (ROOT / "docs/sharing.md").read_text()
    for name, path in shipped().items():
        shared = read_shared(path)
        card = shared.texts["card.md"].decode()
        assert shared.licence == "Apache-2.0" and shared.code() == [] and "| random policy |" in card
        assert f"| `{name}` |" in page and f"--experiment {name}" in page


@pytest.mark.parametrize(
    "name", ["babyai", *(pytest.param(name, marks=pytest.mark.slow) for name in ("crafter", "nethack"))]
)
def test_policies_beat_random_play(name):
    run = oni_jax.load_run(name)
    returns = [
        run.evaluate(episodes=EPISODES[name], num_workers=1, policy=policy).summaries()["return"].mean
        for policy in ("sample", "random")
    ]
    assert returns[0] - returns[1] > BETTER_BY[name]
