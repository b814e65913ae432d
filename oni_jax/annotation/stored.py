"""The answers that a label store holds for a prompt, checked."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from oni_jax.annotation.queries.base import QueryKind, blaming
from oni_jax.annotation.recorded import Recorded
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation, Item


class Store(Protocol):
    """A store of answers by model and prompt. Methods raise OSError: it can't be read or written for now."""

    commit_delay_secs: float  # delay of a commit, so that answers are committed together

    def get_many(self, model: str, digest: str, items: Sequence[Item]) -> list[Annotation]: ...

    def put_many(self, model: str, digest: str, answered: Sequence[tuple[Annotation, str]]) -> None: ...

    def all(self, model: str, digest: str) -> list[Annotation]: ...


def stored_answers(store: Store, kind: QueryKind, models: Iterable[str], digest: str) -> list[Annotation]:
    """Returns the answers stored for a prompt; the first model's hold. Raises UserError: see `checked`."""
    held: dict[Item, Annotation] = {}
    for model in models:
        for annotation in checked(kind, store.all(model, digest)):
            held.setdefault(annotation.item, annotation)
    return [*held.values()]


def check_stored(store: Store, kind: QueryKind, recorded: Recorded, models: Iterable[str], digest: str) -> None:
    """Checks what a store holds for a prompt.

    Raises:
        UserError: an answer is not of this kind, or others are stored under the model's name than those recorded.
    """
    for model in models:
        for item, answer, _ in checked(kind, store.all(model, digest)):
            if model == recorded.model and recorded.answers.get(item, answer) != answer:
                raise UserError(
                    f"label store: holds other answers of {model} than those recorded, such as to {item[0]!a:.60}; "
                    "choose another --experiment or --label_store, or give the file's model another name"
                )


def checked(kind: QueryKind, held: list[Annotation]) -> list[Annotation]:
    """Returns `held`, the stored answers of a kind of query. Raises UserError: one of them is not of this kind."""
    for item, answer, _ in held:
        with blaming(kind, "is_answer"):
            fits = len(item) == len(kind.placeholders) and answer is not None and kind.is_answer(answer)
        if not fits:
            raise UserError(f"label store: a row is no {kind.name} ({item!r:.60}); move the file away or name another")
    return held
