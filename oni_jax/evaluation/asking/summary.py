"""Statistics of answers: tokens, agreement of two askings, and the queries that a training would make."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.annotation.answers import TOKEN_COUNTS
from oni_jax.annotation.asker import Asked
from oni_jax.annotation.prompts import Prompt
from oni_jax.answers.agreement import cohens_kappa
from oni_jax.runs.run import Run
from oni_jax.types import Item

CHARS_PER_TOKEN = 4
STEPS = 1_000_000  # steps of the estimate


class Tokens(NamedTuple):
    """Tokens that a query took, asked again included."""

    prompt: int
    completion: int
    is_counted: bool  # counted by the server; else estimated from characters


def total_tokens(parts: Iterable[Tokens]) -> Tokens:
    """Adds up; counted only where all parts are."""
    prompt, completion, is_counted = zip(*parts)
    return Tokens(sum(prompt), sum(completion), all(is_counted))


def tokens_of(asked: Asked, prompt: Prompt, has_counts: bool) -> Tokens:
    """Returns the tokens of a query; `has_counts`: the server's count is believed, where it gives one."""
    parts, before = [Tokens(0, 0, True)], ""
    for reply in asked.replies:
        read, written = (reply.usage.get(name) if has_counts else None for name in TOKEN_COUNTS)
        if read is None or written is None:
            num_chars = sum(len(content) for _, content in prompt.turns(asked.item, before))
            parts.append(Tokens(_estimated(num_chars), _estimated(len(reply.text)), False))
        else:
            parts.append(Tokens(read, written, True))
        before = reply.text
    return total_tokens(parts)


def _estimated(num_chars: int) -> int:
    return -(-num_chars // CHARS_PER_TOKEN)


class Agreement(NamedTuple):
    """Two askings, compared on the items that both of them have a readable answer to."""

    num_items: int  # items that both asked about
    num_both: int  # items with two readable answers
    num_equal: int
    kappa: float | None  # Cohen's; None: not defined, since there are no choices, or one answer throughout
    overlap: float  # mean Jaccard index of the parsed answers
    differing: Sequence[tuple[Item, tuple[str, ...] | None, tuple[str, ...] | None]]  # None: no readable answer


def compare(prompt: Prompt, first: Sequence[Asked], second: Sequence[Asked]) -> Agreement:
    """Compares the answers of two askings of one kind of query."""

    def read(asked: Sequence[Asked]) -> dict[Item, tuple[str, ...] | None]:
        kind = prompt.kind
        return {x.item: None if x.answer is None else tuple(sorted(set(kind.read_as(x.answer)))) for x in asked}

    one, other = read(first), read(second)
    rows = [(item, one[item], other[item]) for item in one if item in other]
    both = [(a, b) for _, a, b in rows if a is not None and b is not None]
    overlap = np.mean([len({*a} & {*b}) / max(1, len({*a} | {*b})) for a, b in both]) if both else 0.0
    return Agreement(
        len(rows),
        len(both),
        sum(a == b for a, b in both),
        cohens_kappa(both) if prompt.kind.choices else None,
        float(overlap),
        [row for row in rows if row[1] != row[2]],
    )


class Rate(NamedTuple):
    """Queries that a run asked."""

    num_queries: int
    env_steps: int  # steps in which it asked them: its first million, or all of fewer


def rate_of_run(folder: str) -> Rate | None:
    """Reads how many queries a run asked in its first steps. None: it asked none.

    Raises:
        UserError: there is no run, or it has no rows of metrics yet.
    """
    run = Run(folder).metrics(["labels_asked"])
    counts = np.nan_to_num(run.metrics.get("labels_asked", np.zeros(len(run.env_steps))))
    # Counted since the start of the process: a smaller number is a later start's.
    added = np.diff(counts, prepend=0.0)
    totals = np.cumsum(np.where(added < 0, counts, added))
    env_steps = min(STEPS, int(run.env_steps[-1]))
    num_queries = round(float(np.interp(env_steps, run.env_steps, totals)))
    return Rate(num_queries, env_steps) if num_queries else None
