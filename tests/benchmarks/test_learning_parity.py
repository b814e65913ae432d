"""Parity of learning: each difference changes what it says, and the table's figures are means over seeds."""

import json
import math
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks import changed_training, learning_parity
from benchmarks.harness import environment
from oni_jax.envs.registry import env_spec
from oni_jax.networks import encoders, initializers, policy
from oni_jax.ops.glyph_table import glyph_table
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import Trajectory
from oni_jax.worlds.actors import actor_world


def test_estimates_are_means_over_seeds_with_their_standard_error():
    curves = [[(80_000, 9.0), (100_000, 1.0), (110_000, 3.0)], [(100_000, 4.0)], [(90_000, 7.0)]]
    assert learning_parity.at_mark(curves[0], 100_000) == 2.0
    assert learning_parity.at_mark(curves[2], 100_000) is None  # not reached
    found = learning_parity.estimate(curves, 100_000)
    assert found and (found.mean, found.num_seeds) == (3.0, 2) and found.error == pytest.approx(1.0)
    assert learning_parity.estimate(curves, 200_000) is None
    one = learning_parity.estimate(curves[1:2], 100_000)
    assert one and math.isnan(one.error) and str(one) == "4.00"


def test_the_table_has_the_published_system_first():
    published = json.loads(learning_parity.PUBLISHED_FILE.read_text())["runs"]
    run = {"side": "defaults", "environment": 0, "curves": {name: [(100_000, 2.5)] for name in learning_parity.NAMES}}
    report = {"runs": [run], "environments": [{"commit": "first"}]}
    lines = learning_parity.table(report, published).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| published", "| defaults"]
    assert lines[2].count("±") == 6  # two seeds, both curves, at 100, 200 and 300 K steps; none reached 500 K
    assert lines[3].split(" | ")[1:] == ["1", "2.50", "", "", "", "2.50", "", "", "", "2.5 |"]
    report = {"runs": [run, {**run, "environment": 1}, run], "environments": [{"commit": "first"}, {"commit": "later"}]}
    lines = learning_parity.table(report, published).splitlines()
    assert [line.split(" | ")[:2] for line in lines[3:]] == [["| defaults, first", "2"], ["| defaults, later", "1"]]


@pytest.fixture
def undone(monkeypatch):
    """Puts back what a change replaces."""
    for module, name in ((encoders, "FAN_IN_UNIFORM"), (encoders, "glyph_table"), (actor_world, "make_unpack_fn")):
        monkeypatch.setattr(module, name, getattr(module, name))


@pytest.mark.slow
def test_an_orthogonal_image_encoder(undone):
    changed_training.orthogonal_image_encoder()
    spec = env_spec(EnvConfig())
    built = policy.make_policy(NetworkConfig(hidden_size=16), spec)
    kernel = policy.init_params(built, spec, jax.random.key(0))["params"]["encoder"]["image_stack"]["conv_0"]["kernel"]
    np.testing.assert_allclose(np.dot(kernel.reshape(-1, 32).T, kernel.reshape(-1, 32)), np.eye(32), atol=1e-4)
    assert encoders.FAN_IN_UNIFORM is initializers.ORTHOGONAL


def test_the_published_drawing_cuts_characters_at_wrong_places(undone):
    right = glyph_table()
    changed_training.published_drawing()
    wrong = encoders.glyph_table()
    assert wrong.shape == right.shape and wrong.dtype == right.dtype
    blank = [chr(code) for code in range(33, 127) if not wrong[code].any()]
    assert blank and all(right[ord(character)].any() for character in blank)


def test_a_truncation_that_counts_as_an_end(undone, monkeypatch):
    ends = np.array([[True, False, False]])
    cut = np.array([[False, True, False]])
    fields: dict[str, Any] = {**dict.fromkeys(Trajectory._fields), "terminations": ends, "truncations": cut}
    trajectory = Trajectory(**fields)
    monkeypatch.setattr(actor_world, "make_unpack_fn", lambda: lambda batch, version: trajectory)
    changed_training.truncation_is_an_end()
    changed = actor_world.make_unpack_fn()(None, None)  # type: ignore
    assert changed.terminations.tolist() == [[True, True, False]] and not changed.truncations.any()


@pytest.mark.slow
def test_a_study_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "parity.json"
    words = [sys.executable, "-m", "benchmarks.learning_parity", "--smoke", "--seeds=1", "--seeds_each=1"]
    words += ["--side=defaults", "--side=truncation is an end", f"--json={path}"]
    curves = {"policy_lag": [[1, 2.0]], "return": [], "entropy": []}
    there = {"side": "defaults", "seed": 1, "curves": curves, "environment": 1}
    earlier = {**environment(), "commit": "earlier"}
    report = {"runs": [{**there, "environment": 0}, there], "environments": [earlier, environment()]}
    path.write_text(json.dumps(report))
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    runs = json.loads(path.read_text())["runs"]
    assert [(run["side"], run["environment"]) for run in runs] == [
        ("defaults", 0),
        ("defaults", 1),
        ("truncation is an end", 1),
    ]
    assert runs[2]["curves"]["entropy"] and 0 < runs[2]["first_entropy"] < 3.34
