"""Random steps of an environment: a summary of what it shows, and of what looks wrong."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from oni_jax.envs.base import StepOutput, VectorEnv, make_step_output
from oni_jax.envs.registry import env_spec, find_environment, make_vector_env
from oni_jax.envs.spaces import Bound, Bounds
from oni_jax.settings.fields import UserError, caption_text
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import CAPTION, EVERYTHING, NO_MESSAGE, EnvSpec

NUM_ENVS = 2
NUM_SHOWN, WIDTH = 5, 100  # texts of a kind, and characters of each
TOLERANCE = 1e-5  # tolerance of bounds, relative: observations are rounded to float32


@dataclasses.dataclass
class Findings:
    """Results of a check, in lines for people."""

    seen: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)  # may be meant
    wrong: list[str] = dataclasses.field(default_factory=list)


class FailedStep(Exception):
    """An environment raised."""


class Episode(NamedTuple):
    length: int
    total_reward: float
    terminated: bool
    stats: np.ndarray  # [K] float32, which the environment reports


class Play(NamedTuple):
    """Record of what N environments showed in S steps after a reset."""

    records: np.ndarray  # [S+1, N] record_dtype
    finals: np.ndarray  # [E] record_dtype; the last observations of episodes
    captions: list[list[bytes]]  # [S+1][N]
    final_captions: list[bytes]  # [E]
    events: list[list[bytes]]  # [S+1][N]
    episodes: list[Episode]  # [E]
    num_restarts: int
    note: str


def check_environment(config: EnvConfig, num_steps: int, seed: int) -> Findings:
    """Plays an environment at random, several times. Nothing that it raises is raised, but by an unknown name.

    Raises:
        UserError: there is no such environment.
    """
    found, environment = Findings(), find_environment(config)
    try:
        spec = env_spec(config)
        names = (EVERYTHING, CAPTION) if environment.device and spec.has_captions else (EVERYTHING,)
        spec, bounds = env_spec(config, names), environment.bounds(config)
    except Exception as error:  # an environment's code may raise anything
        found.wrong.append(_reason(error).removeprefix(f"--root_env {config.root_env}: "))
        return found
    found.seen.append(_described(config, spec))
    actions = np.random.default_rng(seed).integers(spec.num_actions, size=(num_steps, NUM_ENVS)).astype(np.int32)

    def played(taken: np.ndarray, first_index: int = 0, limit: int = 0) -> Play:
        with closing(make_vector_env(config, taken.shape[1], seed, first_index, names)) as env:
            return _play(env, taken, limit)

    try:
        play = played(actions, limit=config.max_episode_steps)
        _summarise(found, play, spec, num_steps, config.max_episode_steps)
        found.wrong += [
            *_wrong_values(play, spec, bounds),
            *_wrong_texts(play, spec),
            *_wrong_episodes(play, spec, config.max_episode_steps),
            *_wrong_repeats(play, spec, environment.device is not None, actions, played),
        ]
    except FailedStep as error:
        found.wrong.append(str(error))
    return found


def _play(env: VectorEnv, actions: np.ndarray, limit: int = 0) -> Play:
    """Takes actions [S, N]; where no episode has ended by then, more of them, up to `limit` steps.

    Raises:
        FailedStep: the environment raised.
    """
    out = make_step_output(env.spec, env.num_envs)
    running = [(0, 0.0)] * env.num_envs  # length and total reward
    play = Play(np.zeros((len(actions) + 1, env.num_envs), out.records.dtype), out.finals[:0], [], [], [], [], 0, "")
    finals: list[np.ndarray] = []
    for step in range(max(len(actions), limit) + 1):
        if step > len(actions) and play.episodes:
            break
        try:
            env.step(actions[(step - 1) % len(actions)], out) if step else env.reset(out)
        except Exception as error:
            raise FailedStep(f"{f'step {step}' if step else 'the reset'} failed: {_reason(error)}") from error
        if wrong := [text for texts in out.texts for text in texts if not isinstance(text, bytes)]:
            raise FailedStep(f"a text is of the type {type(wrong[0]).__name__}; it must be bytes")
        if step <= len(actions):
            play.records[step] = out.records
            play.captions.append(list(out.texts.captions))
            play.events.append(list(out.texts.events))
        for i in range(env.num_envs) if step else ():
            running[i] = running[i][0] + 1, running[i][1] + float(out.records["reward"][i])
            if out.records["terminated"][i] or out.records["truncated"][i]:
                finals.append(out.finals[i].copy())
                play.final_captions.append(out.texts.final_captions[i])
                play.episodes.append(_ended(out, i, *running[i]))
                running[i] = 0, 0.0
    shown = np.array(finals, out.records.dtype) if finals else play.finals
    return play._replace(finals=shown, num_restarts=env.num_restarts, note=env.note())


def _ended(out: StepOutput, i: int, length: int, total_reward: float) -> Episode:
    return Episode(length, total_reward, bool(out.records["terminated"][i]), out.episode_stats[i].copy())


def _described(config: EnvConfig, spec: EnvSpec) -> str:
    """Returns an environment's name, actions and observations."""
    arrays = [f"{name} {x.dtype}{list(x.shape)}" for name, x in spec.observations.items()]
    return f"{config.root_env}: {spec.num_actions} actions; observations: {', '.join(arrays) or 'none'}"


