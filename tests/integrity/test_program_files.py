"""Programs that write files: what they read is damaged, and the disk is full. A line each, and no half a file."""

import contextlib
import importlib
import itertools
import os
import pathlib
import shutil
import signal
import time
from collections.abc import Callable

import numpy as np
import pytest

from oni_jax.published.importing import UNFINISHED
from oni_jax.runs.run import Run
from tests.integrity.programs import BABYAI, NETWORK, labelled_segments
from tests.offline.pairs import random_dataset
from tests.published.test_published import golden_weights
from tests.support.full_disk import full_disk
from tests.support.launched import Launched
from tests.support.trials import trial

# Program, and an index where it has several uses -> the folder or file that it reads, and its words.
# {in} is a copy of what it reads, {out} a new folder.
PROGRAMS = {
    "evaluate": ("run", "--train_dir={above} --experiment=run --episodes=2 --num_workers=1 --json={out}/e.json"),
    "evaluate films": (
        "run",
        "--train_dir={above} --experiment=run --episodes=2 --num_workers=1 --record=1 --recordings_dir={out}",
    ),
    "evaluate file": ("run.zip", "--file={in} --episodes=2 --num_workers=1 --csv={out}/e.csv"),
    "report": ("run", "--train_dir={above} --experiment=run --html={out}/r.html"),
    "plot": ("run", "run --train_dir={above} --plots_dir={out}"),
    "inspect_reward": ("run", "--train_dir={above} --experiment=run --csv={out}/c.csv"),
    "export": ("run", "{in} --out={out}/a.zip"),
    "import": ("run.zip", "{in} --train_dir={out}"),
    "import_checkpoint": (
        "policy.npz",
        "--policy={in} --root_env=NetHackScoreExtendedActions-v1 --llm_reward_type=none --train_dir={out} "
        "--experiment=m",
    ),
    "train_goals": ("goals.jsonl", "--answers={in} --out={out}/m --reward_model_batch_size=16"),
    "collect_pairs": ("data", "--directory={out}/new --num_env_steps=400"),
    "answers sample": ("answers.jsonl", "--show={in} --sample=5 --out={out}/s.jsonl"),
    "answers csv": ("answers.jsonl", "--show={in} --csv={out}/a.csv"),
    "answers missing": ("run", "--missing={in} --csv={out}/m.csv"),
    "train": ("run", "--resume={in} --train_for_env_steps=768"),
    "train_reward": (
        "data",
        "--dataset_dir={in} --annotator=score --train_dir={out} --experiment=m --num_epochs=1 --encoder_msg_model=none "
        "--use_blstats --encoder_embedding_dim=16 --encoder_hidden_dim=16",
    ),
    "train_potential": ("labelled", f"{BABYAI} --reward_dir={{in}} {NETWORK} --num_epochs=1"),
    "annotate_pairs": ("data", "--directory={in} --annotator=score --custom_annotator_string=new"),
    "annotate_segments": ("segments", f"{BABYAI} --segments={{in}} --reward_dir={{out}} --num_pairs=8 --answers=judge"),
    "write_potential": ("segments", f"{BABYAI} --segments={{in}} --reward_dir={{out}} --answers=judge"),
    "write_goals": ("segments", f"{BABYAI} --segments={{in}} --reward_dir={{out}} --answers=judge --num_rounds=2"),
    "collect_segments": (
        "run", "--train_dir={above} --experiment=run --directory={out}/new --episodes=2 --num_workers=1"
    ),
}  # fmt: skip
SAVED = 512  # environment steps of the run
QUICK = ("report", "annotate_pairs")
programs = pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in PROGRAMS]
)


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    spoilt = bytearray(content)
    for place in rng.integers(len(content), size=3) if content else ():
        spoilt[place] ^= 1 << int(rng.integers(8))
    return bytes(spoilt)


DAMAGES: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
    "bits": flip,
    "cut": lambda content, rng: content[: int(rng.integers(len(content) + 1))],
    "empty": lambda content, rng: b"",
    "text": lambda content, rng: b"a text\n" * 9,
    "deep": lambda content, rng: b"[" * 100_000,
    "types": lambda content, rng: b'{"env_steps": [], "secs": {}, "progress": NaN}\n',
    "twice": lambda content, rng: content * 2,
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory) -> pathlib.Path:
    """A folder with all that the programs read."""
    folder = tmp_path_factory.mktemp("workshop")
    run = f"{BABYAI} --encoder_custom=mlp_encoder --hidden_size=8 --num_workers=1 --num_envs_per_worker=8 "
    run += "--batch_size=256 --rollout=16 --recurrence=16 --max_episode_steps=20 --llm_reward_type=online_cls "
    run += "--llm_reward_coeff=0.3 --answers=judge "
    run += f"--train_for_env_steps={SAVED} --save_every_steps={SAVED // 2} "
    assert called("train", [*run.split(), f"--train_dir={folder}", "--experiment=run"]) == 0
    assert called("export", [f"{folder}/run", f"--out={folder}/run.zip"]) == 0
    sample = f"--show=nethack_classification --sample=50 --out={folder}/answers.jsonl"
    assert called("answers", sample.split()) == 0
    goals = f"--show=crafter_suggestions --sample=50 --out={folder}/goals.jsonl"
    assert called("answers", goals.split()) == 0
    np.savez(folder / "policy.npz", **golden_weights("policy_and_loss"))  # type: ignore
    random_dataset(folder / "data")
    assert called("annotate_pairs", [f"--directory={folder}/data", "--annotator=score"]) == 0
    labelled_segments(folder / "segments", folder / "labelled")
    return folder


