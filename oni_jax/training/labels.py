"""Labels in rows of metrics and in summaries."""

from collections.abc import Mapping
from typing import Any

from oni_jax.learner.loop import Learner
from oni_jax.metrics.rows import Row

LABEL_COUNTS = ("labels_held", "labels_asked", "labels_unanswered", "answers_unreadable", "requests_failed")


def label_row(annotator_stats: Mapping[str, Any], learner: Learner) -> Row:
    """Returns a row's metrics of labels; {} without any."""
    stats = dict(annotator_stats)
    if not stats:
        return {}
    named = {"server_state": stats.pop("state"), "labels_backlog": stats.pop("backlog")}
    counts = {name: stats.pop(name) for name in LABEL_COUNTS}
    unanswered = {"steps_unanswered_fraction": learner.unanswered_fraction()}
    return {**named, **counts, **unanswered, **{f"annotation/{name}": value for name, value in stats.items()}}


def of_servers(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fraction of answers that a content filter kept back, and how many of several servers answer."""
    several = ("servers", "servers_answering") if stats.get("servers", 0) > 1 else ()
    return {name: stats[name] for name in (*several, *(["filtered_fraction"] * bool(stats.get("filtered"))))}
