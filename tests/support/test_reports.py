"""Servers as people reported them, each asked by launch.ask: `tests.support.reports` prints the table."""

import threading

import pytest

from launch import ask
from tests.support import report_server
from tests.support.reports import REPORTS, Report, after_prompt, as_expected, happened, words_of

# Answers, fields, probabilities. What passes by itself comes after them in the table.
READ = REPORTS[: 1 + max(index for index, report in enumerate(REPORTS) if report.case == "unforced")]


def outcome(report: Report, capsys) -> tuple[int, str]:
    server = report_server.make_server(report.case)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        code = ask.main(words_of(report, f"127.0.0.1:{server.server_port}"))
    finally:
        server.shutdown()
        server.server_close()
    printed = capsys.readouterr()
    return code, after_prompt(printed.out + printed.err)


@pytest.mark.parametrize("report", READ, ids=lambda report: " ".join([report.case, *report.flags[:2]]))
def test_reported_server_is_as_a_user_expects(report, capsys):
    code, printed = outcome(report, capsys)
    assert as_expected(report, code, printed), happened(code, printed)


def test_every_case_has_a_row():
    assert {report.case for report in REPORTS} == report_server.CASES.keys()
    good, run_on = REPORTS[:2]
    assert not as_expected(good, 1, "read as: helpful 2 (100%)") and not as_expected(good, 0, "read as: nothing")
    assert not as_expected(run_on, 0, "read as: helpful 2 (100%) not helpful")
