"""The parts of the live view, as lines that fit a width."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

from oni_jax.config import RunConfig
from oni_jax.metrics.progress import clock, secs_left
from oni_jax.metrics.rows import Row, numbers, printable
from oni_jax.types import FIRST, SECOND, TIE, Answer

LABEL_WIDTH = 10
CURVE_WIDTH = 60
MIN_PAIR_WIDTH = 64  # for two messages side by side
MAX_PROBLEM_LINES = 3
LEAST_FIRST = ("memory", "labels", "episodes", "queues")
GIB = 1 << 30
WAITS = {
    "learner_waits_share": "learner for games",
    "inference_waits_share": "inference for games",
    "actors_wait_share": "games for actions",
    "games_paused_share": "games for learner",
}
_WAIT_WIDTH = max(map(len, WAITS.values())) + len(" 100% ")


class Pens(NamedTuple):
    """Characters to draw with."""

    levels: str  # of a curve, from low to high
    full: str
    empty: str
    cut: str  # where a text was cut off
    encoding: str  # that texts have to fit into


UNICODE = Pens("▁▂▃▄▅▆▇█", "█", "░", "…", "utf-8")
ASCII = Pens("_.-=+*#", "#", ".", "~", "ascii")

Part = tuple[str, str]  # a text that is not broken, unless it is longer than a line, and its style


def overview(row: Row, run: RunConfig, returns: Sequence[float], width: int, pens: Pens) -> dict[str, list[Text]]:
    """The lines under each label, without the newest answers. What a row lacks is left out."""
    known, room = numbers(row), width - LABEL_WIDTH
    problem = _encoded(printable(str(row.get("annotation/problem", ""))), pens)
    return {
        "run": flow("run", _run(known, run), width),
        "return": _return(known, returns, width, pens),
        "episodes": flow("episodes", _episodes(known), width),
        "faults": flow("faults", _faults(known), width),
        "speed": flow("speed", _speed(known), width),
        "waits": _waits(known, width, pens),
        "queues": flow("queues", _queues(known), width),
        "LLM": flow("LLM", _llm(known, str(row.get("server_state", ""))), width),
        "problem": [_line("", text, "yellow") for text in textwrap.wrap(problem, max(1, room))[:MAX_PROBLEM_LINES]],
        "labels": flow("labels", _labels(known), width),
        "memory": flow("memory", _memory(known), width),
    }


def fitting(sections: Mapping[str, list[Text]], height: int) -> list[Text]:
    """The sections' lines; where they don't fit, without what matters least."""
    kept = dict(sections)
    for label in LEAST_FIRST:
        if sum(map(len, kept.values())) > height:
            del kept[label]
    return [line for lines in kept.values() for line in lines][:height]


def flow(label: str, parts: Iterable[Part], width: int) -> list[Text]:
    """The parts, with commas between them, behind a label; as many lines as it takes."""
    lines: list[Text] = []
    texts = list(parts)
    for i, (text, style) in enumerate(texts):
        comma = "," if i + 1 < len(texts) else ""
        if not lines or lines[-1].cell_len + 1 + len(text + comma) > width:
            lines.append(_line("" if lines else label, text, style))
        else:
            lines[-1].append(" ").append(text, style)
        lines[-1].append(comma)
    return lines


def _line(label: str, text: str = "", style: str = "") -> Text:
    """A text behind a label. The whole line has no style, so that none spreads to its parts."""
    return _text("").append(label.ljust(LABEL_WIDTH), "bold").append(text, style)


def _text(text: str, style: str = "") -> Text:
    """A line that is cut off where it is too long."""
    return Text(text, style, no_wrap=True, overflow="crop")


def newest_answers(answers: Sequence[Answer], width: int, height: int, pens: Pens) -> list[Text]:
    """A heading and the answers, the newest first; nothing where not even one fits."""
    if not answers:
        return []
    narrow = width < MIN_PAIR_WIDTH
    of_pairs = "> better, = tie" if narrow else "> first wins, < second, = tie"
    legend = "+ helpful, - not" if len(answers[0].item) == 1 else of_pairs
    lines = [_line("answers", f"{legend}, ? unreadable", "dim")]
    for answer in reversed(answers):
        shown = _answer(answer, width, narrow, pens)
        if len(lines) + len(shown) > height:
            break
        lines += shown
    return lines if len(lines) > 1 else []


def sparkline(points: Sequence[float], width: int, levels: str) -> str:
    """A curve in a line of text of at most `width` characters, each the mean of as many points."""
    size = min(width, len(points))
    ends = [i * len(points) // size for i in range(size + 1)] if size > 0 else []
    means = [sum(points[a:b]) / (b - a) for a, b in zip(ends, ends[1:])]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(levels) - 1) / (high - low) if high > low else 0.0
    return "".join(levels[round((mean - low) * scale)] for mean in means)


def _run(known: Mapping[str, float], run: RunConfig) -> Iterator[Part]:
    yield printable(run.experiment), "bold cyan"
    if "env_steps" in known:
        limit = run.train_for_env_steps
        yield f"{known['env_steps']:,.0f}" + (f" of {_short(limit)}" if limit < 1e10 else "") + " steps", ""
    if "secs" in known:
        left = secs_left(known, run)
        yield f"{clock(known['secs'])} gone", ""
        if left is not None:
            yield f"{clock(left)} left", ""
    if "updates" in known:
        yield f"update {known['updates']:,.0f}", ""
    if "policy_lag_mean" in known:
        yield f"lag {known['policy_lag_mean']:.1f} (max {known.get('policy_lag_max', 0):.0f})", ""


def _return(known: Mapping[str, float], returns: Sequence[float], width: int, pens: Pens) -> list[Text]:
    """The newest mean, all of them as a curve, and from where to where that goes."""
    if "mean_return" not in known:
        return []
    line = _line("return", f"{known['mean_return']:,.4g} ", "bold")
    if len(returns) > 1:
        span = f" {min(returns):,.3g} to {max(returns):,.3g}"
        room = width - line.cell_len - len(span)
        line.append(sparkline(returns, max(1, min(CURVE_WIDTH, room)), pens.levels), "green").append(span)
    return [line]


def _episodes(known: Mapping[str, float]) -> Iterator[Part]:
    if "episodes" in known:
        yield f"{known['episodes']:,.0f} ended" if known["episodes"] else "none has ended yet", ""
    if "mean_length" in known:
        yield f"mean length {known['mean_length']:,.0f}", ""
    if "episode/dlvl" in known:
        yield f"depth {known['episode/dlvl']:.3g}", ""
    if "rewarded_steps" in known:
        yield f"{known['rewarded_steps']:,.0f} steps rewarded", ""


def _faults(known: Mapping[str, float]) -> Iterator[Part]:
    words = {
        "actor_restarts": "actors replaced",
        "game_restarts": "games started anew",
        "bad_updates": "updates skipped",
    }
    return ((f"{known[name]:,.0f} {text}", "yellow") for name, text in words.items() if known.get(name))


def _speed(known: Mapping[str, float]) -> Iterator[Part]:
    if "env_steps_per_sec" in known:
        yield f"learner {_rate(known['env_steps_per_sec'])} steps/s", ""
    if "updates_per_sec" in known:
        yield f"{_rate(known['updates_per_sec'])} updates/s", ""
    if "acted_steps_per_sec" in known:
        yield f"games {_rate(known['acted_steps_per_sec'])} steps/s", ""
        calls = known.get("inference_calls_per_sec", 0)
        if calls:
            yield f"inference {_rate(calls)} batches/s of {_rate(known['acted_steps_per_sec'] / calls)}", ""
    if known.get("reward_gradient_steps_per_sec"):
        yield f"reward model {_rate(known['reward_gradient_steps_per_sec'])} steps/s", ""


def _waits(known: Mapping[str, float], width: int, pens: Pens) -> list[Text]:
    """A bar for each, side by side where there is room."""
    shares = [(text, known[name]) for name, text in WAITS.items() if name in known]
    room = width - LABEL_WIDTH
    num_columns = 2 if room >= 2 * (_WAIT_WIDTH + 5) + 2 else 1
    bar = max(1, min(10, (room - 2 * (num_columns - 1)) // num_columns - _WAIT_WIDTH))
    lines = []
    for start in range(0, len(shares), num_columns):
        line = _line("" if start else "waits")
        for i, (text, share) in enumerate(shares[start : start + num_columns]):
            full = min(bar, round(share * bar))
            line.append(f"{'  ' if i else ''}{text.ljust(_WAIT_WIDTH - 6)} {share:4.0%} ")
            line.append(pens.full * full + pens.empty * (bar - full), "magenta")
        lines.append(line)
    return lines


def _queues(known: Mapping[str, float]) -> Iterator[Part]:
    words = {
        "ring_slots_full": "slots full",
        "ring_slots_free": "slots free",
        "groups_paused": "groups paused",
        "labels_backlog": "to ask",
        "annotation/in_flight": "being asked",
        "reward/pairs_waiting": "pairs without a label",
        "reward/gradient_steps_due": "gradient steps due",
    }
    return ((f"{known[name]:,.0f} {text}", "") for name, text in words.items() if name in known)


def _llm(known: Mapping[str, float], state: str) -> Iterator[Part]:
    if state:
        # One word is about the server; more are a phrase, such as "waiting for server".
        yield f"server {state}" if " " not in state else state, "green" if state == "ok" else "bold yellow"
    if "labels_per_sec" in known:
        yield f"{_rate(known['labels_per_sec'])} labels/s", ""
    if known.get("annotation/latency_secs_mean"):
        yield f"{_rate(known['annotation/latency_secs_mean'])} s a request", ""
    if known.get("llm_tokens_per_sec"):
        yield f"{_rate(known['llm_tokens_per_sec'])} tokens/s written", ""
    if known.get("llm_prompt_tokens_per_sec"):
        yield f"{_rate(known['llm_prompt_tokens_per_sec'])} tokens/s read", ""


def _labels(known: Mapping[str, float]) -> Iterator[Part]:
    words = {"labels_held": "held", "labels_asked": "asked"}
    yield from ((f"{known[name]:,.0f} {text}", "") for name, text in words.items() if name in known)
    wrong = {"answers_unreadable": "unreadable", "requests_failed": "requests failed"}
    yield from ((f"{known[name]:,.0f} {text}", "yellow") for name, text in wrong.items() if known.get(name))
    if "reward/accuracy" in known:
        yield f"model right in {known['reward/accuracy']:.0%}", ""


def _memory(known: Mapping[str, float]) -> Iterator[Part]:
    if "device_memory_bytes" in known:
        limit = known.get("device_memory_limit_bytes")
        yield (
            f"device {known['device_memory_bytes'] / GIB:.2f}" + (f" of {limit / GIB:.1f} GiB" if limit else " GiB"),
            "",
        )
    if "device_memory_peak_bytes" in known:
        yield f"peak {known['device_memory_peak_bytes'] / GIB:.2f} GiB", ""


def _answer(answer: Answer, width: int, narrow: bool, pens: Pens) -> list[Text]:
    """A message with its label before it; two with it between them, or, where it is narrow, below each other."""
    label = answer.label
    if len(answer.item) == 1:
        marks, style = {1: ("+", "green"), 0: ("-", "")}.get(label, ("?", "yellow"))
    else:
        marks, style = {FIRST: (">", ""), SECOND: ("<", ""), TIE: ("=", "dim")}.get(label, ("?", "yellow"))
        if not narrow:
            text = f" {marks} ".join(_message(message, (width - 3) // 2, pens) for message in answer.item)
            return [_text(text, style)]
        marks = {FIRST: "> ", SECOND: " >"}.get(label, 2 * marks)
    lines = (f"{mark} {_message(message, width - 2, pens)}" for mark, message in zip(marks, answer.item, strict=True))
    return [_text(line, style) for line in lines]


def _message(message: bytes, width: int, pens: Pens) -> str:
    text = _encoded(printable(message), pens) or "(no message)"
    return text if len(text) <= width else text[: max(0, width - 1)] + pens.cut


def _encoded(text: str, pens: Pens) -> str:
    return text.encode(pens.encoding, "backslashreplace").decode(pens.encoding)


def _short(value: float) -> str:
    return f"{value / 1e6:,.4g} M" if value >= 1e6 else f"{value:,.0f}"


def _rate(value: float) -> str:
    """Two digits that count below 10, and no fraction from there on."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
