"""A conversation in which an LLM names goals for segments. Source: BK-Goal."""

import functools
import os
from collections.abc import Sequence

from oni_jax.annotation.prompts import Prompt, Turn
from oni_jax.annotation.queries.goals import goals_in
from oni_jax.host.reporting import report
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import WriteGoals, WriteGoalsConfig
from oni_jax.offline.bk_conversation import ANSWERS, Ask, Conversation, UnansweredError, converse, drop_oldest
from oni_jax.offline.segment_episodes import SegmentSampler
from oni_jax.rewards.bk.goals import GOALS, GoalLibrary, write_library
from oni_jax.rewards.bk.segment_captions import segment_caption
from oni_jax.settings.fields import UserError, caption_bytes


def write_goals(config: WriteGoals, stop: StopRequest) -> int:
    """Holds the conversation. Returns the exit code: 0, or 130 when interrupted; it goes on at the next start.

    Raises:
        UserError: unusable settings or folder, a server that refuses, or no goal at all.
    """
    section = config.write
    if not converse(config, "goals", GOALS, functools.partial(GoalConversation, section), stop):
        return 130
    report(f"{os.path.join(section.reward_dir, GOALS)} is written")
    return 0


class GoalConversation(Conversation):
    """Rounds of goals, each for one segment. An answer without a goal is asked for again, and then left out.

    Args:
        config: settings of the conversation.
        prompt: prompt of the kind `goals`.
        sampler: sampler of the segments.
        actions: their words.
    """

    def __init__(self, config: WriteGoalsConfig, prompt: Prompt, sampler: SegmentSampler, actions: Sequence[str]):
        self._config, self._prompt, self._sampler, self._actions = config, prompt, sampler, actions
        self._turns: list[Turn] = []  # turns of the rounds so far

    async def hold(self, ask: Ask) -> None:
        found: list[tuple[str, list[str]]] = []
        num_unanswered = 0
        for number in range(1, self._config.num_rounds + 1):
            text = segment_caption(*self._sampler.draw().in_words(self._actions))
            try:
                goals = await self._goals_for(ask, text)
            except UnansweredError:
                num_unanswered += 1
                continue
            if not goals:
                report(f"round {number}: no goal in {self._config.num_tries} answers")
                continue
            found.append((text, goals))
            report(f"round {number} of {self._config.num_rounds}: {len(goals)} goals")
        if num_unanswered:
            report(f"{num_unanswered:,} rounds have no recorded answer, and no --llm_server_addr is named")
        if num_unanswered and not found:
            raise UserError(
                "no segment has a recorded answer: collect segments as docs/bk.md does, name an --llm_server_addr, or "
                "--answers judge"
            )
        if not found:
            raise UserError(
                f"--reward_dir {self._config.reward_dir}: the LLM named no goal; see {ANSWERS} there, and try another "
                "model"
            )
        library = GoalLibrary.of(found)
        write_library(self._config.reward_dir, library)
        report(f"{len(library.goals)} different goals for {len(library.keys)} segments")

    async def _goals_for(self, ask: Ask, text: str) -> list[str]:
        """Asks until an answer has goals, and adds this one alone to the conversation. Returns none without any."""
        item = (caption_bytes(text),)
        system, question = self._prompt.turns(item)
        tried: list[Turn] = []
        for _ in range(self._config.num_tries):
            turns = [system, *self._turns, question, *tried]
            # BK: the oldest that is dropped belongs to the task.
            drop_oldest(turns, 1, self._config.max_tokens, num_last=1 + len(tried))  # rounds before this one
            drop_oldest(turns, 2, self._config.max_tokens)  # then answers of this one
            answer = await ask(turns, item)
            if goals := goals_in(answer):
                self._turns += [question, ("assistant", answer)]
                return goals
            tried += [("assistant", answer or "(nothing)"), ("user", self._prompt.again)]
        return []
