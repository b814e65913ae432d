"""The documentation says what the code says. `python -m tests.test_docs` writes its generated tables anew."""

import functools
import importlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import pytest

from launch import __main__ as listing
from launch import flags, named_configs, refused_flags
from launch.check_env import CheckEnv
from launch.export import ExportConfig
from launch.import_checkpoint import ImportCheckpoint
from launch.inspect_reward import InspectionConfig
from launch.judge import JudgeConfig
from launch.ls import ListConfig
from launch.plot import PlotConfig
from launch.program import split_words
from launch.submit import Submission
from launch.sweep import SweepConfig, planned
from oni_jax.evaluation.asking.config import Ask
from oni_jax.evaluation.asking.recording import AnswersConfig
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.offline.bk_config import AnnotateSegments, CheckPotential, TrainPotential, WriteGoals, WritePotential
from oni_jax.offline.goal_config import TrainGoals
from oni_jax.offline.pair_config import AnnotatePairs, CollectPairs, TrainReward
from oni_jax.offline.segment_config import CollectSegments
from oni_jax.settings.config import Config
from oni_jax.settings.fields import Setting, section_settings, sections, settings
from oni_jax.show.config import PlayConfig
from oni_jax.show.report.config import ReportConfig
from tests.support.documented import markdown_list
from tests.support.processes import ROOT
from tests.support.trials import faults_table

