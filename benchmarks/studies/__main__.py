"""Makes docs/results.md, docs/results/, their figures and the README's table from the results; runs a study.

python -m benchmarks.studies
python -m benchmarks.studies list
python -m benchmarks.studies run NAME --jobs 2
python -m benchmarks.studies run NAME --jobs 2 --again
"""

import dataclasses
import importlib
import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

from absl import flags

from benchmarks.harness import run_app
from benchmarks.pages import figures, page, readme
from benchmarks.studies import results
from benchmarks.studies.base import Study
from launch import sweep
from oni_jax.settings.fields import UserError, nearest_first

NAMES = (  # names of the studies and of their modules, as the pages have them
    "ellm",
    "ellm_long",
    "ellm_task",
    "few_answers",
    "crafter",
    "bk",
    "few_labels",
    "few_labels_models",
    "small_score",
    "small_minutes",
    "catch_judge",
    "steer",
    "steer_babyai",
)
STUDIES: dict[str, Study] = {name: importlib.import_module(f"benchmarks.studies.{name}").STUDY for name in NAMES}

_JOBS = flags.DEFINE_integer("jobs", 0, "Runs at a time; 0: as the page has it.", 0)
_TRAIN_DIR = flags.DEFINE_string("train_dir", "train_dir/studies", "Folder of the studies' runs.")
_AGAIN = flags.DEFINE_bool(
    "again", False, "Repeat all runs: they, and NAME.json, go to --train_dir/again; prints the tables, writes no page."
)


def run(study: Study, train_dir: str, num_jobs: int) -> int:
    """Trains a study's runs that are not in its results, and adds them. Returns the sweep's code."""
    found = results.load(study)  # fails now, rather than after hours
    code = num_added = 0
    if results.missing(study, found):
        prepare(study)
        words = (f"--train_dir={train_dir}", f"--jobs={num_jobs or study.jobs}")
        code = sweep.main([*words, *study.sweep_words()], results.known(found))
        num_added = results.collect(study, train_dir) if code != 2 else 0
    print(f"{num_added} runs added to {study.path}", flush=True)
    return code


def run_again(study: Study, train_dir: str, num_jobs: int) -> int:
    """Trains all of a study's runs, apart from its results, and prints their tables. Returns the sweep's code."""
    again = dataclasses.replace(study, folder=str(pathlib.Path(train_dir, "again")))
    pathlib.Path(again.folder).mkdir(parents=True, exist_ok=True)
    code = run(again, again.folder, num_jobs)
    for lines in page.tables(again, results.counted(again)):
        print("\n".join([*lines, ""]))
    return code


def prepare(study: Study) -> None:
    """Makes what a study's runs read, once. Raises UserError: a command failed."""
    done = pathlib.Path(study.prepared, "done")
    if not study.prepare or done.exists():
        return
    shutil.rmtree(study.prepared, ignore_errors=True)  # leftovers of a preparation that did not end
    for words in study.prepare:
        print(f"python -m {words}", flush=True)
        if subprocess.run([sys.executable, "-m", *shlex.split(words)]).returncode:
            raise UserError(f"{study.name}: `python -m {words}` failed")
    done.touch()


def write_pages() -> None:
    """Writes the pages, the README's table and the figures. Raises UserError, with nothing written: of the results."""
    texts = page.pages(list(STUDIES.values()))
    readme_text = readme.with_table(readme.PATH.read_text(), STUDIES)
    images = {f"{study.name}.png": data for study in STUDIES.values() if (data := figures.figure(study))}
    for folder in (page.FOLDER_OF_PAGES, figures.IMAGES):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for name, text in texts.items():
        (page.DOCS / name).write_text(text)
    for name, data in images.items():
        (figures.IMAGES / name).write_bytes(data)
    readme.PATH.write_text(readme_text)


def main(argv: Sequence[str]) -> int:
    try:
        match argv[1:]:
            case [] if not _AGAIN.value:
                write_pages()
            case ["list"] if not _AGAIN.value:
                for study in STUDIES.values():
                    print(f"{study.name} ({len(results.load(study)['runs'])} runs done): {study.question}")
            case ["run", name] if name in STUDIES and _AGAIN.value:
                return run_again(STUDIES[name], _TRAIN_DIR.value, _JOBS.value)
            case ["run", name] if name in STUDIES:
                code = run(STUDIES[name], _TRAIN_DIR.value, _JOBS.value)
                write_pages()
                return code
            case _:
                words = " ".join(argv[1:]) or "--again"
                usage = f"write `list` or `run NAME`, --again with `run`; the studies are {', '.join(STUDIES)}"
                raise UserError(words + nearest_first(words.split()[-1], STUDIES, usage))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    run_app(main, takes_words=True)
