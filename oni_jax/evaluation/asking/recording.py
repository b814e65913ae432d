"""The program launch.answers: lists, shows, exports, checks and makes files of recorded answers."""

import collections
import csv
import dataclasses
import datetime
import io
import os
from collections.abc import Sequence

import numpy as np

from oni_jax.annotation import label_store
from oni_jax.annotation.judge_answers import describe_judge
from oni_jax.annotation.prompts import Prompt, escape, unescape
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.annotation.stored import checked
from oni_jax.answers.answerer import SUFFIX, models_of, shipped
from oni_jax.answers.form import NO_GOAL, AnswerFile, Header, Row, goals_of, read_answers, write_answers
from oni_jax.envs.registry import languages
from oni_jax.host.files import check_output, write_output
from oni_jax.host.plugins import load_plugins
from oni_jax.host.reporting import report
from oni_jax.runs.labels import store_path
from oni_jax.runs.run import Run
from oni_jax.settings.annotation import JUDGE, AnnotationConfig
from oni_jax.settings.config import check_values
from oni_jax.settings.fields import UserError, counted, nearest_first, printable, setting
from oni_jax.types import NO_MESSAGE, Item


@dataclasses.dataclass(frozen=True)
class AnswersConfig:
    """Recorded answers to list, show, export or check; or a run, whose answers become a file. Alone: lists."""

    show: str = setting("", "The package's answers, such as nethack_classification, or a file: shows some of them.")
    goal: str = setting("", "Goal key to show answers under; empty: all.")
    message: str = setting("", "Caption to show the answers of; may be given several times.", repeated="\0")
    num_messages: int = setting(20, "Items shown, the most frequent first.", within="[1, inf)")
    csv: str = setting("", "File for all answers of --show, or all captions of --missing.")
    verify: str = setting("", "File to check.")
    add: str = setting("", "Folder of a run whose stored answers are written to --out, added to those there.")
    out: str = setting("", f"File for the answers of --add or --sample; its name ends in {SUFFIX}, or .jsonl.")
    licence: str = setting("Apache-2.0", "Licence in the header of --out.")
    missing: str = setting(
        "", "Folder of a run: the captions that it met and has no answer to, the most frequent first."
    )
    uncertain: int = setting(
        0,
        "--missing: so many captions alone, those whose answers the run's model is least certain of, weighted by how "
        "often they were met; 0: all.",
        within="[0, inf)",
    )
    sample: int = setting(0, "--show with --out: writes so many items, chosen at random, to a file.", within="[0, inf)")
    seed: int = setting(1, "Seed of --sample.", within="[0, inf)")
    plugin: str = setting(
        "", "Module that registers your environment or kind of query; may be given several times.", repeated=","
    )


def check_answers(config: AnswersConfig) -> None:
    """Raises UserError: bad values, or several things at a time."""
    check_values(config)
    given = [name for name in ("show", "verify", "add", "missing") if getattr(config, name)]
    if len(given) > 1:
        raise UserError(f"--{given[0]} and --{given[1]}: one at a time")
    if (config.message or config.goal) and not config.show:
        raise UserError('--message and --goal are of --show; write --show nethack_classification --message "..."')
    if config.csv and not (config.show or config.missing):
        raise UserError(f"--csv {config.csv}: of what? add --show or --missing")
    if bool(config.add or config.sample) != bool(config.out):
        raise UserError("--out FILE goes with --add RUN, or with --show NAME --sample NUMBER, and these need it")
    if config.sample and not config.show:
        raise UserError(f"--sample {config.sample}: of what? add --show")
    if config.uncertain and not config.missing:
        raise UserError(f"--uncertain {config.uncertain}: of what? add --missing RUN")
    if config.out and not config.out.endswith((SUFFIX, ".jsonl")):
        raise UserError(f"--out {config.out}: its name must end in {SUFFIX} or .jsonl")
    for name in ("csv", "out"):
        if path := getattr(config, name):
            check_output(name, path)
            if os.path.realpath(path) == os.path.realpath(config.show):
                raise UserError(f"--{name} {path}: is the file of --show, whose answers would be lost; name another")


def run_answers(config: AnswersConfig) -> int:
    """Does what the settings say. Returns the exit code 0. Raises UserError: bad files, or no such run."""
    load_plugins(config.plugin)
    if config.verify:
        path, file = _find(config.verify, "verify")
        report(f"whole: {_described(path, file)}")
    elif config.show:
        _show(config)
    elif config.add:
        _add(config)
    elif config.missing:
        _list_missing(config)
    else:
        for path in shipped():
            report(_described(path.name.removesuffix(SUFFIX), read_answers(str(path), languages())))
    return 0


def _described(name: str, file: AnswerFile) -> str:
    header = file.header
    goals = "" if header.goals == (NO_GOAL,) else f" under {', '.join(header.goals)}"
    asked = f"{header.kind} in {header.environment}{goals}"
    return f"{name}: {len(file.rows):,} items, {asked}; by {header.made_by}; {header.licence or 'no licence named'}"


