"""The README's tables say what the code says. `python -m tests.test_readme` writes them anew."""

import dataclasses
import pathlib
import re

import pytest

from launch import __main__ as listing
from launch import refused_flags
from launch.submit import Submission
from oni_jax.config import Config, own_settings, sections, settings
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.metrics.names import markdown_table
from oni_jax.preferences.config import AnnotatePairs, CollectPairs, TrainReward
from oni_jax.reporting.config import ReportConfig
from oni_jax.viewing.config import PlayConfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def flags_table() -> str:
    """Every setting, one table a topic."""
    lines = []
    for part in sections(Config()).values():
        lines += ["", f"**{(type(part).__doc__ or '').splitlines()[0]}**", "", "| flag | default | |", "|---|---|---|"]
        lines += [_row(field) for field, _ in own_settings(part)]
    return "\n".join([*lines, ""])


def _row(field: dataclasses.Field) -> str:
    names = " or ".join(f"`{name}`" for name in (field.name, *field.metadata["aliases"]))
    default = str(field.default).lower() if field.type is bool else str(field.default)
    choices = f" One of {', '.join(f'`{choice}`' for choice in field.metadata['choices'])}."
    text = field.metadata["help"] + (choices if field.metadata["choices"] else "")
    mark = " •" if field.metadata["fixed"] else ""
    return f"| {names}{mark} | {f'`{default}`' if default else ''} | {text.replace('|', chr(92) + '|')} |"


def metrics_table() -> str:
    """Every name that a row of metrics may hold."""
    return "\n".join(["", *markdown_table(), ""])


TABLES = {"flags": flags_table, "metrics": metrics_table}


def between(name: str) -> re.Pattern:
    return re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_up_to_date(name):
    found = between(name).search(README.read_text())
    assert found, f"no place for {name}"
    expected = f"{found[1]}{TABLES[name]()}\n{found[2]}"
    assert found[0] == expected, "run `python -m tests.test_readme`"


def test_what_it_names_exists():
    text = README.read_text()
    for path in re.findall(r"`((?:oni_jax|launch|benchmarks|tests)/[\w/.]*)`", text):
        assert (ROOT / path).exists(), path
    for program in re.findall(r"-m launch\.(\w+)", text):
        assert program in listing.programs(), program
    single = (EvaluationConfig(), PlayConfig(), ReportConfig())
    programs = (Config(), CollectPairs(), AnnotatePairs(), TrainReward(), Submission(), *single)
    offered = {field.name for program in programs for field, _ in settings(program)}
    forms = {"flag-name", "flag_name", "nox"}
    accepted = {"algo", "env", "device", "help", "config"}
    of_other_programs = {"port", "partition", "logdir", "enable-prefix-caching", "model-path"}
    of_other_programs |= {"reward_types", "secs", "warm_up_secs", "repeats", "reward"}
    of_other_programs |= {"project-directory", "build", "abort-on-container-exit"}  # docker's
    of_other_programs |= {"resumes", "longest_secs", "seed", "hypothesis-profile"}
    for name in set(re.findall(r"--([a-z]\w[\w-]*)", text)) - forms - accepted - of_other_programs:
        assert name in offered or refused_flags.find_refusal(name), name


def test_it_names_every_program_and_part():
    text = README.read_text()
    for name in listing.programs():
        assert re.search(rf"launch\.{name}\b|`{name}`", text), name
    for path in (ROOT / "oni_jax").iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            assert path.name == "__init__.py" or re.search(rf"[`/]{path.name}[`/]", text), path.name


if __name__ == "__main__":
    text = README.read_text()
    for name, make_table in TABLES.items():
        table = make_table()
        text = between(name).sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
    README.write_text(text)
