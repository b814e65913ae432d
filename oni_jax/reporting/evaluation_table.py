"""What launch.evaluate wrote into its JSON file, as tables."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from oni_jax.config import UserError
from oni_jax.evaluation.report import BIASED, interval, number
from oni_jax.evaluation.statistics import QUANTILES, Interval
from oni_jax.reporting.markup import Html, joined, table, tag


def evaluation_tables(path: str) -> Html:
    """The players' figures, and the differences where they were compared.

    Raises:
        UserError: the file can't be read, or is another one.
    """
    try:
        with open(path, "rb") as file:
            return joined(_tables(json.load(file)))
    except OSError as error:
        raise UserError(f"--evaluation {path}: can't be read ({error.strerror}); name another file") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise UserError(f"--evaluation {path}: is not what launch.evaluate --json writes; name another file") from None


def _tables(tree: Mapping[str, Any]) -> Iterator[Html]:
    players = [*tree["evaluations"], *([tree["other"]] if "other" in tree else [])]
    for of in players:
        yield from _player(of)
    partial = {of["player"] for of in players if not of["complete"]}
    for of in tree.get("differences", []):
        names = of["first"], of["second"]
        yield tag("h3", " minus ".join(names))
        about = f"Pair by pair, on the same {of['num_episodes']:,} episodes"
        yield tag("p", f"{about}; PARTIAL: {BIASED}." if partial & {*names} else f"{about}.")
        found = of["measures"].items()
        rows = [[name, number(x["mean"]), _interval(x["interval"])] for name, x in found]
        yield table(["", "difference", "95 % interval"], rows)


def _player(of: Mapping[str, Any]) -> Iterator[Html]:
    yield tag("h3", of["player"])
    num_finished = len(of["episodes"])
    about = f"{of['root_env']}, policy {of['policy']}, {num_finished:,} episodes of seed {of['seed']}, "
    about += f"at most {of['max_episode_steps']:,} steps"
    if not of["complete"]:
        about += f"; PARTIAL: {of['num_episodes']:,} were asked for; {BIASED}"
    yield tag("p", f"{about}.")
    rows = []
    for name, x in of["measures"].items():
        levels = {**{level: x["quantiles"][f"{level:g}"] for level in QUANTILES}, 0.5: x["median"]}
        rows.append(
            [name, number(x["mean"]), _interval(x["interval"]), *(number(levels[key]) for key in sorted(levels))]
        )
    levels = [f"{100 * level:g} %" for level in sorted([*QUANTILES, 0.5])]
    yield table(["", "mean", "95 % interval", *levels], rows)
    shares = [(f"end: {end}", x) for end, x in of["ends"].items()]
    shares += [("success", of["success"])] if of["success"] else []
    yield table(
        ["", "episodes", "share", "95 % interval"],
        [[name, x["count"], f"{x['share']:.1%}", _interval(x["interval"], percent=True)] for name, x in shares],
    )


def _interval(bounds: Any, percent: bool = False) -> str:
    if bounds is None or not percent:
        return interval(bounds and Interval(*map(float, bounds)))
    return " to ".join(f"{float(bound):.1%}" for bound in bounds)
