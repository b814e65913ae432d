"""The programs of this folder."""

import ast
import pathlib
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from oni_jax.settings.fields import nearest_first, printable


def examples(name: str) -> list[str]:
    """Returns the example commands in a program's docstring."""
    path = pathlib.Path(__file__).with_name(f"{name}.py")
    text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "") if path.exists() else ""
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith(f"python -m launch.{name} ")]


def programs() -> dict[str, str]:
    """Returns name -> first line of the docstring, for each module here that has a `main`."""
    found = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assigned = [ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)]
        if "main" in (*functions, *assigned) and path.name != "__main__.py":
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def unknown_program(name: str) -> str:
    """Returns what is wrong with a program's name, in a line."""
    hint = nearest_first(name.removeprefix("launch."), programs(), "write python -m launch, which lists the programs")
    return printable(f"{name!r} is unknown{hint}")


def check_module(words: Sequence[str]) -> None:
    """Ends Python, with one line and code 2, if its command line `words` runs a module of this package that is none."""
    options = (re.fullmatch("-[a-zA-Z]*m(.*)", word) for word in words[1:])
    index, found = next(((i, option) for i, option in enumerate(options, 1) if option), (0, None))
    module = found and (found[1] or "".join(words[index + 1 : index + 2]))
    if module and module.startswith("launch.") and find_spec(module) is None:
        print(f"error: {unknown_program(module)}", file=sys.stderr)
        sys.exit(2)
