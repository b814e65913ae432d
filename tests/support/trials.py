"""Trials of faults: tests declare which fault they try. The table in docs/faults.md names both."""

import ast
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

Test = TypeVar("Test", bound=Callable)
TESTS = pathlib.Path(__file__).resolve().parents[1]
# Faults, and what the program does, in words for users.
FAULTS: Mapping[str, tuple[str, str]] = {
    "corrupt checkpoint": (
        "a corrupt checkpoint",
        "each array, and the JSON beside them, has a checksum: damage of a single byte is noticed, by resuming, "
        "evaluation and all else that loads. Parameters that are not finite are not loaded. It is set aside for "
        "an older one, with a line. Without an older one the run stops; it never starts anew by itself",
    ),
    "full disk": (
        "the disk of `--train_dir` is full",
        "a warning at each save that fails. Training goes on, labels are kept in memory until they can be "
        "written, the last good checkpoint stays. Games need room in `$TMPDIR`: without it no actor can start, "
        "and the run ends and says so. Where the last save fails, the run ends with exit code 1, a line that says"
        " how many steps are lost, and the state `unsaved`",
    ),
    "kill": (
        "`kill -9`, at any moment",
        "start again with the same command, or `--resume FOLDER`. The newest whole checkpoint is used and named, "
        "every committed label is there, and what the dead processes left in the temporary folder is removed, a "
        "hanging actor included",
    ),
    "actor lost": (
        "an actor process dies, crashes or does not answer for 60 s (600 s until its first step, which may "
        "compile), be it in the middle of a long reply",
        "the unfinished trajectories of its games are dropped, and a new process with new games takes its place. "
        "More than `--max_actor_restarts` in ten minutes end the run, with the last one's words",
    ),
    "answering process lost": (
        "the run's judge, or the process that asks and looks up recorded answers, is killed, or stopped for 60 s",
        "a line; it is started again, the judge where it was, and asked what had no answer yet. "
        "`annotation/restarts` counts it",
    ),
    "answering process lost often": (
        "the run's judge, or the process that asks, is lost more than 10 times in ten minutes, or fails by an "
        "error of its code",
        "the run ends with a line that says so",
    ),
    "second start": (
        "a program that writes a folder is started twice",
        "the second start is refused in a line, with exit code 2; also when the folder of the first was renamed, "
        "removed, emptied or replaced, under its old name and its new one",
    ),
    "second start elsewhere": (
        "the same on a disk without locks, or on another host",
        "refused as well, by files beside the folder: [network disks](cluster.md#network-disks)",
    ),
    "lock file removed": (
        "a run's lock file is removed",
        "it is made again at once",
    ),
    "generated code stuck": (
        "a generated potential (`bk-code`) does not end its calls, so that its worker is killed",
        "it counts as 0 on these windows. Where it fails on all of the first 8 so, or breaks limits on more than "
        "8 of a batch later, the run ends with a line",
    ),
    "generated code shadows": (
        "a generated potential gives built-ins another meaning, or changes what it sees",
        "nothing that another call sees",
    ),
    "recorded episodes damaged": (
        "recorded episodes hold NaN, inf, text, fractional or negative actions, or arrays larger than they say or"
        " than memory; or are links or pipes",
        "refused in a line, before they are unpacked where it is their size",
    ),
    "numbers of a run damaged": (
        "`summary.json`, the newest row of `metrics.jsonl` or the notes of a checkpoint hold no numbers where "
        "there must be some, or the summary has another checksum",
        "they count as if they were not there; `launch.ls` says `damaged` of the summary",
    ),
    "rows damaged": (
        "rows of `metrics.jsonl` are damaged",
        "each has a checksum: a damaged one is left out, and a line counts them",
    ),
    "label store locked": (
        "another process holds the label store at the start, or writes it for long",
        "a line after 2 s; the start waits, and answers are kept in memory until they can be written",
    ),
    "captions too long": (
        "a caption is longer than 65,536 bytes",
        "nobody is asked about it; a line, once, and it is counted as put aside",
    ),
    "limits": (
        "too few open files are allowed (`ulimit -n`), or a network's size is absurd",
        "a line, exit code 2; where an actor can't be started, 1",
    ),
    "SIGTERM with stopped processes": (
        "SIGTERM comes while processes of the run are stopped",
        "everything is saved, and the run ends within ten seconds, with exit code 0 and the state `stopped`",
    ),
    "codes of a terminal": (
        "names of runs, tasks and models hold codes of a terminal",
        "they are printed escaped",
    ),
    "embeddings of zeros": (
        "the server of embeddings (`--potential_embeddings server`) is away, or answers zeros",
        "`ellm`: goals are suggested when it is back. `bk-goal`: states that are new have the potential 0 until "
        "then; where it was not there at the start, the run ends with a line",
    ),
    "huge reward": (
        "a reward or potential is finite and larger than 1e15",
        "it counts as 1e15",
    ),
    "run's folder lost": (
        "the folder that a run writes is renamed or removed",
        "a line at once. The run saves its last checkpoint, with its settings, where the folder is now, or in "
        "`FOLDER.saved`; it ends with exit code 1 and the state `stopped`, and `--resume` of that folder goes on."
        " Of a removed folder older checkpoints, labels and rows of metrics are gone",
    ),
    "program's folder lost": (
        "the folder that another program writes is renamed or removed",
        "a line at once, and exit code 1. `write_potential`, `write_goals`, `annotate_pairs` and "
        "`annotate_segments` save what was paid for in the folder's new place, or in `FOLDER.saved`, with which "
        "the same command goes on; a sweep starts no more runs; a training of a reward model or of a potential "
        "ends",
    ),
    "files removed": (
        "files in the folder of a run are removed",
        "settings are written again with the next checkpoint",
    ),
    "damaged rows": (
        "rows of the label store are damaged",
        "each has a checksum: a damaged one is left out, a line counts them, and a run asks again and replaces them",
    ),
    "log damaged": (
        "the log of the label store (`labels.sqlite-wal`), which a killed run left, is damaged",
        "a line; answers before the damage are read, a copy of the log is kept, and a run asks again for the rest. A "
        "log that is missing, cut, or another store's is not noticed",
    ),
    "program killed or stopped": (
        "a program that writes a folder is killed, or gets SIGTERM",
        "after a kill the same command starts again. At SIGTERM the program ends within seconds, without a traceback, "
        "and leaves no process",
    ),
    "conversation damaged": (
        "`answers.jsonl` of `write_potential` or `write_goals` is damaged, its lines are mixed up, or it is that of "
        "another conversation",
        "each answer has a checksum, and one of all before it: the program names the line that is damaged, or does "
        "not follow, and asks nothing; exit code 2",
    ),
    "evaluation damaged": (
        "a file of `launch.evaluate --json` is damaged",
        "it has a checksum: `launch.report` refuses it in a line",
    ),
    "input damaged": (
        "a file that a program reads is damaged: bits, cut, empty, doubled, text, other types, nested deeply",
        "a line, and exit code 2; or the damaged part is left out, with a line. Never a traceback",
    ),
    "program's disk full": (
        "the disk is full where another program writes",
        "a line, and an exit code other than 0. No half a file stays, and what was there is as it was",
    ),
    "label store lost": (
        "the label store is removed, cut, overwritten or replaced while a run uses it",
        "a line within seconds. What lies there is moved to `labels.sqlite.damaged`, and all answers that the run"
        " has read or got are written again",
    ),
    "links and pipes": (
        "a link, a pipe, a device or a folder takes the place of a file of a run",
        "it is not followed or waited for: a line, or as if the file were not there; a recording is left out of "
        "the report",
    ),
    "settings damaged": (
        "`config.json` is damaged, or was edited",
        "a line. Where it is no settings any more, the program ends with it, and exit code 2",
    ),
    "files of another run": (
        "a summary, rows of metrics, a checkpoint or the settings of another run take the place of a run's",
        "each names its run: the summary counts as damaged, rows are left out and counted, a checkpoint is set aside "
        "for an older one, with a line; without one the run is not resumed. Files of versions without such names may "
        "be any run's",
    ),
    "kept files damaged": (
        "what a run keeps of plugins and prompts is damaged",
        "a line; the files of today, where they were, are used in its place",
    ),
    "progress damaged": (
        "the progress of a checkpoint is damaged, or of another step",
        "it is set aside for an older checkpoint, with a line",
    ),
    "report's files": (
        "a file in `recordings/` is no GIF or MP4, an evaluation beside a run is damaged, or a link or a pipe",
        "it is left out of the report, or of the card of `launch.export`; a line says so",
    ),
}


def trial(fault: str) -> Callable[[Test], Test]:
    """Declares that a test tries a fault of FAULTS."""
    assert fault in FAULTS, f"{fault}: describe it in {__file__}"
    return lambda test: test


def trials() -> Iterator[tuple[str, str, pathlib.Path]]:
    """Yields the fault, the name and the file of each test that declares one, without importing it."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == trial.__name__:
                    yield ast.literal_eval(call.args[0]), node.name, path


def faults_table() -> str:
    """The table of docs/faults.md."""
    tests: dict[str, list[str]] = {fault: [] for fault in FAULTS}
    for fault, name, path in trials():
        tests[fault].append(f"[`{name}`](../{os.path.relpath(path, TESTS.parent)})")
    untried = [fault for fault, found in tests.items() if not found]
    assert not untried, f"no test tries {', '.join(untried)}"
    rows = [f"| {' | '.join(FAULTS[fault])} | {', '.join(found)} |" for fault, found in tests.items()]
    return "\n".join(["", "| what happens | what the program does | tests |", "|---|---|---|", *rows, ""])
