"""What launch.evaluate wrote into its JSON file, as tables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from oni_jax.config import UserError
from oni_jax.evaluation.report import BIASED, interval, number
from oni_jax.evaluation.statistics import QUANTILES, Interval


class Part(NamedTuple):
    """Of a section of the report."""

    title: str
    about: str
    tables: Sequence[tuple[Sequence[str], Sequence[Sequence[object]]]]  # (header, rows)


def evaluation_parts(path: str) -> list[Part]:
    """The players' figures, and the differences where they were compared.

    Raises:
        UserError: the file can't be read, or is another one.
    """
    try:
        with open(path, "rb") as file:
            return list(_parts(json.load(file)))
    except OSError as error:
        raise UserError(f"--evaluation {path}: can't be read ({error.strerror}); name another file") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise UserError(f"--evaluation {path}: is not what launch.evaluate --json writes; name another file") from None


def _parts(tree: Mapping[str, Any]) -> Iterator[Part]:
    players = [*tree["evaluations"], *([tree["other"]] if "other" in tree else [])]
    for of in players:
        yield _player(of)
    partial = {of["player"] for of in players if not of["complete"]}
    for of in tree.get("differences", []):
        names = of["first"], of["second"]
        about = f"Pair by pair, on the same {of['num_episodes']:,} episodes"
        about += f"; PARTIAL: {BIASED}." if partial & {*names} else "."
        rows = [[name, number(x["mean"]), _interval(x["interval"])] for name, x in of["measures"].items()]
        yield Part(" minus ".join(names), about, [(["", "difference", "95 % interval"], rows)])


def _player(of: Mapping[str, Any]) -> Part:
    num_finished = len(of["episodes"])
    about = f"{of['root_env']}, policy {of['policy']}, {num_finished:,} episodes of seed {of['seed']}, "
    about += f"at most {of['max_episode_steps']:,} steps"
    if not of["complete"]:
        about += f"; PARTIAL: {of['num_episodes']:,} were asked for; {BIASED}"
    rows = []
    for name, x in of["measures"].items():
        levels = {**{level: x["quantiles"][f"{level:g}"] for level in QUANTILES}, 0.5: x["median"]}
        rows.append(
            [name, number(x["mean"]), _interval(x["interval"]), *(number(levels[key]) for key in sorted(levels))]
        )
    levels = [f"{100 * level:g} %" for level in sorted([*QUANTILES, 0.5])]
    ends = {f"end: {end}": x for end, x in of["ends"].items()} | ({"success": of["success"]} if of["success"] else {})
    rates = [
        [name, x["count"], f"{x['count'] / num_finished:.1%}", _interval(x["interval"], True)]
        for name, x in ends.items()
    ]
    measures = (["", "mean", "95 % interval", *levels], rows)
    return Part(of["player"], f"{about}.", [measures, (["", "episodes", "fraction", "95 % interval"], rates)])


def _interval(bounds: Any, percent: bool = False) -> str:
    if bounds is None or not percent:
        return interval(bounds and Interval(*map(float, bounds)))
    return " to ".join(f"{float(bound):.1%}" for bound in bounds)
