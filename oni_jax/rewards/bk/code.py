"""Source files of potentials."""

import ast
import os
from typing import NamedTuple

from oni_jax.host.files import read_regular
from oni_jax.settings.fields import UserError

FUNCTION = "compute_reward"
FILES = ("potential.py", "code-final.py")  # names in a folder: ours, and the published one's
MAX_CODE_BYTES = 1 << 18
_NOT_OURS = {"numpy", "np", "gymnasium", "minigrid", "OBJECT_TO_IDX", "COLOR_TO_IDX", "STATE_TO_IDX"}


def read_code(path: str) -> tuple[str, str]:
    """Returns the file's path, and the code. Raises UserError: no such file, or one that can't be called here.

    Args:
        path: of a file, or of a folder that holds one of FILES.
    """
    if os.path.isdir(path):
        found = [file for name in FILES if os.path.isfile(file := os.path.join(path, name))]
        if not found:
            raise UserError(f"--reward_dir {path}: holds none of {', '.join(FILES)}; launch.write_potential writes one")
        path = found[0]
    try:
        code = read_regular(path, MAX_CODE_BYTES, follows_links=True).decode()
    except OSError as error:
        raise UserError(f"--reward_dir {path}: can't be read ({error.strerror})") from None
    except ValueError as error:
        raise UserError(f"--reward_dir {path}: can't be read ({error})") from None
    check_plain(path, code)
    return path, code


def check_plain(path: str, code: str) -> None:
    """Raises UserError: the code is NumPy's, as published code is."""
    tree = _parsed(code)
    if tree is None:
        return  # Monty says what is wrong
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    used = {node.id for node in names} & _NOT_OURS - bound
    if used:
        raise UserError(
            f"{path}: uses {min(used)}, which is not there: rewrite it as plain Python, where obs is a dict such as "
            '{"image": lists by column, row and channel, "direction": 0}, past_obs a list of them, and the numbers are '
            "MiniGrid's integer codes"
        )


def _parsed(code: str) -> ast.Module | None:
    """Returns a code's syntax tree. None: this Python can't parse it; Monty may, whose syntax is newer."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class Reads(NamedTuple):
    """Arguments after the present observation that a code reads; True where that is unknown."""

    past: bool
    actions: bool


def arguments_read(code: str) -> Reads:
    """Returns what a code reads. What it does not name, windows need not differ in."""
    tree = _parsed(code)
    if tree is None:
        return Reads(True, True)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == FUNCTION]
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    parameters = [argument.arg for argument in found[0].args.args] if len(found) == 1 else []
    if len(parameters) != 3 or {"locals", "vars", "eval", "exec"} & {*names}:
        return Reads(True, True)
    return Reads(*(name in names for name in parameters[1:]))
