"""A question about one caption that a plugin asks: a text, a function that reads the answer, and nothing else."""

import importlib
import json
from collections.abc import Callable
from typing import Any

from oni_jax.annotation.queries.base import QueryKind
from oni_jax.settings.fields import UserError

PLACEHOLDER = "{caption}"
SYSTEM = "You answer in exactly the form that you are asked for."


class AboutCaption(QueryKind):
    """Answers are what `read` returns, encoded as JSON. See `QueryKind`.

    Args:
        name: of the kind.
        prompt: the user's turn, with {caption}; {goal} stands for --goal.
        read: returns from a text what JSON can hold; None: the text can't be read as an answer.
        module: which the question is registered in.

    Raises:
        UserError: the prompt has no {caption}.
    """

    def __init__(self, name: str, prompt: str, read: Callable[[str], Any], module: str):
        if PLACEHOLDER not in prompt:
            raise UserError(f"the prompt of {name} has no {PLACEHOLDER}: write it at its end")
        self.name, self._read, self._module = name, read, module
        self.prompt = {"system": SYSTEM, "user": prompt}

    @property
    def module(self) -> str:
        return self._module

    def read(self, text: str, logprobs: object, answer_key: str) -> bytes | None:
        found = self._read(text)
        return None if found is None else self.from_record(found)

    def is_answer(self, kept: bytes) -> bool:
        try:
            return self.to_record(kept) is not None
        except (ValueError, RecursionError):
            return False

    def describe(self, kept: bytes) -> str:
        return str(self.to_record(kept))

    def to_record(self, kept: bytes) -> Any:
        return json.loads(kept)

    def from_record(self, record: Any) -> bytes:
        return json.dumps(record, allow_nan=False).encode()

    def __reduce__(self) -> tuple:  # `read` may be a lambda, which can't be pickled
        return _registered, (self._module, self.name)


def _registered(module: str, name: str) -> QueryKind:
    """Returns the kind that a module registers, in another process."""
    from oni_jax.annotation.queries.registry import QUERIES  # the registry imports the kinds

    importlib.import_module(module)
    return QUERIES[name]
