"""Recorded episodes, played again by our stepper."""

import functools
import pathlib
import re
from collections.abc import Mapping, Sequence

import nle
import numpy as np

from oni_jax.envs.base import TEXT_DTYPE
from oni_jax.envs.captions import CaptionTracker
from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv
from tests.envs.outputs import step_output

Result = tuple[str, float, float]
"""(output, its largest error, the largest one allowed)"""

TOLERANCES = {"reward": 1e-5}  # all others have 0
OBSERVATIONS = ("blstats", "message", "win_chars", "win_colors", "msg_count")  # not compared where an episode ended
FIRST_OBSERVATIONS = ("reset_blstats", "reset_message", "reset_chars", "reset_colors")
OUTCOMES = ("reward", "done", "end_status", "dlvl", "gold", "xlvl", "scout", "kill_counts")


def recognises(npz: Mapping[str, np.ndarray]) -> bool:
    return {"task", "seeds", "reset_at", "action", "max_episode_steps"} <= set(npz)


def check(npz: Mapping[str, np.ndarray], make: type[NetHackVectorEnv] = NetHackVectorEnv) -> list[Result]:
    """Plays the actions and compares every recorded output. make: the stepper.

    NLE names shopkeepers by the wall clock. A step whose message differs by such a name is counted in the row
    `shopkeepers' names`, and what it shows is not compared.
    """
    replay = play(npz, make)
    running = ~replay["done"]
    renamed = np.array([differ_by_name(*pair) for pair in zip(npz["message"], replay["message"])]) & running
    results = [compare("reset_at", npz["reset_at"], replay["reset_at"])]
    results += [compare(name, npz[name], replay[name]) for name in OUTCOMES + FIRST_OBSERVATIONS]
    shown = running & ~renamed
    results += [compare(name, npz[name][shown], replay[name][shown]) for name in OBSERVATIONS]
    if renamed.any():
        results.append(("shopkeepers' names", float(renamed.sum()), np.inf))
    return results


def compare(name: str, recorded: np.ndarray, replayed: np.ndarray) -> Result:
    tolerance = TOLERANCES.get(name, 0.0)
    if recorded.shape != replayed.shape:
        return name, np.inf, tolerance
    errors = np.abs(recorded.astype(np.float64) - replayed.astype(np.float64))
    return name, float(np.nan_to_num(errors, nan=np.inf).max(initial=0.0)), tolerance


def play(npz: Mapping[str, np.ndarray], make: type[NetHackVectorEnv] = NetHackVectorEnv) -> dict[str, np.ndarray]:
    """Returns our environment's outputs for the recorded seeds and actions, under the recording's names."""
    seeds = npz["seeds"].tolist()
    env = make(
        TASKS[str(npz["task"])],
        num_envs=1,
        # The file ends within an episode or at its end; the one that would follow isn't looked at.
        seeds=lambda _, episode: tuple(seeds[min(episode, len(seeds) - 1)]),
        max_episode_steps=int(npz["max_episode_steps"]),
    )
    try:
        return _play(env, npz["action"].astype(np.int32))
    finally:
        env.close()


def _play(env: NetHackVectorEnv, actions: np.ndarray) -> dict[str, np.ndarray]:
    out = step_output(env)
    tracker = CaptionTracker(env.spec, 1)
    numbers = np.zeros(1, TEXT_DTYPE)
    rows: dict[str, list] = {name: [] for name in OUTCOMES + OBSERVATIONS + FIRST_OBSERVATIONS}
    reset_at = [0]

    def append(**values: np.ndarray | int) -> None:
        for name, value in values.items():
            rows[name].append(np.copy(value))

    def append_first() -> None:
        record = out.records[0]
        append(
            reset_blstats=env.arrays.blstats[0],
            reset_message=record["message"],
            reset_chars=record["chars"],
            reset_colors=record["colors"],
        )

    env.reset(out)
    tracker.update(out, numbers)
    append_first()
    for step, action in enumerate(actions):
        env.step(action[None], out)
        tracker.update(out, numbers)
        record, done = out.records[0], bool(env.end_status[0])
        stats = dict(zip(env.spec.episode_stats, out.episode_stats[0]))
        before = env.previous_blstats[0]
        append(
            reward=record["reward"],
            done=record["terminated"] | record["truncated"],
            end_status=env.end_status[0],
            dlvl=stats["dlvl"] if done else before[12],
            gold=stats["gold"] if done else before[13],
            xlvl=stats["xlvl"] if done else before[18],
            scout=stats["scout"] if done else env.scout(0),
            kill_counts=stats["kills"] if done else env.kill_count(0),
            blstats=env.arrays.blstats[0],
            message=record["message"],
            win_chars=record["chars"],
            win_colors=record["colors"],
            msg_count=record["outcome_caption_count"],
        )
        if done and step + 1 < len(actions):
            reset_at.append(step + 1)
            append_first()
    return {"reset_at": np.array(reset_at), **{name: np.array(values) for name, values in rows.items()}}


def differ_by_name(one: np.ndarray, other: np.ndarray) -> bool:
    """True if two messages [256] differ, and only in words that are names in NetHack's lists."""
    if (one == other).all():
        return False
    words, other_words = (re.split(rb"([A-Za-z-]+)", text.tobytes().rstrip(b"\0")) for text in (one, other))
    if len(words) != len(other_words):
        return False
    changed: Sequence[bytes] = [word for pair in zip(words, other_words) if pair[0] != pair[1] for word in pair]
    return all(word in _names() for word in changed)


@functools.cache
def _names() -> frozenset[bytes]:
    """The engine's strings that are one capitalised word; a shopkeeper's may begin with a sign of their sex."""
    library = pathlib.Path(nle.__file__).with_name("libnethack.so").read_bytes()
    return frozenset(re.findall(rb"(?<=\0)[-_+|]?([A-Z][a-z-]+)(?=\0)", library))
