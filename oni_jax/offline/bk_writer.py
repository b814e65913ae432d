"""A conversation in which an LLM writes a potential, and mends it by what it gives on segments. Source: BK-Code.

The folder holds the conversation, the code of each round, and `potential.py`, the last one that works.
"""

import functools
import os
from collections.abc import Mapping, Sequence

from oni_jax.annotation.prompts import Prompt, Turn
from oni_jax.annotation.queries.code import code_in
from oni_jax.envs.registry import seen_by_code
from oni_jax.host.files import write_atomically
from oni_jax.host.reporting import report
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import WriteConfig, WritePotential
from oni_jax.offline.bk_conversation import ANSWERS, Ask, Conversation, converse, drop_oldest
from oni_jax.offline.play import windows_of
from oni_jax.offline.segment_episodes import Segment, SegmentSampler
from oni_jax.rewards.bk.sandbox import UNNAMED, CodeError, Sandbox, Value
from oni_jax.rewards.bk.segment_captions import history_caption
from oni_jax.settings.fields import UserError

POTENTIAL = "potential.py"


def write_potential(config: WritePotential, stop: StopRequest) -> int:
    """Holds the conversation. Returns the exit code: 0, or 130 when interrupted; it goes on at the next start.

    Raises:
        UserError: unusable settings or folder, a server that refuses, or no code that works.
    """
    section = config.write
    make = functools.partial(CodeConversation, section, seen=seen_by_code(config.env))
    if not converse(config, "code", POTENTIAL, make, stop):
        return 130
    report(f"{os.path.join(section.reward_dir, POTENTIAL)} is written")
    return 0


class CodeConversation(Conversation):
    """Rounds of code, each shown on segments.

    Args:
        config: settings of the conversation.
        prompt: prompt of the kind `code`.
        sampler: sampler of the segments.
        actions: their words.
        seen: observations that a code sees; see `Language.code`.
    """

    def __init__(
        self,
        config: WriteConfig,
        prompt: Prompt,
        sampler: SegmentSampler,
        actions: Sequence[str],
        seen: Mapping[str, Sequence[str]] = UNNAMED,
    ):
        self.config, self._prompt, self._sampler, self._actions = config, prompt, sampler, actions
        self._seen = seen
        self._turns: list[Turn] = list(prompt.turns(()))

    async def hold(self, ask: Ask) -> None:
        """Holds it. Raises UserError: no code works."""
        works = False
        for number in range(self.config.num_rounds):
            segments = [self._sampler.draw() for _ in range(self.config.num_samples)]
            code = await self._working_code(ask, segments)
            if code is None:
                report(f"round {number + 1}: no code that works in {self.config.num_tries} answers")
                continue
            works = True
            for name in (f"code-step{number}.py", POTENTIAL):
                write_atomically(os.path.join(self.config.reward_dir, name), code.encode())
            report(f"round {number + 1} of {self.config.num_rounds}: {len(code.splitlines())} lines")
        if not works:
            raise UserError(
                f"--reward_dir {self.config.reward_dir}: the LLM wrote no code that works; see {ANSWERS} there, and "
                "try another model"
            )

    async def _working_code(self, ask: Ask, segments: Sequence[Segment]) -> str | None:
        """Asks until a code works on all segments, and adds what it gives to the conversation."""
        # BK: a code that fails on a sample is replaced, and the samples before it are not evaluated again.
        for _ in range(self.config.num_tries):
            answer = await ask(self._within_limit())
            code = code_in(answer)
            if code is None:
                self._say(answer, self._prompt.again)
                continue
            values, problem = call_on(code, segments, self._seen)
            if not problem:
                self._say(answer, self._prompt.texts["improve"].replace("{samples}", self._samples(segments, values)))
                return code
            self._say(answer, self._prompt.texts["failed"].replace("{error}", problem))
        return None

    def _say(self, answer: str, reply: str) -> None:
        self._turns += [("assistant", answer or "(nothing)"), ("user", reply)]

    def _samples(self, segments: Sequence[Segment], values: Sequence[Value]) -> str:
        return "\n".join(sample_text(i, *sample, self._actions) for i, sample in enumerate(zip(segments, values), 1))

    def _within_limit(self) -> list[Turn]:
        # BK: the first of what is dropped is the task.
        drop_oldest(self._turns, num_kept=2, max_tokens=self.config.max_tokens)
        return list(self._turns)


def sample_text(number: int, segment: Segment, value: Value, actions: Sequence[str]) -> str:
    """Returns a segment with the value of the code in words."""
    parts = ", ".join(f"{name}: {part:.4f}" for name, part in value.parts.items())
    details = f"The computed reward is {value.value:.4f}. Reward details: {parts}."
    return f"Sample#{number}\n{history_caption(*segment.in_words(actions))}\n{details}\n"


def call_on(code: str, segments: Sequence[Segment], seen: Mapping[str, Sequence[str]]) -> tuple[list[Value], str]:
    """Calls a code on the windows that segments end with. Returns the values, and the first failure or ""."""
    windows = windows_of(segments, [*seen])
    try:
        sandbox = Sandbox(code, named=seen)
    except CodeError as error:
        return [], str(error)
    try:
        values = sandbox.call(windows)
    except CodeError as error:
        return [], str(error)
    finally:
        sandbox.close()
    return values, next((value.problem for value in values if value.problem), "")