README = ROOT / "README.md"
PAGES = sorted(
    [
        README,
        *(ROOT / "docs").glob("*.md"),
        *ROOT.glob("docs/results/*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("launch/**/*.md"),
    ]
)
PROGRAMS: dict[str, Any] = {
    "train": Config(),
    "answers": AnswersConfig(),
    "ask": Ask(),
    "evaluate": EvaluationConfig(),
    "inspect_reward": InspectionConfig(),
    "ls": ListConfig(),
    "play": PlayConfig(),
    "plot": PlotConfig(),
    "report": ReportConfig(),
    "collect_pairs": CollectPairs(),
    "annotate_pairs": AnnotatePairs(),
    "train_goals": TrainGoals(),
    "train_reward": TrainReward(),
    "collect_segments": CollectSegments(),
    "write_potential": WritePotential(),
    "write_goals": WriteGoals(),
    "annotate_segments": AnnotateSegments(),
    "train_potential": TrainPotential(),
    "check_env": CheckEnv(),
    "check_potential": CheckPotential(),
    "export": ExportConfig(),
    "import": importlib.import_module("launch.import").ImportConfig(),  # a word of Python's
    "import_checkpoint": ImportCheckpoint(),
    "judge": JudgeConfig(),
    "submit": Submission(),
    "sweep": SweepConfig(),
}
OF_OTHERS = {"flag-name", "flag_name", "nox", "help", "host", "port", "x"}  # forms of flags, and those of servers
OF_OTHERS |= {"partition", "logdir", "enable-prefix-caching", "model-path", "hypothesis-profile", "sbatch"}
OF_OTHERS |= {"alg", "precollect"}  # flags of published programs
OF_OTHERS |= {"no-deps"}  # a flag of pip
OF_OTHERS |= {"project-directory", "build", "abort-on-container-exit", "array"}


def flags_list() -> str:
    """Every setting, one list a topic."""
    lines = []
    for part in sections(Config()).values():
        lines += ["", f"**{(type(part).__doc__ or '').splitlines()[0]}**", ""]
        lines += [_line(field) for field, _ in section_settings(part)]
    return "\n".join([*lines, ""])


def _line(field: Setting) -> str:
    name, *aliases = (f"--{name}" for name in (field.name, *field.metadata["aliases"]))
    default = str(field.default).lower() if field.type is bool else str(field.default)
    choices = [*dict.fromkeys((default, *field.metadata["choices"]))]
    values = "|".join(choice or "''" for choice in choices) if any(choices) else ""
    shown = [f"`{' '.join((name, values)).strip()}`", *(f"`{alias}`" for alias in aliases)]
    return f"- {' or '.join(shown)}{'•' if field.metadata['fixed'] else ''}: {field.metadata['help']}"


def metrics_list() -> str:
    """Every name that a row of metrics may hold."""
    return "\n".join(["", *markdown_list(), ""])


TABLES = {"flags": flags_list, "metrics": metrics_list, "faults": faults_table}


def with_table(name: str) -> tuple[pathlib.Path, str]:
    """The page of a generated table, and its text with the table written anew."""
    page = ROOT / "docs" / f"{name}.md"
    place = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    text, count = place.subn(lambda found: f"{found[1]}{TABLES[name]()}\n{found[2]}", page.read_text())
    assert count == 1, f"{page} has no place for the table"
    return page, text


def commands(page: pathlib.Path) -> list[str]:
    """The shell's lines on a page, comments included."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    return [*"".join(blocks).replace("\\\n", " ").splitlines()]


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_up_to_date(name):
    page, text = with_table(name)
    assert page.read_text() == text, "run `python -m tests.test_docs`"


def brought(text: str) -> set[str]:
    """The flags that the plugins of a page bring."""
    return {*re.findall(r"^    (\w+): \w+ = setting\(", text, re.MULTILINE)}


@functools.cache
def flags_of_benchmarks_and_of_programs() -> tuple[str, set[str]]:
    """The sources of the benchmarks, which hold theirs in quotes, and the names of the programs' flags."""
    fields = [field for program in PROGRAMS.values() for field, _ in settings(program)]
    offered = {name for field in fields for name in (field.name, *field.metadata["aliases"])}
    return "".join(path.read_text() for path in (ROOT / "benchmarks").rglob("*.py")), offered


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_and_programs_on_a_page_exist(page):
    text = page.read_text()
    for path in re.findall(r"`((?:oni_jax|launch|benchmarks|tests)/[\w/.]*)`", text):
        assert (ROOT / path).exists(), path
    for program in re.findall(r"launch\.(\w+)", text):
        assert program in listing.programs() or program == "watch", program
    benchmarks, offered = flags_of_benchmarks_and_of_programs()
    accepted = {"algo", "env", "device", "config", "resume"} | OF_OTHERS | brought(text)
    for name in set(re.findall(r"(?<![\w-])--([a-z]\w[\w-]*)", text)) - accepted:
        known = name in offered or f'"{name.removeprefix("no")}"' in benchmarks or refused_flags.find_refusal(name)
        assert known, name
    for name in re.findall(r"--config (\w+)", text):
        assert name in named_configs.names() or name.isupper() or name == "train_dir", name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if heading else []
        assert not heading or heading in {
            re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles
        }, link


def reads_files(config: Config) -> bool:
    """True for a run that reads files that are not here: other tests write them."""
    return any(term.env.plugin or term.reward.reward_dir or term.reward.word_vectors for term in config.terms())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_understood(page):
    for line in commands(page):
        words = shlex.split(line, comments=True)
        name = next((word.removeprefix("launch.") for word in words if word.startswith("launch.")), "")
        if {word.removeprefix("--") for word in words} & brought(page.read_text()):
            continue  # see tests/test_plugin_settings.py
        if name in PROGRAMS and "--help" not in words:
            given, training = split_words(words[words.index(f"launch.{name}") + 1 :])
            resumes = "--resume" in given  # a run that is not here
            if resumes:
                del given[given.index("--resume") : given.index("--resume") + 2]
            program = flags.parse(given, PROGRAMS[name])
            if isinstance(program, Config) and not resumes and not reads_files(program):
                flags.check(program)
            if isinstance(program, SweepConfig):
                assert planned(training, program)
        elif words and words[0] == "$S":  # launch.submit; see docs/cluster.md
            end = words.index("--")
            flags.parse(words[1:end], PROGRAMS["submit"])
            flags.check(flags.parse(words[end + 1 :]))


PARSE = """import importlib, json, sys
from absl import flags
for module, lines in json.load(sys.stdin).items():
    importlib.import_module(module)
    for words in lines:
        flags.FLAGS.unparse_flags()
        flags.FLAGS([module, *words])
    for name in [name for name in sys.modules if name.startswith("benchmarks")]:  # two may have a flag of one name
        for flag in [*flags.FLAGS.flags_by_module_dict().get(name, ())]:
            delattr(flags.FLAGS, flag.name)
        del sys.modules[name]"""


def test_commands_of_benchmarks_are_understood():
    found: dict[str, list[list[str]]] = {}  # module -> words of each command
    for line in (line for page in PAGES for line in commands(page) if "-m benchmarks" in line):
        words = shlex.split(line, comments=True)
        name, *rest = words[words.index("-m") + 1 :]
        is_package = (ROOT / name.replace(".", "/")).is_dir()
        found.setdefault(f"{name}.__main__" if is_package else name, []).append(rest)
    assert {"benchmarks.__main__", "benchmarks.studies.__main__", "benchmarks.judges"} <= {*found}
    done = subprocess.run(
        [sys.executable, "-c", PARSE], input=json.dumps(found), cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page, names",
    [
        (
            "bk.md",
            "train import_checkpoint collect_segments write_potential annotate_segments train_potential write_goals",
        ),
        ("ellm.md", "train evaluate"),
    ],
)
def test_published_commands_have_ones_beside_them(page, names, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    lines = re.findall(r"`python -m launch\.(\w+) ([^`]*)`", (ROOT / "docs" / page).read_text())
    assert {name for name, _ in lines} == {*names.split()}
    for name, words in lines:
        program = flags.parse(shlex.split(words), PROGRAMS[name])
        if page == "ellm.md" and isinstance(program, Config):  # the others name an environment E
            flags.check(program)


REGISTERED = """import json
from oni_jax.envs.registry import environment_names
from oni_jax.networks.registry import ENCODERS
from oni_jax.rewards.registry import REWARD_TYPES
print(json.dumps([list(environment_names()), list(REWARD_TYPES), list(ENCODERS)]))"""  # no plugins of tests


def test_everything_is_named():
    run = subprocess.run([sys.executable, "-c", REGISTERED], cwd=ROOT, capture_output=True, check=True)
    environments, rewards, encoders = json.loads(run.stdout)
    readme, tasks, design = (page.read_text() for page in (README, ROOT / "docs/tasks.md", ROOT / "docs/design.md"))
    everything = "".join(page.read_text() for page in PAGES)
    for name in environments:
        short = name.replace("ExtendedActions", "")
        shown = f"-{name.split('-')[2]}-…`" if name.startswith("BabyAI-Text-") else f"`{short}`"
        shown = "`Crafter-Text-…`" if name.startswith("Crafter-Text-") else shown
        assert f"`{name}`" in tasks and shown in readme, name
    for name in rewards:
        assert re.search(rf"^\| (`[\w-]+`, )*`{name}`[, ]", readme, re.MULTILINE), name
        assert f"| `{name}` |" in (ROOT / "docs/rewards.md").read_text(), name
    for name in (*listing.programs(), *encoders):
        assert re.search(rf"launch\.{name}\b|\b{name}\b", everything), name
    for path in (ROOT / "oni_jax").iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            assert path.name == "__init__.py" or re.search(rf"[`/]{path.name}[`/]", design), path.name


def test_the_readme_is_short():
    text = README.read_text()
    assert len(text.splitlines()) <= 250 and len(text.split()) <= 1600


def test_pages_are_short():
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs)): len(path.read_text().split()) for path in docs.rglob("*.md")}
    assert sum(pages.values()) <= 28_000, pages


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_of_a_flag_takes_two_lines(name):
    long = {field.name: text for field, _ in settings(PROGRAMS[name]) if len(text := field.metadata["help"]) > 150}
    assert not long


def test_the_readme_shows_how_it_works():
    section = README.read_text().partition("## How it works")[2].partition("\n## ")[0]
    (picture,) = re.findall(r"!\[.+\]\((docs/images/.+\.svg)\)", section)
    words = " ".join(ElementTree.parse(ROOT / picture).getroot().itertext())
    assert all(box in words for box in ("games", "learner", "label store", "LLM"))


def test_pages_agree_which_python_is_needed():
    pages = [(ROOT / name).read_text() for name in ("README.md", "docs/quickstart.md", "docs/changes.md")]
    (least, most), *others = [found for page in pages for found in re.findall(r"Python (3\.\d+) to (3\.\d+)", page)]
    assert others and {*others} == {(least, most)} and f'python_requires=">={least}"' in (ROOT / "setup.py").read_text()
    assert not any(re.search(r"Python 3\.\d+ or 3", page) for page in pages)


if __name__ == "__main__":
    for name in TABLES:
        page, text = with_table(name)
        page.write_text(text)
