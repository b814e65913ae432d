"""Rewards that a plugin asks an LLM for in the plugin's words, see `registry.register_llm_reward`."""

import math
from collections.abc import Callable
from typing import Any

from oni_jax.annotation.queries.base import QueryKind, blaming
from oni_jax.rewards.combine import Paid, pay
from oni_jax.rewards.oni.answer_table import AnswerTable
from oni_jax.rewards.registry import RewardContext


def make(context: RewardContext, kind: QueryKind, value: Callable[[Any], float]) -> Paid:
    """Makes a reward that pays `value` of the answers about a caption, as the flags say."""

    def worth(kept: bytes) -> float:
        with blaming(kind, "value"):
            found = float(value(kind.to_record(kept)))
            if not math.isfinite(found):
                raise ValueError(f"{found} for the answer {kind.describe(kept)!r:.100}")
            return found

    return pay(context, AnswerTable(worth))
