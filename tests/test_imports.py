"""Imports point one way; JAX stays out of the actors; flags stay in the launchers; names stay in the registry."""

import ast
import graphlib
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping

import pytest

from tests.support.processes import ROOT

PACKAGE = ROOT / "oni_jax"

EVERYWHERE = {"host", "ops", "settings", "types"}  # they import nothing but each other
# Box, a folder or file of oni_jax -> the boxes that it may import, itself and EVERYWHERE apart. The lowest come first.
MAY_IMPORT = {
    **dict.fromkeys(EVERYWHERE | {"config", "envs", "metrics", "networks", "parallel"}, set()),
    "annotation": {"envs"},
    "answers": {"annotation", "envs"},
    "worlds": {"envs", "networks", "parallel"},
    "rewards": {"annotation", "envs", "networks", "parallel"},
    "runs": {"annotation", "answers", "envs", "networks", "parallel", "rewards"},
    "evaluation": {"annotation", "answers", "envs", "metrics", "networks", "rewards", "runs", "worlds"},
    "learner": {"parallel", "rewards", "runs", "worlds"},
    "offline": {"annotation", "answers", "envs", "evaluation", "networks", "parallel", "rewards", "runs"},
    "show": {"annotation", "answers", "envs", "evaluation", "metrics", "rewards", "runs"},
    "training": {
        "annotation",
        "answers",
        "envs",
        "learner",
        "metrics",
        "networks",
        "parallel",
        "rewards",
        "runs",
        "show",
        "worlds",
    },
    "published": {"envs", "learner", "networks", "rewards", "runs", "training"},
    "api": {"envs", "evaluation", "runs", "show", "training"},
    "__init__": {"annotation", "api", "envs", "networks", "rewards"},
}
MAX_FLOORS, MAX_BOXES = 13, 26  # launch and benchmarks counted as a box each
WITHOUT_JAX = (
    "types",
    "config",
    "settings",
    "host",
    "runs/experiment",
    "envs",
    *(f"worlds/actors/{name}" for name in ("captions", "exchange", "ring", "shared_array", "shared_terminal")),
    *(f"worlds/actors/{name}" for name in ("group", "pool", "process_pool", "serial_pool", "worker")),
    "annotation",
    "evaluation/asking",
    "metrics",
)
ABOVE_SYSTEM = ("launch", "benchmarks", "tests")


