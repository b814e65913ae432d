"""Lines that launch.ask prints: prompts, answers, a summary, and a comparison."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from oni_jax.annotation.asker import Asked
from oni_jax.annotation.failures import RequestError
from oni_jax.annotation.prompts import Prompt, escape, load_chat_template, render_chat
from oni_jax.annotation.service import Question
from oni_jax.evaluation.asking.summary import CHARS_PER_TOKEN, STEPS, Agreement, Rate, Tokens, compare
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import counted, printable, settings
from oni_jax.types import Item

UNREADABLE = "unreadable"


def prompt_lines(question: Question, item: Item) -> Iterator[str]:
    """Yields the lines of an item's prompt, as the server gets it."""
    turns = question.prompt.turns(item)
    if question.config.llm_api == "completions":
        yield from _indented(render_chat(load_chat_template(question.config.llm_chat_template), turns), "  ")
        return
    for role, content in turns:
        yield f"  {role}:"
        yield from _indented(content, "    ")


def asked_lines(number: int, asked: Asked, prompt: Prompt, tokens: Tokens) -> Iterator[str]:
    """Yields the lines of a query: what it asks about, how it was read, and each answer."""
    first, *others = item_lines(prompt, asked.item)
    yield f"{number}. {first}"
    yield from (f"   {line}" for line in others)
    if not asked.replies:
        yield f"   failed: {printable(str(asked.error))}"
        return
    reads = _read(prompt, asked)
    if probability := asked.answer is not None and prompt.kind.probability(asked.answer):
        reads += f", probability {probability:.2f}"
    about = "" if tokens.is_counted else "about "
    yield f"   {reads}; {sum(asked.secs):.2f} s; {about}{tokens.prompt:,} + {tokens.completion:,} tokens"
    for reply in asked.replies:
        if reply is not asked.replies[0]:
            yield "   asked again:"
        yield from _indented(reply.text.strip(), "   | ")


def item_lines(prompt: Prompt, item: Item) -> list[str]:
    """Returns the lines of a prompt that differ from query to query: its captions, as they are rendered there."""
    names = [placeholder.strip("{}") for placeholder in prompt.kind.placeholders]
    rendered = [prompt.kind.render(escape(caption)) for caption in item]
    texts = [f"{name}: {text}" for name, text in zip(names, rendered)] if len(names) > 1 else rendered
    return "\n".join(texts).split("\n") if item else ["(the prompt alone)"]


def summary_lines(
    question: Question, asked: Sequence[Asked], num_items: int, total: Tokens, rate: Rate | None
) -> Iterator[str]:
    """Yields counts of labels, unreadable answers, latencies and tokens of at least one answered query.

    Args:
        question: the question asked.
        asked: results for its items, `num_items` in all.
        total: tokens of all of them.
        rate: rate of a run's queries, for the estimate of a training's tokens.
    """
    prompt, config = question.prompt, question.config
    answered = [x for x in asked if x.replies]
    parts = [f"{len(answered):,} of {num_items:,} queries answered"]
    if num_failed := len(asked) - len(answered):
        parts.append(f"{num_failed:,} failed")
    yield ", ".join(parts)
    asks_word = config.llm_answer == "label" and bool(prompt.kind.choices) and not question.recorded.answers
    readable = [x.answer for x in answered if x.answer is not None]
    counts = Counter(label for answer in readable for label in dict.fromkeys(prompt.kind.read_as(answer)))
    labels = (f"{printable(label)} {count:,} ({count / len(readable):.0%})" for label, count in counts.most_common())
    yield f"read as: {', '.join(labels) or 'nothing'}"
    num_first = sum(x.replies[0].answer is None for x in answered)
    num_again = len(answered) - len(readable)
    yield f"{UNREADABLE}: {num_first / len(answered):.1%} at first, {num_again / len(answered):.1%} after asking again"
    if num_without := sum(x.answer is not None and not x.replies[-1].has_logprobs for x in answered if asks_word):
        yield f"log-probabilities: {num_without:,} of {len(readable):,} answers have none, and are worth 0 or 1"
    secs = [x for query in answered for x in query.secs]
    middle, high = np.percentile(secs, [50, 95])
    yield f"latency: median {middle:.2f} s, 95 % {high:.2f} s, with at most {config.llm_max_in_flight} in flight"
    means = total.prompt / len(answered), total.completion / len(answered)
    how = "the server's count" if total.is_counted else f"estimated: {CHARS_PER_TOKEN} characters a token"
    yield f"tokens of a query: {means[0]:,.0f} of the prompt, {means[1]:,.0f} written ({how})"
    yield _estimate_line(means, rate)


