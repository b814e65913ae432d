"""Findings about a server from its answers: it only reasons, gives no probabilities, or ignores a constraint."""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from oni_jax.annotation.answers import Reply
from oni_jax.annotation.failures import ONLY_REASONING, RequestError
from oni_jax.annotation.request_fields import CONSTRAINTS
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError

MAX_RAISED = 4  # answers, before one is read, that the kind of query raises errors for: then it can read none
MAX_REASONED_IN_ROW = 8  # answers of reasoning alone; then the server is asked as one that is away
REASONED_RETRY_SECS = 3600.0  # each probe is paid for; the pacer bounds it
NUM_OUTSIDE = 3  # answers that are no choice, and none that is, before a constraint counts as ignored

OF_SERVER = "the LLM server: "  # opens a line about it
NO_LOGPROBS = "no log-probabilities come with its answers: rewards are 0 or 1"
OFF = json.dumps({"chat_template_kwargs": {"enable_thinking": False}})
TURN_OFF = f"turn its reasoning off (vLLM, SGLang, llama.cpp: --llm_extra_body '{OFF}'; see docs/servers.md)"


class Watch:
    """Looks at each reply, and says each finding once.

    Args:
        config: of the server.
        choices: words of which one alone is asked for; empty: a reasoned answer is.
        say: receives a line.
        needs_probability: an answer without log-probabilities is of no use.
    """

    def __init__(
        self,
        config: AnnotationConfig,
        choices: Sequence[str],
        say: Callable[[str], None],
        needs_probability: bool = False,
    ):
        self._config, self._choices = config, choices
        self._say, self._needs_probability = say, needs_probability
        self._said: set[str] = set()
        self._num_reasoned = 0  # consecutive answers with reasoning
        self._num_raised: float = 0  # before one was read
        self._counts: Counter[str] = Counter()

    def see(self, replies: Sequence[Reply], sent: Collection[str], events: Counter[str]) -> None:
        """Looks at the replies of a request.

        Args:
            replies: in any order.
            sent: names of the fields of the request.
            events: counts replies without log-probabilities, where these were asked for.

        Raises:
            RequestError: the model only reasons, many answers in a row.
            UserError: there are no log-probabilities, and they are needed; or the kind of query raises errors alone.
        """
        for reply in replies:
            if reply.filtered:
                continue
            if reply.raised:
                self.see_raised(reply.raised)
                continue
            if reply.failure == ONLY_REASONING:
                self._num_reasoned += 1
                self.say_once(ONLY_REASONING, self._hint(reply))
            else:
                self._num_reasoned = 0
            if reply.answer is not None:
                self._num_raised = -math.inf
            if self._choices:
                self._see_constraint(reply, sent)
                self._see_probability(reply, events)
        if self._num_reasoned >= MAX_REASONED_IN_ROW:
            raise RequestError(ONLY_REASONING, self._hint(replies[-1]), 0, True, REASONED_RETRY_SECS)

    def _hint(self, reply: Reply) -> str:
        return reasoning_hint(bool(self._choices), reply.reasoning_field, reply.is_cut_off)

    def see_raised(self, line: str) -> None:
        """Says that the kind of query raises an error. Raises UserError: it does for all of the first questions."""
        self.say_once("raised", f"{line}; what it raises for is put aside", whose="")
        self._num_raised += 1
        if self._num_raised >= MAX_RAISED:
            raise UserError(f"{line}, and it does so for each of the first {MAX_RAISED} questions")

    def say_once(self, about: str, line: str, whose: str = OF_SERVER) -> None:
        if about not in self._said:
            self._said.add(about)
            self._say(f"{whose}{line}")

    def _see_probability(self, reply: Reply, events: Counter[str]) -> None:
        if reply.answer is None:
            return
        self._counts["with_logprobs"] += reply.has_logprobs
        if not reply.has_logprobs:
            events["without_logprobs"] += 1
        if self._counts["with_logprobs"]:
            return
        if self._needs_probability:
            raise UserError(
                f"--llm_reward_value probability: the server at {self._config.llm_server_addr} gives no "
                "log-probabilities; use --llm_reward_value label, or a server that gives them"
            )
        self.say_once("logprobs", NO_LOGPROBS)

    def _see_constraint(self, reply: Reply, sent: Collection[str]) -> None:
        constraint = self._config.llm_constraint
        fields = CONSTRAINTS[constraint](self._choices)
        if not fields or not fields.keys() <= {*sent} or not reply.text.strip():
            return
        is_choice = reply.text.strip().strip("\"'").strip() in self._choices
        self._counts["inside" if is_choice else "outside"] += 1
        if self._counts["outside"] >= NUM_OUTSIDE and not self._counts["inside"]:
            self.say_once(
                "constraint",
                f"--llm_constraint {constraint} is ignored: {self._counts['outside']} answers, none of them a label. "
                "Usual causes: the server has a reasoning parser (vLLM: --reasoning-parser; start it without), or it "
                f"does not know this constraint on --llm_api {self._config.llm_api} (try another, see docs/servers.md)",
            )


def reasoning_hint(one_word: bool, where: str, is_cut_off: bool) -> str:
    """Returns in a line what to do about answers that are reasoning alone.

    Args:
        one_word: a choice alone was asked for.
        where: the field that holds the reasoning; empty: the text, in tags.
        is_cut_off: the answer ended at its limit of tokens.
    """
    if is_cut_off and one_word:
        return (
            "the model reasons before it answers, and --llm_answer label leaves it too few tokens for that: use "
            f"--llm_answer reasoned, or {TURN_OFF}"
        )
    if is_cut_off:
        return (
            "the model reasons before it answers, and has used up its tokens: raise --llm_max_tokens (--llm_extra_body "
            f"where a server counts otherwise), or {TURN_OFF}"
        )
    if not where:
        return f"the model's reasoning does not end, and reasoning is never read as a label: {TURN_OFF}"
    return (
        f"the whole answer is in {where}, which is never read as a label: start the server without "
        f"a reasoning parser (vLLM: --reasoning-parser), or {TURN_OFF}"
    )
