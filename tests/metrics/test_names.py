"""Every name that a run writes is in the table, and every name of the table's that a run can write is written."""

import json
import re
import time

import jax
import pytest

from oni_jax.annotation.service import _INITIAL_STATS
from oni_jax.envs.registry import env_spec
from oni_jax.host.runtime import StopRequest
from oni_jax.metrics.names import METRICS
from oni_jax.settings.json_text import RUN_ID, SUM
from oni_jax.show.live.view import PlainView
from oni_jax.training import build, loop
from oni_jax.training.gauges import device_memory
from oni_jax.worlds.actors import actor_world
from tests.metrics.rows import ROW
from tests.support.documented import markdown_list, undocumented
from tests.test_learning import small_config

GIVEN_BY_ACCELERATORS = {name for name in METRICS if name.startswith("device_memory_")}
OF_LABELS = (
    "labels_",
    "steps_unanswered_fraction",
    "answers",
    "requests_failed",
    "server_state",
    "llm_",
    "annotation/",
    "reward/",
    "reward_gradient",
    "episode/goals_",
    "episode/score",
)


def documented(*prefixes: str) -> set[str]:
    return {name for name in METRICS if name.startswith(prefixes) and "<" not in name}


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> list[dict]:
    """Rows that a run without labels writes to its file, and those that it hands to its view."""
    folder = tmp_path_factory.mktemp("run")
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        starts, ready, build_sinks = [], [], loop.build_sinks

        def update(self, row):
            seen.append(dict(row))
            starts.append(time.monotonic() - row["secs"])

        def build_slowly(*of):
            sinks = build_sinks(*of)
            time.sleep(0.3)
            ready.append(time.monotonic())
            return sinks

        patch.setattr(PlainView, "update", update)
        patch.setattr(loop, "build_sinks", build_slowly)
        config = small_config(folder, "Catch-v0", 2048)
        build.run(config, StopRequest())
    assert min(starts) >= ready[0]  # W&B's start is no time of training
    written = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(written) == len(seen) > 0
    return [*written, *seen]


def test_a_run_writes_what_is_documented(rows):
    assert undocumented({name for row in rows for name in row} - {"step", SUM, RUN_ID}) == []


def test_a_run_writes_all_that_is_documented(rows):
    missing = documented("") - set(rows[-1]) - GIVEN_BY_ACCELERATORS - {"captions_read_fraction"}
    assert {name for name in missing if not name.startswith(OF_LABELS)} == {"intrinsic_rewards"}  # all are 0
    found = rows[-1]["extrinsic_rewards"]
    assert (found.edges[0], found.edges[-1]) == (-1, 1) and found.counts[1:-1].sum() == 0  # won or lost


def test_rates_and_queues_are_those_of_the_run(rows, tmp_path):
    config = small_config(tmp_path, "Catch-v0", 0)
    num_slots = actor_world.build_ring(config.actors, config.learner, env_spec(config.env)).shape.num_slots
    for row in rows:
        assert 0 < row["updates_per_sec"] <= row["inference_calls_per_sec"] < row["acted_steps_per_sec"]
        assert row["env_steps_per_sec"] == pytest.approx(512 * row["updates_per_sec"])
        assert row["ring_slots_full"] + row["ring_slots_free"] <= num_slots and row["groups_paused"] <= 4


def test_names_of_the_annotation_service():
    written = {f"annotation/{name}" for name in (*_INITIAL_STATS, "problem")}
    renamed = {"annotation/labels_held", "annotation/labels_asked", "annotation/answers_unreadable"}
    renamed |= {
        "annotation/labels_unanswered",
        "annotation/requests_failed",
        "annotation/backlog",
    }  # these have rows' names
    assert written - renamed == documented("annotation/")


def test_an_accelerator_s_memory():
    stats = {"bytes_in_use": 1, "peak_bytes_in_use": 2, "bytes_limit": 3, "num_allocs": 4}
    row = device_memory(stats)
    assert set(row) == GIVEN_BY_ACCELERATORS and list(row.values()) == [1, 2, 3]
    assert device_memory(None) == {} and device_memory({"bytes_limit": 3}) == {"device_memory_limit_bytes": 3}
    device_memory(jax.local_devices()[0].memory_stats())


def test_metric_missing_from_the_table_is_found():
    names = ["env_steps", "episode/kills", "annotation/failures/http_503"]
    assert undocumented(names) == []
    wrong = ["env_step", "env_steps2", "loss/new", "episode/", "annotation/failures/a/b"]
    assert undocumented([*names, *wrong]) == sorted(wrong)


def test_the_views_row_is_one_that_a_run_writes():
    assert undocumented(ROW) == []


def test_list_of_metrics_names_all():
    lines = markdown_list()
    assert all(re.fullmatch(r"- `.+`( \([^)]+\))?: .*[^.]", line) for line in lines), lines
    shown = {name for line in lines for name in re.findall(r"`([^`]+)`", line.partition(": ")[0])}
    missing = {name for name in METRICS if not {name, name.rpartition("/")[2]} & shown}
    assert missing == {f"reward/goals_reliability_{i}" for i in range(1, 9)}  # _0 and _9 are the ends