def _summarise(found: Findings, play: Play, spec: EnvSpec, num_steps: int, limit: int) -> None:
    """Adds lines and notes on steps, episodes, rewards and texts."""
    episodes, rewards = play.episodes, play.records["reward"][1:]
    line = f"{num_steps:,} random steps of {NUM_ENVS} environments: {len(episodes)} episodes"
    if episodes:
        lengths, returns = [x.length for x in episodes], [x.total_reward for x in episodes]
        num_terminated = sum(x.terminated for x in episodes)
        line += f", {num_terminated} terminated, {len(episodes) - num_terminated} truncated; "
        line += f"{min(lengths)} to {max(lengths)} steps, mean {np.mean(lengths):.4g}"
        found.seen += [line, f"return: {min(returns):.4g} to {max(returns):.4g}, mean {np.mean(returns):.4g}"]
    else:
        found.seen.append(line)
    num_paid = np.count_nonzero(rewards)
    found.seen.append(f"reward: {rewards.min():.4g} to {rewards.max():.4g}; not 0 at {num_paid / rewards.size:.2%}")
    if not num_paid:
        found.notes.append("no step was rewarded: random steps teach nothing")
    if spec.has_captions:
        found.seen += _listed("captions", play.captions, play.final_captions)
    if spec.has_events:
        found.seen += _listed("events", play.events[1:])
        if not any(event for events in play.events for event in events):
            found.notes.append("no step had an event")
    for name in spec.observations:
        values = play.records[name]
        if len(spec.observations) > 1 and not np.any(values != values[0, 0]):
            found.notes.append(f"the observation {name} never changes")
    if play.note:
        found.notes.append(play.note.removeprefix("warning: "))
    if episodes and max(x.length for x in episodes) == 1:
        found.notes.append("every episode ends at its first step")
    if episodes and limit < num_steps and all(x.length == limit and not x.terminated for x in episodes):
        found.notes.append(f"every episode is cut off by --max_episode_steps {limit}")


def _listed(name: str, texts: Sequence[Sequence[bytes]], more: Sequence[bytes] = ()) -> Iterator[str]:
    """Yields how many distinct texts there are, and the most frequent."""
    counts = collections.Counter(text for row in (*texts, more) for text in row)
    yield f"{len(counts):,} distinct {name} in {counts.total():,}, the most frequent:"
    for text, count in counts.most_common(NUM_SHOWN):
        shown = ascii(caption_text(text))[1:-1] or NO_MESSAGE
        yield f"{count:>8,}  {shown if len(shown) <= WIDTH else f'{shown[: WIDTH - 3]}...'}"


def _wrong_values(play: Play, spec: EnvSpec, bounds: Mapping[str, Bounds]) -> Iterator[str]:
    """Yields non-finite rewards and observations, and observations outside their space."""
    rewards = play.records["reward"]
    if count := np.count_nonzero(~np.isfinite(rewards)):
        step, i = np.argwhere(~np.isfinite(rewards))[0]
        yield f"the reward is {rewards[step, i]} at step {step} (and at {count - 1:,} others)"
    for name, array in spec.observations.items():
        values = np.concatenate([play.records[name].reshape(-1, *array.shape), play.finals[name]])
        ids = (np.float64(0), np.float64(array.num_ids - 1)) if array.num_ids else None
        if not np.isfinite(values).all():
            yield f"the observation {name} holds {values[~np.isfinite(values)][0]}: it must be finite"
        elif space := bounds.get(name, ids):
            yield from _outside(name, values, *space)
    if spec.observations and len(play.records) > 1:
        if not any(np.any(play.records[name] != play.records[name][0, 0]) for name in spec.observations):
            yield f"the observation never changes in {len(play.records) - 1:,} steps"


def _outside(name: str, values: np.ndarray, low: Bound, high: Bound) -> Iterator[str]:
    """Yields the first of the values [M, ...] that is not between its bounds."""
    spare = TOLERANCE if values.dtype.kind == "f" else 0.0
    lowest, highest = low - spare * np.maximum(1, np.abs(low)), high + spare * np.maximum(1, np.abs(high))
    outside = (values < lowest) | (values > highest)
    if outside.any():
        low, high = (np.broadcast_to(bound, values.shape)[outside][0] for bound in (low, high))
        yield f"the observation {name} holds {values[outside][0]:g}, outside its space, {low:g} to {high:g}"


