"""The programs of this folder."""

import ast
import pathlib


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
