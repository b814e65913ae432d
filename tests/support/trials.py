"""Trials of faults: tests that declare a fault and what happens, of which the table in docs/faults.md is made."""

import ast
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import TypeVar

Test = TypeVar("Test", bound=Callable)
TESTS = pathlib.Path(__file__).resolve().parents[1]


def trial(fault: str, happens: str) -> Callable[[Test], Test]:
    """Declares what a test tries: a fault, and what happens then, in words for users. Rows that are alike are one."""
    del fault, happens  # which `trials` reads
    return lambda test: test


def trials() -> Iterator[tuple[str, str, str, pathlib.Path]]:
    """Yields fault, what happens, name and file of each test that declares them, without importing it."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == trial.__name__:
                    fault, happens = (ast.literal_eval(x) for x in call.args)
                    yield fault, happens, node.name, path


def faults_table() -> str:
    """The table of docs/faults.md."""
    rows: dict[tuple[str, str], list[str]] = {}
    for fault, happens, name, path in trials():
        link = f"[{path.stem}](../{os.path.relpath(path, TESTS.parent)})"
        rows.setdefault((fault, happens), []).append(f"`{name}` in {link}")
    lines = [f"| {fault} | {happens} | {'; '.join(tests)} |" for (fault, happens), tests in sorted(rows.items())]
    return "\n".join(["", "| what happens | what the program does | test |", "|---|---|---|", *lines, ""])
