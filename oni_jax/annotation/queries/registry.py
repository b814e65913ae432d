"""The kinds of query by name. A new one is its file and a line of QUERIES; one from elsewhere registers itself."""

from oni_jax.annotation.queries.base import QueryKind
from oni_jax.annotation.queries.classification import Classification
from oni_jax.annotation.queries.code import Code
from oni_jax.annotation.queries.goals import Goals
from oni_jax.annotation.queries.ranking import Ranking
from oni_jax.annotation.queries.segments import Segments
from oni_jax.annotation.queries.suggestions import StrictSuggestions, Suggestions
from oni_jax.annotation.queries.yes_no import YesNo
from oni_jax.settings.fields import UserError

_KINDS = (Classification(), Ranking(), Code(), Segments(), Goals(), Suggestions(), StrictSuggestions(), YesNo())
QUERIES: dict[str, QueryKind] = {kind.name: kind for kind in _KINDS}


def register_query(kind: QueryKind) -> None:
    """Registers a kind of query. Raises UserError: its name is taken."""
    if kind.name in QUERIES:
        raise UserError(f"the query {kind.name} is registered already: choose another name")
    QUERIES[kind.name] = kind
