"""The runs in which things break: that they see what they are there to see, and that a small one loses nothing."""

import json
import subprocess
import sys

import pytest

from benchmarks.harness import ROOT_ENV
from benchmarks.soak_cases import BABYAI, CASES, CRAFTER, losses
from oni_jax.annotation.label_store import LabelStore
from oni_jax.rewards.registry import REWARD_TYPES
from tests.support.faults import LabelAudit, Sample, Server, compare, stored_labels, windows
from tests.support.labelled import labelled

OURS = [name for name, kind in REWARD_TYPES.items() if kind.make.__module__.startswith("oni_jax.")]
KILL, KICK = (b"You kill the newt!",), (b"Ouch! That hurts.",)


class FakeServer(Server):
    def __init__(self, said):
        self._said = said

    def said(self):
        return iter(self._said)


def test_an_audit_sees_labels_that_are_lost_changed_or_wrong(tmp_path):
    path = tmp_path / "labels.sqlite"
    store = LabelStore(str(path))
    store.put_many("model", "digest", [(labelled(KILL, 1, 1.0), ""), (labelled(KICK, 0, 0.0), "")])
    audit = LabelAudit(path)
    audit.look()
    said = [(KILL, 1), (KICK, 0)]
    assert audit.result(FakeServer(said)) == {"committed": 2, "lost": 0, "changed": 0, "wrong": 0}
    assert audit.result(FakeServer([(KILL, 0)]))["wrong"] == 2  # one contradicted, one never said
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"labels.sqlite{end}").unlink(missing_ok=True)
    LabelStore(str(path)).put_many("model", "digest", [(labelled(KILL, 0, 0.0), "")])
    assert stored_labels(path) == {KILL: 0}
    audit.look()  # the first look counts
    assert audit.result(FakeServer(said)) == {"committed": 1, "lost": 1, "changed": 1, "wrong": 1}


def test_answer_that_a_fault_hid_was_not_said(tmp_path):
    server = Server(tmp_path)
    faults = (None, "unreadable", "shuffled_choices", "http_500")
    lines = [json.dumps({"message": f"{fault}", "label": 0, "fault": fault}) for fault in faults]
    (tmp_path / "judge.jsonl").write_text("\n".join(lines) + '\n{"mess')
    assert list(server.said()) == [((b"None",), 0), ((b"shuffled_choices",), 0)]


def test_growth_is_between_the_two_ends_after_settling():
    samples = [Sample(secs, 50 if secs < 10 else 100 + (secs >= 100), 7, 3, 4, 5, 6) for secs in range(110)]
    assert compare(samples, settle_secs=10)["memory"] == {"after_settling": 100, "at_the_end": 101, "ratio": 1.01}


def test_windows_of_an_outage():
    rows = [{"secs": float(secs), "env_steps": 10 * secs} for secs in range(31)]
    assert windows(rows, 5, 26, 10) == [10.0, 10.0]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["soak", "kills", "outage"])
def test_a_small_run_loses_nothing(part, tmp_path):
    path = tmp_path / "figures.json"
    subprocess.run([sys.executable, "-m", f"benchmarks.{part}", "--smoke", f"--json={path}"], check=True)
    figures = json.loads(path.read_text())["figures"]
    assert figures["labels"]["committed"] > 0
    assert (figures["labels"]["lost"], figures["labels"]["changed"], figures["labels"]["wrong"]) == (0, 0, 0)
    assert figures["left_over"] == 0
    assert figures.get("corrupt", 0) == 0 and figures.get("exit_code", 0) == 0


def test_soak_has_each_reward_type_and_each_kind_of_world():
    assert {case.reward_type for case in CASES.values()} == {*OURS}
    assert {case.root_env for case in CASES.values()} == {ROOT_ENV, BABYAI, CRAFTER}
    assert any("--answers=recorded" in case.flags for case in CASES.values())


def test_losses_of_a_case_are_named():
    figures = {"exit_code": 0, "left_over": 0, "unsaved_steps": 0, "labels": {"lost": 2, "changed": 0, "wrong": 0}}
    assert losses(figures) == ["labels lost 2"] and losses({**figures, "labels": {}, "exit_code": 1}) == ["exit_code 1"]
