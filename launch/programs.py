"""The programs of this folder."""

import ast
import pathlib


def programs() -> dict[str, str]:
    """Returns name -> first line of the docstring, for each module here that has a `main`."""
    found = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text())
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        if "main" in names and path.name != "__main__.py":
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found
