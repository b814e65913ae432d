"""Tables of the JSON file that launch.evaluate writes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from oni_jax.evaluation.report import BIASED, interval, number
from oni_jax.host.files import read_regular
from oni_jax.host.json_files import MAX_JSON_BYTES
from oni_jax.ops.episode_sums import INTRINSIC_RETURN
from oni_jax.ops.statistics import QUANTILES, Interval
from oni_jax.settings.fields import UserError
from oni_jax.settings.json_text import parsed_object


class Part(NamedTuple):
    """A part of a section of the report."""

    title: str
    about: str
    tables: Sequence[tuple[Sequence[str], Sequence[Sequence[object]]]]  # (header, rows)


def evaluation_parts(path: str, follows_links: bool = False) -> list[Part]:
    """Makes the tables of the players' figures, and of their differences where they were compared.

    Raises:
        UserError: the file can't be read, or is of another kind.
    """
    try:
        return list(_parts(parsed_object(read_regular(path, MAX_JSON_BYTES, follows_links))))
    except OSError as error:
        raise UserError(f"--evaluation {path}: can't be read ({error.strerror}); name another file") from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise UserError(
            f"--evaluation {path}: is damaged, or not what launch.evaluate --json writes; name another file"
        ) from None


def _parts(tree: Mapping[str, Any]) -> Iterator[Part]:
    players = [*tree["evaluations"], *([tree["other"]] if "other" in tree else [])]
    for player in players:
        yield _player(player)
    partial = {player["player"] for player in players if not player["complete"]}
    for pair in tree.get("differences", []):
        names = pair["first"], pair["second"]
        about = f"Paired, on the same {pair['num_episodes']:,} episodes"
        about += f"; PARTIAL: {BIASED}." if partial & {*names} else "."
        rows = [[name, number(x["mean"]), _interval(x["interval"])] for name, x in pair["measures"].items()]
        yield Part(" minus ".join(names), about, [(["", "difference", "95 % interval"], rows)])


def _player(player: Mapping[str, Any]) -> Part:
    num_finished = len(player["episodes"])
    about = f"{player['root_env']}, policy {player['policy']}, {num_finished:,} episodes of seed {player['seed']}, "
    about += f"at most {player['max_episode_steps']:,} steps"
    if goals := "; ".join(player.get("goals", {}).values()):
        about += f", {goals}"
    if player.get("labels_by"):  # older files lack it
        about += f", labels by: {player['labels_by']}"
    for label, reason in player.get("not_reported", {}).items():
        about += f"; {INTRINSIC_RETURN}{label} is not reported: {reason}"
    if not player["complete"]:
        about += f"; PARTIAL: {player['num_episodes']:,} were asked for; {BIASED}"
    rows = []
    for name, x in player["measures"].items():
        levels = {**{level: x["quantiles"][f"{level:g}"] for level in QUANTILES}, 0.5: x["median"]}
        rows.append(
            [name, number(x["mean"]), _interval(x["interval"]), *(number(levels[key]) for key in sorted(levels))]
        )
    levels = [f"{100 * level:g} %" for level in sorted([*QUANTILES, 0.5])]
    ends = {f"end: {end}": x for end, x in player["ends"].items()}
    ends |= {"success": player["success"]} if player["success"] else {}
    rates = [
        [name, x["count"], f"{x['count'] / num_finished:.1%}", _interval(x["interval"], True)]
        for name, x in ends.items()
    ]
    measures = (["", "mean", "95 % interval", *levels], rows)
    return Part(player["player"], f"{about}.", [measures, (["", "episodes", "fraction", "95 % interval"], rates)])


def _interval(bounds: Any, percent: bool = False) -> str:
    if bounds is None or not percent:
        return interval(bounds and Interval(*map(float, bounds)))
    return " to ".join(f"{float(bound):.1%}" for bound in bounds)
