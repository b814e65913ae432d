"""The one command keeps the figures of the parts that work, whatever becomes of the others."""

import json
import os
import subprocess
import sys

from tests.support.processes import ROOT

FAKE = """#!/bin/bash
case "$2" in
benchmarks.inference) exit 3 ;;
benchmarks.*)
    while [ "$1" != --json ]; do shift; done
    echo '{"figures": 1}' >"$2" ;;
*) exec REAL "$@" ;;
esac
"""


def test_a_part_that_fails_stops_no_other(tmp_path):
    fake = tmp_path / "python"
    fake.write_text(FAKE.replace("REAL", sys.executable))
    fake.chmod(0o755)
    command = ["benchmarks/gpu_suite.sh", str(tmp_path / "out")]
    settings = {"PYTHON": str(fake), "SMOKE": "1", "STAGE": "kernels"}
    subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, timeout=120)
    report = json.loads((tmp_path / "out" / "kernels.json").read_text())
    assert report["exit_codes"]["inference"] == "3"
    assert "inference" not in report["parts"]
    assert report["exit_codes"]["reward"] == "0" and report["parts"]["reward"] == {"figures": 1}
    assert "== reward" in (tmp_path / "out" / "kernels.log").read_text()