def sources(*folders: str) -> list[pathlib.Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def imported(path: pathlib.Path) -> Iterator[str]:
    """Full names of what a file imports, anywhere in it. `from a import b` counts as a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path: pathlib.Path) -> str:
    """`learner` for oni_jax/learner/loop.py, `parallel` for oni_jax/parallel.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def violations(path: pathlib.Path) -> list[str]:
    """Imports of oni_jax that a file of oni_jax may not have."""
    part = part_of(path)
    allowed = MAY_IMPORT.get(part, set()) | EVERYWHERE | {part}
    inner = [name.removeprefix("oni_jax.") for name in imported(path) if name.startswith("oni_jax.")]
    outer = [name for name in imported(path) if name.split(".")[0] in ABOVE_SYSTEM]
    return [name for name in inner if not any(f"{name}.".startswith(f"{part}.") for part in allowed)] + outer


@pytest.mark.parametrize("path", sources("oni_jax"), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    assert part_of(path) in MAY_IMPORT, "a new box of oni_jax: say in MAY_IMPORT what it may import"
    assert violations(path) == []


def test_the_table_has_no_circle():
    assert len(list(graphlib.TopologicalSorter(MAY_IMPORT).static_order())) == len(MAY_IMPORT)  # CycleError


def imported_at_once(body: Iterable[ast.AST]) -> Iterator[str]:
    """Full names of what statements import when their file is imported: not in functions, nor for types alone."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imported_at_once(node.orelse)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imported_at_once(ast.iter_child_nodes(node))


def file_graph(root: pathlib.Path) -> dict[str, set[str]]:
    """Module -> the modules that are imported with it, of oni_jax, launch and benchmarks."""
    paths = [path for folder in ("oni_jax", "launch", "benchmarks") for path in sorted((root / folder).rglob("*.py"))]
    names = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    graph = {}
    for name, path in names.items():
        wanted = imported_at_once(ast.parse(path.read_text()).body)
        known = {full if full in names else full.rpartition(".")[0] for full in wanted}
        graph[name] = (known & names.keys()) - {name}
    return graph


def box_of(module: str) -> str:
    """`learner` for oni_jax.learner.loop, `launch` for launch.train, `oni_jax` for the package itself."""
    top, _, rest = module.partition(".")
    return rest.split(".")[0] if top == "oni_jax" and rest else top


def floors(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Box -> length of the longest chain of imports below it, itself included. CycleError: there is a circle."""
    boxes: dict[str, set[str]] = {}
    for module, names in graph.items():
        boxes.setdefault(box_of(module), set()).update({box_of(name) for name in names} - {box_of(module)})
    found: dict[str, int] = {}
    for box in graphlib.TopologicalSorter(boxes).static_order():
        found[box] = 1 + max((found[name] for name in boxes[box]), default=0)
    return found


def test_the_house_has_few_floors_and_boxes_and_no_circle():
    graph = file_graph(ROOT)
    list(graphlib.TopologicalSorter(graph).static_order())  # CycleError: files import each other in a circle
    found = floors(graph)
    assert max(found.values()) <= MAX_FLOORS and len(found) <= MAX_BOXES, sorted(found.items(), key=lambda x: x[1])
    assert found.keys() - {"launch", "benchmarks", "oni_jax"} == MAY_IMPORT.keys() - {"__init__"}


def test_floors_are_counted_along_the_longest_chain(tmp_path):
    texts = {
        "oni_jax/a.py": "",
        "oni_jax/b/x.py": "from oni_jax import a\ndef f():\n    import launch.top",
        "oni_jax/c.py": "if TYPE_CHECKING:\n    import launch.top\nfrom oni_jax.b.x import f",
        "launch/top.py": "if True:\n    import oni_jax.c\nfrom oni_jax.a import y",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert floors(file_graph(tmp_path)) == {"a": 1, "b": 2, "c": 3, "launch": 4}
    (tmp_path / "oni_jax/a.py").write_text("import oni_jax.c")
    with pytest.raises(graphlib.CycleError):
        floors(file_graph(tmp_path))


IMPORTS = """
import importlib, os, sys, traceback

class Finder:
    def find_spec(name, *_):
        if name in ("jax", "flax"):
            traceback.print_stack()
            os._exit(1)

sys.meta_path.insert(0, Finder)
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_parts_without_jax():
    """All in one process, which ends where JAX would be imported, and shows by whom."""
    folders = [PACKAGE / part for part in WITHOUT_JAX]
    paths = [path for x in folders for path in (sorted(x.glob("*.py")) if x.is_dir() else [x.with_suffix(".py")])]
    stems = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    command = [sys.executable, "-c", IMPORTS, *stems]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_the_launchers_import_no_jax_before_they_need_it():
    paths = [path for path in sources("launch") if path.stem not in ("__init__", "__main__")]
    stems = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    code = f"import importlib, sys; [*map(importlib.import_module, {stems})]; assert 'jax' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("path", sources("oni_jax"), ids=lambda path: str(path.relative_to(ROOT)))
def test_flags_stay_in_the_launchers(path):
    assert not [name for name in imported(path) if name.split(".")[0] in ("absl", "argparse")]


def mentions_meshes(path: pathlib.Path) -> bool:
    names = {"pmap", "shard_map", "Mesh"}
    nodes = ast.walk(ast.parse(path.read_text()))
    return any(
        (isinstance(node, ast.Attribute) and node.attr in names) or (isinstance(node, ast.alias) and node.name in names)
        for node in nodes
    )


def test_only_parallel_knows_meshes_of_accelerators():
    found = {path.name for path in sources("oni_jax", "launch") if mentions_meshes(path)}
    assert found == {"parallel.py", "peers.py"}  # it compares the hosts' CPUs


def compared_words(path: pathlib.Path) -> set[str]:
    """Words that a file compares something with, also by `in (...)`, by a dict's keys, or by `match`."""
    words = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            inside = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
        elif isinstance(node, ast.MatchValue):
            inside = [node.value]
        elif isinstance(node, ast.Dict):
            inside = [key for key in node.keys if key is not None]
        else:
            continue
        words |= {part.value for part in inside if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return words


def test_reward_names_are_compared_only_in_the_registry():
    from oni_jax.rewards.registry import REWARD_TYPES

    names = set(REWARD_TYPES) - {"none"}  # an ordinary word, that other settings have too
    assert names
    found = {str(path.relative_to(ROOT)) for path in sources("oni_jax", "launch") if compared_words(path) & names}
    assert found == {"oni_jax/rewards/registry.py"}
    readers = [path for path in sources("oni_jax", "launch") if "llm_reward_type ==" in path.read_text()]
    assert readers == []


def calls(path: pathlib.Path, function: str) -> bool:
    nodes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return any(function in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")) for node in nodes)


@pytest.mark.parametrize(
    ("function", "callers"),
    [
        ("find_environment", {"envs/registry.py", "envs/checking.py", "rewards/registry.py", "runs/plan.py"}),
        # A run's settings; files of --config and of launch.export; what the other processes of a run have.
        (
            "config_from_json",
            {"runs/run.py", "runs/sharing.py", "launch/named_configs.py", "learner/peers/peers.py"},
        ),
    ],
)
def test_things_are_looked_up_in_few_files(function, callers):
    found = {path for path in sources("oni_jax", "launch", "benchmarks") if calls(path, function)}
    assert {str(path.relative_to(ROOT)).removeprefix("oni_jax/") for path in found} == callers


def test_environments_know_no_rewards():
    words = ("llm_reward", "RewardConfig", "oni_jax.rewards")
    assert [path for path in sources("oni_jax/envs") if any(word in path.read_text() for word in words)] == []


@pytest.mark.parametrize(
    "file, text, expected",
    [
        ("learner/x.py", "from oni_jax.envs import base", ["envs.base"]),
        ("learner/x.py", "from oni_jax.annotation.client import Client", ["annotation.client.Client"]),
        ("learner/x.py", "from oni_jax.rewards.terms import RewardSum", []),
        ("metrics/x.py", "import oni_jax.learner.loop", ["learner.loop"]),
        ("envs/x.py", "def f():\n    from launch import flags", ["launch.flags"]),
        ("host/runtime.py", "from oni_jax.settings.config import Config", []),
    ],
)
def test_the_checker_itself(tmp_path, monkeypatch, file, text, expected):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert violations(path) == expected


def test_the_checker_sees_names_compared(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("a == 'p'\nb in ('q', 'r')\n{'s': 1}\nmatch c:\n    case 't':\n        pass\nprint('u')\n")
    assert compared_words(path) == {"p", "q", "r", "s", "t"}
