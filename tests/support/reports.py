"""Servers as people reported them, and what launch.ask makes of each: a table.

python -m tests.support.reports [CASE ...] [--server PATH]

PATH is another server's program with the command line of `tests.support.report_server`: cases that it does not know are
left out. Exit code 1: a case is not as expected.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from tests.support.faults import free_port
from tests.support.processes import ROOT
from tests.support.server_process import ServerProcess

SERVER = ROOT / "tests/support/report_server.py"
MESSAGES = ("You kill the newt!", "You are hungry.")
LABEL = ("--llm_answer", "label")
TIMEOUT_SECS = 100.0


class Report(NamedTuple):
    """A case of the server, and what a user expects of launch.ask."""

    case: str
    expects: str  # expectation, in words
    shows: str  # a pattern found in what it prints
    hides: str = ""  # a pattern that is not
    flags: Sequence[str] = ()
    code: int = 0


HELPFUL, UNHELPFUL = r"read as: helpful 2 \(100%\)", r"read as: not helpful 2 \(100%\)"
NOTHING = "read as: nothing"
REPORTS = (
    Report("good", "both are helpful", HELPFUL),
    Report("run_on", "the first answer counts", HELPFUL, hides="not helpful"),
    Report("run_on_user", "the first answer counts", HELPFUL, flags=LABEL),
    Report("run_on_tokens", "the first answer counts", HELPFUL, hides="not helpful"),
    Report("repeated_prompt", "the first answer counts", HELPFUL, hides="not helpful"),
    Report("magistral", "the label after [THINK]", HELPFUL),
    Report("thinking_tag", "reasoning alone is no label, and a line says so", f"reasoning does not end.*{NOTHING}"),
    Report("minimax", "the label after <mm:think>", HELPFUL),
    Report("sky", "the label after the thought", HELPFUL),
    Report("template_opened", "the label after </think>", HELPFUL),
    Report("harmony", "the final channel's label", UNHELPFUL),
    Report("harmony", "the same where a label alone is asked for", UNHELPFUL, flags=LABEL),
    Report("harmony_bare", "the final channel's label", UNHELPFUL),
    Report("answer_in_reasoning", "no label, and a line that names the field", f"in `reasoning`.*{NOTHING}"),
    Report("no_content", "unreadable, counted", NOTHING),
    Report("think_budget", "a reasoned answer works", HELPFUL),
    Report(
        "think_budget", "a line says that the model reasons first", f"--llm_answer label leaves.*{NOTHING}", flags=LABEL
    ),
    Report("kimi", "labels, without temperature, and a line", f"without `temperature`.*{HELPFUL}"),
    Report("bedrock", "labels, without temperature", HELPFUL),
    Report("late_name", "labels, though the name stands late", HELPFUL),
    Report("no_stop", "labels, without stop sequences", HELPFUL),
    Report("gpt5", "reasoned answers work", HELPFUL),
    Report("gpt5", "a line says that the model reasons first", "--llm_answer label leaves", flags=LABEL, code=2),
    Report("gemma", "the system's text goes into the user's turn", f"in the user's turn.*{HELPFUL}"),
    Report("mistral_template", "the same", f"in the user's turn.*{HELPFUL}"),
    Report(
        "dashscope", "a field of the vendor's helps", HELPFUL, flags=("--llm_extra_body", '{"enable_thinking": false}')
    ),
    Report(
        "no_logprobs", "a line, and the summary, say that there are none", "no log-probabilities.*2 of 2", flags=LABEL
    ),
    Report("empty_logprobs", "the same", "no log-probabilities.*2 of 2", flags=LABEL),
    Report("lowest_logprobs", "the same", "no log-probabilities.*2 of 2", flags=LABEL),
    Report(
        "unforced",
        "a line says that the constraint is ignored, and why",
        f"--llm_constraint vllm is ignored.*reasoning parser.*{NOTHING}",
        flags=(*LABEL, "--llm_constraint", "vllm"),
    ),
    Report("error_in_200", "named as the status in it", "http_429", hides="broken_json", code=2),
    Report("azure_filter", "one is filtered, the other has a label", "failed: filtered.*read as: helpful 1", code=1),
    Report("quota", "a line says that the quota is used up", "quota", code=2),
    Report("balance", "labels while there is a balance", HELPFUL),
    Report("no_balance", "a line says that the balance is used up", "(?i)balance", code=2),
    Report("context_all", "labels, fewer at a time", HELPFUL),
    Report("sse", "a stream is read, though none was asked for", HELPFUL, hides="broken_json"),
    Report("blank_lines", "labels, after blank lines", HELPFUL),
    Report("html_502", "one line that says that it is a page", "a web page", code=2),
)


def words_of(report: Report, address: str) -> list[str]:
    """Returns the command line of launch.ask."""
    words = ["--config", "score_retrieval", "--llm_server_addr", address, "--llm_model", "m", "--llm_max_retries", "2"]
    return [*words, *(word for message in MESSAGES for word in ("--message", message)), *report.flags]


def after_prompt(printed: str) -> str:
    """Returns what launch.ask prints after the prompt, in a line."""
    return " ".join(printed.partition("</message>")[2].split() or printed.split())


def ask(report: Report, address: str) -> tuple[int, str]:
    """Returns the exit code of launch.ask, and what it printed, in a line."""
    command = [sys.executable, "-m", "launch.ask", *words_of(report, address)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECS)
    except subprocess.TimeoutExpired:
        return -1, f"no end within {TIMEOUT_SECS:g} s"
    return done.returncode, after_prompt(done.stdout + done.stderr)


def as_expected(report: Report, code: int, printed: str) -> bool:
    is_hidden = not report.hides or not re.search(report.hides, printed)
    return code == report.code and is_hidden and bool(re.search(report.shows, printed)) and "Traceback" not in printed


def happened(code: int, printed: str) -> str:
    """Returns the lines that say most, in short."""
    said = re.findall(r"(?:the LLM server: |failed: |error: ).{0,90}|read as: [^:]{1,60}(?= unreadable)", printed)
    return f"exit {code}; " + "; ".join(dict.fromkeys(text.strip() for text in said))


def run_report(report: Report, server: pathlib.Path, folder: pathlib.Path) -> tuple[bool, str]:
    """Returns whether a case is as expected, and what happened."""
    port = free_port()
    process = ServerProcess(
        folder / "server.log", [sys.executable, server, report.case, str(port)], PYTHONPATH=str(ROOT)
    )
    process.start()
    try:
        process.wait_for(f"http://127.0.0.1:{port}/v1/models", '"m"', {})
        code, printed = ask(report, f"127.0.0.1:{port}")
    finally:
        process.kill()
    return as_expected(report, code, printed), happened(code, printed)


def known_cases(server: pathlib.Path) -> list[str]:
    listed = subprocess.run([sys.executable, server, "list"], cwd=ROOT, capture_output=True, text=True, timeout=30)
    return (listed.stdout + listed.stderr).split()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", help="cases; all when left out")
    parser.add_argument("--server", type=pathlib.Path, default=SERVER, help="program of the server")
    options = parser.parse_args(argv)
    known = known_cases(options.server)
    chosen = [x for x in REPORTS if x.case in known and (x.case in options.case or not options.case)]
    num_bad = 0
    print("| case | a user expects | what happened | |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for report in chosen:
            is_good, what = run_report(report, options.server.resolve(), pathlib.Path(folder))
            num_bad += not is_good
            name = " ".join([report.case, *report.flags])
            print(f"| {name} | {report.expects} | {what} | {'ok' if is_good else 'not ok'} |", flush=True)
    print(f"{len(chosen) - num_bad} of {len(chosen)} as expected")
    return 1 if num_bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