def _find(name: str, flag: str) -> tuple[str, AnswerFile]:
    """Reads the package's answers of a name, or a file. Raises UserError, naming the flag."""
    known = {path.name.removesuffix(SUFFIX): str(path) for path in shipped()}
    if name not in known and not os.path.exists(name):
        files = f"name a file, or one of {', '.join(known)}"
        raise UserError(f"--{flag} {name}: there is no such file{nearest_first(name, known, files)}")
    path = known.get(name, name)
    return path, read_answers(path, languages())


def _show(config: AnswersConfig) -> None:
    path, file = _find(config.show, "show")
    if config.sample:
        _write_sample(config, file)
        return
    header, kind = file.header, QUERIES[file.header.kind]
    if config.goal and config.goal not in header.goals:
        raise UserError(f"--goal {config.goal}: {path} has answers under {', '.join(filter(None, header.goals))}")
    chosen = [config.goal] if config.goal else header.goals
    columns = [header.goals.index(goal) for goal in chosen]

    def said(row: Row, column: int) -> str:
        answer = row.answers[column]
        text = "" if answer is None else "; ".join(kind.read_as(answer))
        return printable(text)

    if config.csv:
        out, num_rows = io.StringIO(newline=""), 0
        writer = csv.writer(out)
        writer.writerow([*(x.strip("{}") for x in kind.placeholders), *(goal or "answer" for goal in chosen), "count"])
        for item, row in file.rows.items():
            answers = [said(row, column) for column in columns]
            if any(answers):
                writer.writerow([*map(_cell, [*map(escape, item), *answers]), row.count])
                num_rows += 1
        write_output("csv", config.csv, out.getvalue().encode())
        report(f"{config.csv}: {num_rows:,} items")
        return
    report(_described(path, file))
    for item in _asked_for(config, file):
        report(" | ".join(escape(caption) or NO_MESSAGE for caption in item))
        for goal, column in zip(chosen, columns):
            text = said(file.rows[item], column) if item in file.rows else "no answer"
            report(f"  {goal}: {text}" if goal else f"  {text}")


def _cell(text: str) -> str:
    """Returns a text for a CSV file, such that no spreadsheet takes it for a formula; `unescape` inverts it."""
    return f"\\x{ord(text[0]):02x}{text[1:]}" if text.startswith(("=", "+", "-", "@")) else text


def _write_sample(config: AnswersConfig, file: AnswerFile) -> None:
    """Writes items chosen at random: of equal seeds a smaller sample is part of a larger one."""
    items = [*file.rows]
    if config.sample > len(items):
        raise UserError(f"--sample {config.sample}: there are {len(items):,} items")
    chosen = np.random.default_rng(config.seed).permutation(len(items))[: config.sample]
    sample = file._replace(rows={items[i]: file.rows[items[i]] for i in chosen})
    _write(config.out, sample)
    report(_described(config.out, sample))


def _write(out: str, file: AnswerFile) -> None:
    """Writes a file of answers. Raises UserError: it can't be written."""
    try:
        write_answers(out, file, languages())
    except OSError as error:
        raise UserError(f"--out {out}: can't be written ({error.strerror})") from None


def _asked_for(config: AnswersConfig, file: AnswerFile) -> list[Item]:
    """Returns the items to show: those of the messages, else the most frequent."""
    if not config.message:
        items = sorted(file.rows, key=lambda item: -file.rows[item].count)
        return items[: config.num_messages]
    captions = [unescape(text) for text in config.message.split("\0")]
    items: list[Item] = [(caption,) for caption in captions]
    if len(QUERIES[file.header.kind].placeholders) > 1:
        items = [item for item in file.rows if {*item} & {*captions}][: config.num_messages]
    return items


def _add(config: AnswersConfig) -> None:
    """Writes the answers of a run's store to a file, added to those there; an answer that is there stays.

    Raises:
        UserError: it asks nothing, or several kinds of query, or see `_add_question`.
    """
    run = Run(config.add)
    kinds = {name for _, name in run.plan.questions}
    if len(kinds) != 1:
        raise UserError(f"--add {config.add}: asks {len(kinds)} kinds of query; a run with one becomes a file")
    for annotation, name in run.plan.questions:
        _add_question(config, run, annotation, name)


