"""A language model of PyPI answers the prompts of a training."""

import json

import pytest

from benchmarks.judges import FORMS, KINDS
from tests.support.processes import Launched

pytestmark = pytest.mark.servers


def test_its_answers_are_compared_with_the_judges(tmp_path):
    figures = tmp_path / "judges.json"
    run = Launched("benchmarks.judges", "--smoke", f"--json={figures}")
    output = run.finish(600.0)
    assert run.process.returncode == 0 and run.leftovers() == [], output
    found = json.loads(figures.read_text())["figures"]["asked"]
    assert [(asked["kind"], asked["form"]) for asked in found] == [(kind, form) for kind in KINDS for form in FORMS]
    for asked in found:
        model, rules = asked["judges"].values()
        assert rules["readable"] == 1.0 and 0.0 <= model["readable_at_first"] <= model["readable"] <= 1.0
        assert model["prompt_tokens"] > 100 and model["written_tokens"] >= 1
        if asked["form"] == "constrained label":
            assert model["readable"] == 1.0 and sum(model["labels"].values()) == model["num_queries"]