def _estimate_line(means: tuple[float, float], rate: Rate | None) -> str:
    what = f"tokens of {STEPS / 1e6:g} M steps:"
    if rate is None:
        return f"{what} not known; name a run that asked with --messages_of, for the number of its queries"
    num = rate.num_queries * STEPS / max(1, rate.env_steps)
    caution = "; new captions get rarer, so it may be fewer" * (rate.env_steps < STEPS)
    return (
        f"{what} {_rounded(num * means[0])} of prompts, {_rounded(num * means[1])} written, if {num:,.0f} queries are "
        f"asked; that run asked {rate.num_queries:,} in all in its first {counted(rate.env_steps, 'step')}{caution}"
    )


def comparison_lines(
    names: tuple[str, str], prompt: Prompt, first: Sequence[Asked], second: Sequence[Asked]
) -> Iterator[str]:
    """Yields the agreement of two askings, and a table of the items whose answers differ."""
    found: Agreement = compare(prompt, first, second)
    yield f"A: {names[0]}; B: {names[1]}"
    if not found.num_both:
        yield f"no query of {found.num_items:,} has two readable answers"
        return
    line = f"agreement: {found.num_equal / found.num_both:.1%} of {found.num_both:,} queries with two readable answers"
    if not prompt.kind.choices:
        line += f"; what was read overlaps by {found.overlap:.1%} (Jaccard index)"
    elif found.kappa is None:
        line += "; Cohen's kappa is not defined: both gave one label throughout"
    else:
        line += f"; Cohen's kappa {found.kappa:.2f}"
    yield line
    if not found.differing:
        return
    said = [[UNREADABLE if x is None else printable(", ".join(x)) for x in row[1:]] for row in found.differing]
    cells = [["A", "B"], *said]
    sizes = [max(map(len, column)) for column in zip(*cells)]
    texts = ["differing", *(" / ".join(item_lines(prompt, item)) for item, *_ in found.differing)]
    for row, text in zip(cells, texts):
        yield "  ".join([*(cell.ljust(size) for cell, size in zip(row, sizes)), text])


def name_questions(asked: Sequence[tuple[AnnotationConfig, str]]) -> list[str]:
    """Returns a name for each question: its kind of query, and the settings that distinguish it."""
    values: list[Mapping[str, object]] = [
        {field.name: value for field, value in settings(config) if not field.metadata["secret"]} for config, _ in asked
    ]
    differ = [name for name in values[0] if len({flag_values[name] for flag_values in values}) > 1]
    return [
        " ".join([kind, *(f"--{name} {flag_values[name]}" for name in differ if flag_values[name] != "")])
        for (_, kind), flag_values in zip(asked, values)
    ]


def ended_line(problem: RequestError, address: str) -> str:
    """Returns why a server was asked no more."""
    if problem.name == "unreachable":
        return f"no LLM server answers at {address} ({problem.detail}): start it, or name another (--llm_server_addr)"
    return f"the LLM server at {address}: {problem.name}: {problem.detail}"


def _read(prompt: Prompt, asked: Asked) -> str:
    if asked.answer is None:
        return UNREADABLE
    return printable(", ".join(prompt.kind.read_as(asked.answer)))


def _rounded(number: float) -> str:
    """Returns a number of tokens with two significant digits."""
    return f"{number / 1e6:,.2g} M" if number >= 1e6 else f"{float(f'{number:.2g}'):,.0f}"


def _indented(text: str, before: str) -> Iterator[str]:
    return (before + line for line in printable(text, keep="\n").split("\n"))
