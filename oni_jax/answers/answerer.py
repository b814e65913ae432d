"""The answerer of a run's questions: recorded answers, an LLM server, or the rule-based judge (`--answers`)."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from oni_jax.annotation.judge import server_or_judge
from oni_jax.annotation.judge_answers import describe_judge, judge_model
from oni_jax.annotation.prompts import Prompt, load_joint_prompt, load_prompt
from oni_jax.annotation.queries.base import QueryKind
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.annotation.queries.suggestions import StrictSuggestions
from oni_jax.annotation.questions import Question
from oni_jax.annotation.recorded import NOTHING, Recorded
from oni_jax.answers.form import NO_GOAL, AnswerFile, Header, read_answers
from oni_jax.envs.base import Language
from oni_jax.envs.registry import languages
from oni_jax.host.reporting import report
from oni_jax.host.restarts import Restarts
from oni_jax.settings.annotation import BY_GOAL, JUDGE, RECORDED, AnnotationConfig, EmbeddedJudgeConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.types import Item

FOLDER = pathlib.Path(__file__).with_name("data")
SERVER, NOBODY = "server", ""
SUFFIX = ".jsonl.gz"


class Answerer(NamedTuple):
    """Whose answers come first, and who is asked for the rest."""

    file: AnswerFile | None
    path: str  # path of the file
    asks: str  # SERVER, JUDGE or NOBODY


def shipped() -> list[pathlib.Path]:
    """Returns the files of answers that come with the package."""
    return sorted(FOLDER.glob(f"*{SUFFIX}"))


def shipped_path(environment: str, kind: str) -> pathlib.Path:
    """Returns the path of the package's file of an environment and a kind of query, which need not be there."""
    return FOLDER / f"{environment}_{QUERIES[kind].asks_as or kind}{SUFFIX}"


def find_answerer(config: AnnotationConfig, language: Language | None, kind: str) -> Answerer:
    """Finds who answers a question.

    Named by `--answers`; else a server that is named; else recorded answers of the package, where environment, kind of
    query and goal have some; else the judge.

    Raises:
        UserError: the answers that are named are not there, or don't fit.
    """
    rest = SERVER if config.llm_server_addr else NOBODY
    if config.answers == JUDGE:
        return _judge(kind)
    if config.answers not in ("", RECORDED):
        return Answerer(_named(config, language, kind), config.answers, rest)
    path, problem = _unsuited(config, language, kind)
    if config.answers == RECORDED and problem:
        raise UserError(f"--answers {RECORDED}: {problem}; name a file, --answers {JUDGE}, or an --llm_server_addr")
    if problem or (not config.answers and (rest or config.judge != EmbeddedJudgeConfig())):
        return Answerer(None, "", rest) if rest else _judge(kind)
    assert language
    return Answerer(_read(path, language), path, rest)


def _judge(kind: str) -> Answerer:
    """Returns that the judge answers. Raises UserError: he has no answers of this kind, or none read as published."""
    if type(QUERIES[kind]).judge is QueryKind.judge:
        raise UserError(f"the rule-based judge can't answer queries of the kind {kind}: name an --llm_server_addr")
    if kind == StrictSuggestions.name:
        raise UserError("--goal_parser strict: can't read the rule-based judge, who says more; use tolerant")
    return Answerer(None, "", JUDGE)


def with_chosen_answers(
    config: Config, asked: Sequence[tuple[AnnotationConfig, str]], language: Language | None
) -> Config:
    """Returns a run's settings with an empty `--answers` replaced by who answers its questions, for its later starts.

    Raises:
        UserError: see `find_answerer`.
    """
    found = [(settings, find_answerer(settings, language, kind).file is not None) for settings, kind in asked]

    goals = config.goals()

    def chosen(settings: AnnotationConfig) -> AnnotationConfig:
        if settings.answers or settings.llm_server_addr:
            return settings
        asks = [dataclasses.replace(settings, goal_key=key) for key in goals or [settings.goal_key]]
        are_recorded = {is_recorded for asking, is_recorded in found if asking in asks}
        if len(are_recorded) != 1:  # nothing is asked, or one kind of query has answers and another has none
            return settings
        return dataclasses.replace(settings, answers=RECORDED if are_recorded.pop() else JUDGE)

    others = tuple((reward, chosen(annotation)) for reward, annotation in config.others)
    return dataclasses.replace(config, annotation=chosen(config.annotation), others=others)


def models_of(config: AnnotationConfig, language: Language | None, kind: str) -> dict[str, str]:
    """Returns the models whose answers a question's are, the first first, and who each is, in words."""
    file, _, asks = find_answerer(config, language, kind)
    found = {file.header.model: file.header.made_by} if file else {}
    if asks == SERVER:
        words = describe_judge(config.llm_model) or config.llm_model
        found.setdefault(config.llm_model, f"{words} at {config.llm_server_addr}")
    elif asks == JUDGE:
        found[judge_model(config)] = ""
    return found


def answered_by(config: AnnotationConfig, language: Language | None, kind: str) -> str:
    """Returns the names of the models whose answers a question's are."""
    return " + ".join(models_of(config, language, kind))