def called(program: str, words: list[str]) -> int:
    """Runs a program in this process. Returns its exit code."""
    return importlib.import_module(f"launch.{program}").main(words)


@contextlib.contextmanager
def laid_out(workshop: pathlib.Path, folder: pathlib.Path, program: str):
    """Yields a copy of what a program reads, and its words."""
    name, words = PROGRAMS[program]
    source, copy, out = workshop / name, folder / "in" / name, folder / "out"
    copy.parent.mkdir(parents=True)
    out.mkdir()
    fleeting = shutil.ignore_patterns("*.sqlite-*")  # files of SQLite's, which go when the store is closed
    shutil.copytree(source, copy, ignore=fleeting) if source.is_dir() else shutil.copy(source, copy)
    places = {"in": copy, "above": copy.parent, "out": out}
    yield copy, words.format(**places).split()
    shutil.rmtree(folder)


def files(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(x for x in path.rglob("*") if x.is_file()) if path.is_dir() else [path]


def is_read(path: pathlib.Path) -> bool:
    """Returns whether a program may read a file: of a run's checkpoints, the newest."""
    unread = ("lock", "sqlite-", "tensorboard", "commit_success", "ocdbt.process", f"/{SAVED // 2}/")
    return not any(part in str(path) for part in unread)


def check_words(code: int, out: str, err: str, what: str) -> None:
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in out + err, f"{what}\n{out}{err}"
    assert len(lines) == (code != 0) and code in (0, 1, 2), f"{what}: {code}\n{out}{err}"


@trial("input damaged")
@programs
def test_program_reads_damaged_files_without_a_traceback(workshop, tmp_path, capsys, program):
    name, _ = PROGRAMS[program]
    kinds, rng = itertools.cycle(DAMAGES), np.random.default_rng(len(program))
    for _ in range(int(rng.integers(len(DAMAGES)))):
        next(kinds)
    for number, path in enumerate(filter(is_read, files(workshop / name))):
        with laid_out(workshop, tmp_path / f"{number}", program) as (copy, words):
            spoilt, kind = copy / path.relative_to(workshop / name), next(kinds)
            spoilt.write_bytes(DAMAGES[kind](path.read_bytes(), rng))
            code = called(program.partition(" ")[0], words)
            check_words(code, *capsys.readouterr(), what=f"{path.relative_to(workshop)}: {kind}")


@trial("program's disk full")
@programs
@pytest.mark.parametrize("max_bytes", [0, 100])
def test_full_disk_ends_a_program_with_a_line_and_leaves_no_half_a_file(workshop, tmp_path, capsys, program, max_bytes):
    with laid_out(workshop, tmp_path / "a", program) as (copy, words):
        before = {path: path.read_bytes() for path in files(copy)}
        with full_disk(max_bytes):
            code = called(program.partition(" ")[0], words)
        check_words(code, *capsys.readouterr(), what=program)
        assert code != 0
        assert not [path for path in files(tmp_path) if path.suffix == ".partial"]
        kept = {path: path.read_bytes() for path in before if path.exists()}
        assert {os.path.relpath(path, copy) for path in before} == {os.path.relpath(path, copy) for path in kept}


@trial("program killed or stopped")
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("program", ["evaluate films", "evaluate file", "report", "import"])
def test_program_that_is_ended_in_the_middle_leaves_whole_files_and_does_all_the_next_time(
    workshop, tmp_path, program, number
):
    module = f"launch.{program.partition(' ')[0]}"
    with laid_out(workshop, tmp_path / "a", program) as (_, words):
        ended = Launched(module, *words)
        time.sleep(3.0)
        ended.process.send_signal(number)
        assert "Traceback" not in ended.finish(60)
        assert ended.leftovers(but_files=number == signal.SIGKILL) == []
        imported = tmp_path / "a" / "out" / "run"
        if imported.exists() and not (imported / UNFINISHED).exists():  # it was done by then
            assert Run(str(imported)).policy()
            shutil.rmtree(imported)
        again = Launched(module, *words)
        assert again.finish(300) and again.process.returncode == 0 and again.leftovers() == [], again.output()
        assert files(tmp_path / "a" / "out")