def _add_question(config: AnswersConfig, run: Run, annotation: AnnotationConfig, name: str) -> None:
    """Adds the answers to one question of a run, which has several where its agent has several goals.

    Raises:
        UserError: nobody was asked whose answers a file can hold, or the file holds others.
    """
    language, path, out = run.plan.language, store_path(run.plan.config, config.add), config.out
    if not (language and language.name):
        raise UserError(f"--add {config.add}: the Language of its environment has no name; give it one")
    if annotation.goal or annotation.prompt_file or annotation.prompt_version != AnnotationConfig.prompt_version:
        raise UserError(
            f"--add {config.add}: was asked by --goal, --prompt_file or --prompt_version, which no goal key names"
        )
    if not os.path.exists(path):
        raise UserError(f"--add {config.add}: there is no label store {path}")
    kind = QUERIES[QUERIES[name].asks_as or name]
    if not annotation.llm_server_addr and annotation.answers != JUDGE:
        raise UserError(f"--add {config.add}: asked nobody, its answers are recorded ones; name a run with a server")
    model = annotation.llm_model if annotation.llm_server_addr else next(iter(models_of(annotation, language, name)))
    if describe_judge(model):
        raise UserError(f"--add {config.add}: the {describe_judge(model)}, gave its answers")
    prompt = run.plan.prompt(annotation, name)
    with label_store.opened(path) as store:
        stored = checked(kind, store.all(model, prompt.digest))
    if not stored:
        raise UserError(f"--add {config.add}: its label store holds no answers of {model}")
    goal = annotation.goal_key if goals_of(language, kind.name) != [NO_GOAL] else NO_GOAL
    month = datetime.date.today().strftime("%Y-%m")
    before = read_answers(out, languages()) if os.path.exists(out) else None
    header = before.header if before else Header(language.name, kind.name, (goal,), model, month, config.licence)
    if (header.environment, header.kind, header.model) != (language.name, kind.name, model):
        raise UserError(
            f"--out {out}: holds {header.kind} in {header.environment} by {header.model}, and the run {kind.name} in "
            f"{language.name} by {model}; name another file"
        )
    goals = tuple(dict.fromkeys((*header.goals, goal)))
    column, counts = goals.index(goal), _counts(run, prompt)
    none: tuple[bytes | None, ...] = (None,) * len(goals)
    there = before.rows.items() if before else ()
    rows = {item: Row((*row.answers, *none[len(row.answers) :]), row.count) for item, row in there}
    num_new = 0
    for item, answer, _ in stored:
        row = rows.get(item, Row(none, counts[item[0]] if len(item) == 1 else 0))
        if row.answers[column] is None:
            row, num_new = Row((*row.answers[:column], answer, *row.answers[column + 1 :]), row.count), num_new + 1
        rows[item] = row
    file = AnswerFile(header._replace(goals=goals), rows)
    _write(out, file)
    report(f"{counted(num_new, 'answer')} added; {_described(out, file)}")


def _counts(run: Run, prompt: Prompt) -> collections.Counter[bytes]:
    """Returns how often a run met what the LLM was asked about."""
    asked = collections.Counter[bytes]()
    for caption, count in run.captions().items():
        asked[prompt.rewrite(caption)] += max(0, int(count))
    return asked


def _least_certain(of: Run, met: Sequence[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
    """Returns captions and counts, sorted by what a run's model expects to get wrong of their steps, the most first.

    Raises:
        UserError: the run has no model of the answers, or it reads more than captions.
    """
    run = of.rewards()
    asking = next((i for i, term in enumerate(run.rewards.terms) if term.question >= 0), 0)
    learning, state = run.rewards.terms[asking].reward.learning, run.rewards.states(run.state)[asking]
    doubts = learning.doubts(state, [caption for caption, _ in met])
    if doubts is None:
        raise UserError(
            f"--uncertain: {of.folder} has no model of the answers that reads captions alone; use a run of "
            "--goal_suggester model, of --llm_reward_type online_cls_reward_model, or with --unanswered model"
        )
    weights = doubts * np.array([count for _, count in met])
    return [met[i] for i in np.argsort(-weights, kind="stable")]


def _list_missing(config: AnswersConfig) -> None:
    """Lists the captions, as the LLM would be asked about them, that a run met and has no answer to."""
    run = Run(config.missing)
    asked = run.plan.questions
    if not asked:
        raise UserError(f"--missing {config.missing}: the run asks nothing")
    annotation, name = asked[0]
    if len(QUERIES[name].placeholders) != 1:
        raise UserError(
            f"--missing {config.missing}: it asks about {len(QUERIES[name].placeholders)} captions at a time"
        )
    prompt = run.plan.prompt(annotation, name)
    met = _counts(run, prompt)
    known = {row.item for row in run.annotations() if row.question == 0}
    missing = [(caption, count) for caption, count in met.most_common() if caption and (caption,) not in known]
    steps, all_steps = sum(count for _, count in missing), max(1, met.total())
    num_missing = len(missing)
    if config.uncertain:
        missing = _least_certain(run, missing)[: config.uncertain]
    report(f"{num_missing:,} of {counted(len(met), 'caption')} have no answer, {steps / all_steps:.2%} of the steps")
    if config.csv:
        out = io.StringIO(newline="")
        writer = csv.writer(out)
        writer.writerow(["message", "count"])
        writer.writerows([_cell(escape(caption)), count] for caption, count in missing)
        write_output("csv", config.csv, out.getvalue().encode())
        report(config.csv)
        return
    for caption, count in missing[: config.num_messages]:
        report(f"{count:>10,}  {escape(caption) or NO_MESSAGE}")