def open_questions(
    asked: Sequence[tuple[AnnotationConfig, str]],
    language: Language | None,
    stack: ExitStack,
    shares_cpu: bool = False,
    restarts: Restarts | None = None,
) -> list[Question]:
    """Makes questions of settings and kinds of query; starts the embedded judge where it answers.

    Args:
        asked: settings and kind of query of each.
        language: the environment's.
        stack: ends what is started.
        shares_cpu, restarts: see `server_or_judge`.

    Raises:
        UserError: bad prompts or answers, or a required server that does not answer.
    """
    found = [find_answerer(config, language, kind) for config, kind in asked]
    servers: dict[AnnotationConfig, AnnotationConfig] = {}  # settings apart from the goal -> server
    for (config, _), answerer in zip(asked, found):
        if answerer.asks and (any_goal := dataclasses.replace(config, goal_key="")) not in servers:
            servers[any_goal] = stack.enter_context(server_or_judge(config, language, shares_cpu, restarts))

    def serving(config: AnnotationConfig) -> AnnotationConfig:
        return dataclasses.replace(servers[dataclasses.replace(config, goal_key="")], goal_key=config.goal_key)

    questions = []
    for (config, kind), (file, path, asks) in zip(asked, found):
        recorded = NOTHING
        if file:
            recorded = Recorded(file.header.model, file.under(_goal(config, file.header)))
            rest = f"{config.llm_model} is asked for others" if asks else "nobody is asked for others"
            under = f" under {config.goal_key}" * (len(asked) > 1)
            report(f"{kind}{under}: {len(recorded.answers):,} answers of {file.header.made_by} ({path}); {rest}")
        questions.append(Question(serving(config) if asks else config, load_prompt(config, language, kind), recorded))
    return [
        question._replace(joint=joint) for question, joint in zip(questions, _joint_prompts(asked, questions, language))
    ]


def _joint_prompts(
    asked: Sequence[tuple[AnnotationConfig, str]], questions: Sequence[Question], language: Language | None
) -> list[Prompt | None]:
    """Returns the prompt that asks each question together with those of other goals; None: it is asked by itself."""

    def apart_from_goal(index: int) -> object:
        config, kind = asked[index]
        is_joint = config.llm_answer == BY_GOAL and questions[index].config.llm_server_addr
        return (dataclasses.replace(config, goal_key=""), kind) if is_joint else index

    together: dict[object, list[int]] = {}
    for index in range(len(asked)):
        together.setdefault(apart_from_goal(index), []).append(index)
    joint: list[Prompt | None] = [None] * len(asked)
    for indices in together.values():
        if len(indices) > 1:
            (config, kind), goals = asked[indices[0]], [asked[index][0].goal_key for index in indices]
            prompt = load_joint_prompt(config, goals, language, kind)
            for index in indices:
                joint[index] = prompt
    return joint


def recorded_answers(config: AnnotationConfig, language: Language | None, kind: str) -> Mapping[Item, bytes]:
    """Returns the recorded answers to a question; none where others answer. Raises UserError: see `find_answerer`."""
    file = find_answerer(config, language, kind).file
    return file.under(_goal(config, file.header)) if file else {}


def _unsuited(config: AnnotationConfig, language: Language | None, kind: str) -> tuple[str, str]:
    """Returns the path of the package's file for a question, and why it does not answer it; "": it does."""
    if not (language and language.name):
        return "", "this environment has no recorded answers"
    path = shipped_path(language.name, kind)
    if not path.exists():
        known = ", ".join(x.name.removesuffix(SUFFIX) for x in shipped())
        return "", f"there are none for {kind} in {language.name} (there are: {known})"
    if config.goal or config.prompt_file or config.prompt_version != AnnotationConfig.prompt_version:
        return "", "they were given to the package's prompts, not to --goal, --prompt_file or another version"
    header = _read(str(path), language).header
    if _goal(config, header) not in header.goals:
        return "", f"there are none under --goal_key {config.goal_key}; there are under {', '.join(header.goals)}"
    return str(path), ""


def _named(config: AnnotationConfig, language: Language | None, kind: str) -> AnswerFile:
    """Reads the file of --answers for a question. Raises UserError."""
    path = config.answers
    if not (language and language.name):
        raise UserError(f"--answers {path}: this environment's Language has no name, so no file can be of it")
    if not os.path.isfile(path):
        raise UserError(f"--answers {path}: is neither {RECORDED}, {JUDGE}, nor a file")
    file = _read(path, language)
    asked = QUERIES[kind].asks_as or kind
    if file.header.kind != asked:
        raise UserError(f"--answers {path}: answers queries of the kind {file.header.kind}, not {asked}")
    if config.goal or config.prompt_file or config.prompt_version != AnnotationConfig.prompt_version:
        raise UserError(
            f"--answers {path}: was given under goal keys, not to --goal, --prompt_file or --prompt_version; leave "
            "these out"
        )
    if _goal(config, file.header) not in file.header.goals:
        raise UserError(
            f"--answers {path}: holds none under --goal_key {config.goal_key}; it has {', '.join(file.header.goals)}"
        )
    return file


def _goal(config: AnnotationConfig, header: Header) -> str:
    return NO_GOAL if header.goals == (NO_GOAL,) else config.goal_key


def _read(path: str, language: Language) -> AnswerFile:
    """Reads a file once while it does not change. Raises UserError: it is damaged, or of another environment."""
    try:
        changed_at = os.stat(path).st_mtime_ns
    except OSError as error:
        raise UserError(f"answers {path}: can't be read ({error.strerror})") from None
    file = _read_unchanged(path, changed_at)
    if file.header.environment != language.name:
        raise UserError(f"answers {path}: are of {file.header.environment}, not of {language.name}")
    return file


@functools.lru_cache(maxsize=8)
def _read_unchanged(path: str, changed_at: int) -> AnswerFile:
    return read_answers(path, languages())
