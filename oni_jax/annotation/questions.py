"""A run's questions to an LLM, one for each kind of query and goal; one query may ask those of all goals."""

from collections.abc import Sequence
from typing import NamedTuple

from oni_jax.annotation.prompts import Prompt
from oni_jax.annotation.recorded import NOTHING, Recorded
from oni_jax.settings.annotation import AnnotationConfig


class Question(NamedTuple):
    """A prompt, and the settings of the LLM that answers it."""

    config: AnnotationConfig  # holds the address of a server, which may start later; without an address nobody is asked
    prompt: Prompt
    recorded: Recorded = NOTHING  # answers that are not asked for
    needs_probability: bool = False  # an answer without one is of no use
    joint: Prompt | None = None  # prompt about all goals of an agent in one query, instead of `prompt`

    @property
    def models(self) -> Sequence[str]:
        """The models whose answers are used, by the names in the label store."""
        asked = [self.config.llm_model] if self.config.llm_server_addr else []
        return [self.recorded.model, *asked] if self.recorded.model else asked


def asked_together(questions: Sequence[Question]) -> list[tuple[int, ...]]:
    """Returns the indices of the questions that one query asks, for each query."""
    together: dict[object, tuple[int, ...]] = {}
    for index, question in enumerate(questions):
        key = question.joint.digest if question.joint else index
        together[key] = (*together.get(key, ()), index)
    return [*together.values()]