def _wrong_texts(play: Play, spec: EnvSpec) -> Iterator[str]:
    """Yields what is wrong with captions: an LLM is asked about them, and its answers are looked up by them."""
    if not spec.has_captions:
        return
    captions = {caption for row in play.captions for caption in row} | {*play.final_captions}
    if captions == {b""}:
        yield "the caption is empty at every step: an LLM is asked nothing"
    elif len(captions) == 1 and len(play.captions) > 1:
        yield f"the caption never changes: {ascii(caption_text(min(captions))):.100}"
    if CAPTION in spec.observations:  # keys
        keys = collections.defaultdict(set)
        for caption, key in zip(itertools.chain(*play.captions), play.records[CAPTION].reshape(-1, spec.caption_size)):
            keys[caption].add(key.tobytes())
        if several := [caption for caption, found in keys.items() if len(found) > 1]:
            yield f"a caption has {len(keys[several[0]])} keys, and is counted as so many: {several[0]!a:.100}"
    if any(b"\0" in caption for caption in captions):
        yield "a caption holds a zero byte: such a text is never asked about"


def _wrong_episodes(play: Play, spec: EnvSpec, limit: int) -> Iterator[str]:
    """Yields what is wrong with the ends of episodes."""
    num_steps, episodes = len(play.records) - 1, play.episodes
    if limit >= num_steps and not any(x.terminated or x.length < limit for x in episodes):
        yield f"no episode ends in {limit:,} steps, but by --max_episode_steps"
    ends = play.records["terminated"] | play.records["truncated"]
    if np.any(ends[1:] != play.records["is_first"][1:]) or not play.records["is_first"][0].all():
        yield "`is_first` is not set at each reset, or elsewhere"
    if np.any(play.records["terminated"] & play.records["truncated"]):
        yield "an episode is both terminated and truncated"
    for name, counted in (("length", lambda x: x.length), ("return", lambda x: x.total_reward)):
        if name in spec.episode_stats:
            column = spec.episode_stats.index(name)
            pairs = [(float(x.stats[column]), counted(x)) for x in episodes]
            if bad := [(x, y) for x, y in pairs if not np.isclose(x, y, 1e-3, 1e-3, equal_nan=True)]:
                yield f"the statistic {name} of an episode is {bad[0][0]:g}, and its steps say {bad[0][1]:g}"
    if play.num_restarts:
        yield f"an environment failed and was replaced {play.num_restarts} times"


def _wrong_repeats(
    play: Play, spec: EnvSpec, is_pure: bool, actions: np.ndarray, played: Callable[..., Play]
) -> Iterator[str]:
    """Yields what differs between plays that should be equal, and what is equal where it should differ."""
    if difference := _difference(play, played(actions), spec):
        yield f"the seed is ignored: a second play with it and the same actions differs, first in {difference}"
    elif not is_pure and (difference := _difference(_column(play, 1), played(actions[:, 1:], 1), spec)):
        yield f"an environment depends on the others that are played beside it, first in {difference}"
    if spec.num_actions > 1 and not _difference(play, played((actions + 1) % spec.num_actions), spec):
        yield f"actions change nothing: other actions lead to the same {len(actions):,} steps"


def _column(play: Play, i: int) -> Play:
    """Returns the steps of one environment."""
    captions, events = ([row[i : i + 1] for row in rows] for rows in (play.captions, play.events))
    return play._replace(records=play.records[:, i : i + 1], captions=captions, events=events)


def _difference(one: Play, other: Play, spec: EnvSpec) -> str:
    """Returns where two plays differ first; empty: nowhere."""
    first: dict[str, int] = {}
    for name in (*spec.observations, "reward", "terminated", "truncated"):
        mine, theirs = (play.records[name].reshape(len(play.records), -1) for play in (one, other))
        is_equal = (mine == theirs) | ((mine != mine) & (theirs != theirs))  # NaN
        if not is_equal.all():
            first[name] = int(np.argmin(is_equal.all(axis=1)))
    texts = {"caption": (one.captions, other.captions), "event": (one.events, other.events)}
    for name, (mine, theirs) in texts.items():
        if mine != theirs:
            first[name] = next(step for step, (x, y) in enumerate(zip(mine, theirs)) if x != y)
    earliest = min(first, key=lambda name: first[name], default="")
    return earliest and f"`{earliest}` at step {first[earliest]}"


def _reason(error: Exception) -> str:
    text = " ".join(f"{error}".split())
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
