"""The program launch.ask: shows what an LLM answers to captions under a run's settings. It writes no file."""

import contextlib
import itertools
from collections.abc import Sequence

from oni_jax.annotation.asker import Asked
from oni_jax.annotation.client import make_client
from oni_jax.annotation.service import Question
from oni_jax.answers.answerer import open_questions
from oni_jax.evaluation.asking import report as texts
from oni_jax.evaluation.asking.answers import ask_all
from oni_jax.evaluation.asking.config import Ask, queries_of
from oni_jax.evaluation.asking.summary import Rate, Tokens, rate_of_run, tokens_of, total_tokens
from oni_jax.evaluation.asking.texts import make_items, read_captions
from oni_jax.host.reporting import report
from oni_jax.host.runtime import StopRequest
from oni_jax.runs.plan import Plan, with_chosen_env
from oni_jax.settings.fields import UserError
from oni_jax.types import Item


def ask(config: Ask, stop: StopRequest) -> int:
    """Asks about the captions, and prints the answers. Returns the exit code: 1 where a query failed.

    Raises:
        UserError: bad prompt, captions, folder or address, or a server that answered nothing.
    """
    asked, plan = queries_of(config), Plan(with_chosen_env(config))
    prompts = [plan.prompt(settings, kind) for settings, kind in asked]
    captions = read_captions(config.ask)
    items = [make_items(prompt, captions) for prompt in prompts]
    rate = rate_of_run(config.ask.messages_of) if config.ask.messages_of else None
    with contextlib.ExitStack() as stack:
        questions = open_questions(asked, plan.language, stack)
        for question in questions:  # raises here what is wrong with any, before the first is asked
            make_client(question.config, question.prompt)
        names = texts.name_questions(asked)
        trials = [
            Trial(question, name, its, rate, has_counts=bool(annotation.llm_server_addr))
            for question, name, its, (annotation, _) in zip(questions, names, items, asked)
        ]
        shown: set[str] = set()
        for trial in trials:
            if not stop:
                trial.run(shown, config.ask.show_prompts, stop)
    for first, second in itertools.combinations(trials, 2):
        if first.question.prompt.kind is second.question.prompt.kind and second.asked:
            lines = texts.comparison_lines((first.name, second.name), first.question.prompt, first.asked, second.asked)
            report("", *lines)
    num_failed = sum(len(trial.items) - len(trial.answered()) for trial in trials)
    if num_failed and not stop:
        report(f"error: {num_failed:,} queries have no answer", to_stderr=True)
        return 1
    return 0


class Trial:
    """The asking of one question.

    Args:
        question: question with the address of its server.
        name: name of the question.
        items: items that are asked about.
        rate: rate of a run's queries; None: not known.
        has_counts: the server is no stand-in, so that its count of tokens says something.
    """

    def __init__(self, question: Question, name: str, items: Sequence[Item], rate: Rate | None, has_counts: bool):
        self.question, self.name, self.items = question, name, items
        self._rate, self._has_counts = rate, has_counts
        self.asked: Sequence[Asked] = ()

    def answered(self) -> list[Asked]:
        """Returns the queries that a reply came to."""
        return [x for x in self.asked if x.replies]

    def run(self, shown: set[str], shows_all: bool, stop: StopRequest) -> None:
        """Asks, and prints the answers.

        Args:
            shown: prompts that need not be shown again; those shown are added.
            shows_all: prompts of all items are shown, not the first one's alone.
            stop: ends it.

        Raises:
            UserError: the server answered nothing.
        """
        config, prompt, recorded = self.question[:3]
        numbers = itertools.count(1)

        def show(asked: Asked) -> None:
            if shows_all:
                self._show_prompt(asked.item, shown)
            report(*texts.asked_lines(next(numbers), asked, prompt, self._tokens(asked)))

        asked = [f"{config.llm_model} at {config.llm_server_addr}"] if config.llm_server_addr else []
        answering = " and ".join([f"recorded answers of {recorded.model}"] * bool(recorded.answers) + asked)
        report(f"\n{self.name}: {len(self.items):,} queries to {answering}")
        self._show_prompt(self.items[0], shown)
        self.asked, problem = ask_all(self.question, self.items, show, stop)
        answered = self.answered()
        line = texts.ended_line(problem, config.llm_server_addr) if problem else stop.reason
        if problem and not answered:
            raise UserError(line)
        if line:
            report(f"the rest is not asked: {line}")
        if answered:
            total = total_tokens(map(self._tokens, answered))
            lines = texts.summary_lines(self.question, self.asked, len(self.items), total, self._rate)
            report("", *lines)

    def _tokens(self, asked: Asked) -> Tokens:
        return tokens_of(asked, self.question.prompt, self._has_counts)

    def _show_prompt(self, item: Item, shown: set[str]) -> None:
        text = "\n".join(texts.prompt_lines(self.question, item))
        if text not in shown:
            shown.add(text)
            report(f"the prompt:\n{text}\n")
