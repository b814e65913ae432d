"""The user's modules; their registrations hold in every process that imports them."""

import ast
import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

from oni_jax.settings.fields import Program, UserError
from oni_jax.settings.plugins import with_brought

INSTALLED = ("site-packages", "dist-packages")  # folders of packages
OURS = "oni_jax"


def load_plugins(plugin: str) -> None:
    """Imports modules, once per process; see `EnvConfig.plugin`.

    They may call `envs.registry.register_environment`, `networks.registry.register_encoder`,
    `rewards.registry.register_reward` and `annotation.queries.registry.register_query`.

    Args:
        plugin: names, separated by commas; the current folder is searched, too.

    Raises:
        UserError: one of them can't be imported.
    """
    for name in plugin_names(plugin):
        try:
            importlib.import_module(name)
        except UserError as error:
            raise UserError(f"--plugin {name}: {error}") from None
        except Exception as error:  # a user's code may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            where = "; looked for in the current folder and in $PYTHONPATH" * isinstance(error, ModuleNotFoundError)
            raise UserError(f"--plugin {name}: can't be imported ({reason}){where}") from error


def with_plugins(config: Program, plugin: str) -> Program:
    """Loads plugins. Returns the settings of a program with those that they bring. UserError: see `with_brought`."""
    load_plugins(plugin)
    try:
        return with_brought(config) if plugin else config
    except UserError as error:
        raise UserError(f"--plugin {plugin}: {error}") from None


def plugin_error(module: str, what: str, error: Exception) -> UserError:
    """Returns an error, in a line, that blames a module for what its code `what` raised, and names its line there."""
    path = getattr(sys.modules.get(module), "__file__", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    where = f" in line {lines[-1]} of {path}" if lines else ""
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return UserError(f"plugin {module}: its {what} failed{where} ({reason}); mend it there")


def plugin_names(plugin: str) -> Sequence[str]:
    """Returns the names of the modules, which are then looked for in the current folder, too."""
    names = [*filter(None, plugin.split(","))]
    if names and os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    return names


def root_of(module: str) -> str:
    """Returns the folder on Python's path that holds a module; empty: it is not there."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module.partition(".")[0])
        if spec and spec.submodule_search_locations:
            return os.path.dirname(os.path.abspath(next(iter(spec.submodule_search_locations))))
        if spec and spec.origin and spec.has_location:
            return os.path.dirname(os.path.abspath(spec.origin))
    return ""


def module_files(modules: Sequence[str]) -> list[str]:
    """Returns the files of modules, of those that they import from the same folder, and of the packages around them.

    Paths are relative to the folder, `root_of` the first. Of an installed package they are the package's alone.
    """
    root, first = root_of(modules[0]), modules[0].partition(".")[0]
    found, left = dict[str, str](), [*modules]
    while left:
        name = left.pop()
        top, *rest = name.split(".")
        if not root or root_of(top) != root or (top != first and os.path.basename(root) in INSTALLED) or top == OURS:
            continue
        for inner in (".".join([top, *rest[:number]]) for number in range(len(rest) + 1)):
            base = os.path.join(root, *inner.split("."))
            path = next(filter(os.path.isfile, (os.path.join(base, "__init__.py"), f"{base}.py")), "")
            if path and inner not in found:
                found[inner] = os.path.relpath(path, root)
                left += _imported(inner, path)
    return sorted(found.values())


def _imported(module: str, path: str) -> Iterator[str]:
    """Yields the full names that a file imports, anywhere in it; `from a import b` counts as a.b."""
    package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
    try:
        with open(path, "rb") as file:
            nodes = [*ast.walk(ast.parse(file.read()))]
    except (SyntaxError, ValueError):  # it can't be imported
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
