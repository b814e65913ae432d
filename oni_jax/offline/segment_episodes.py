"""Files of recorded episodes, and segments drawn from them.

A folder holds .npz files, one for each player: `lengths` [E] (steps of each episode), `actions` and `rewards` of all
steps, one episode after the other; `observations/<name>` and `caption_index` of all states, one more in an episode than
steps; `captions`, the distinct texts; `terminated` [E].
"""

import io
import os
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.host.files import write_atomically
from oni_jax.host.npz import Header, join_texts, open_npz, split_texts
from oni_jax.host.runtime import memory_bytes
from oni_jax.rewards.bk.segment_captions import action_name
from oni_jax.settings.fields import UserError, caption_text

OBSERVATIONS = "observations/"
MAX_STATE_BYTES = 1 << 20  # bound on an observation, or on the captions
# Kinds of NumPy's types that arrays have.
KINDS = {"actions": "iu", "rewards": "iuf", "terminated": "b", "starts": "iu", "caption_index": "iu", "captions": "iu"}


class Segment(NamedTuple):
    """L steps of an episode, or all of them."""

    observations: Mapping[str, np.ndarray]  # [L+1, ...] each
    captions: Sequence[bytes]  # [L+1]
    actions: np.ndarray  # [L] int
    rewards: np.ndarray  # [L] float32
    terminated: bool = False  # an episode ended with it, by its rules
    start: int = 0  # index of its first step in its episode

    @property
    def length(self) -> int:
        return len(self.actions)

    def part(self, start: int, length: int) -> "Segment":
        """Returns `length` steps from `start` on."""
        states, steps = slice(start, start + length + 1), slice(start, start + length)
        return Segment(
            {name: x[states] for name, x in self.observations.items()},
            self.captions[states],
            self.actions[steps],
            self.rewards[steps],
            self.terminated and start + length == self.length,
            self.start + start,
        )

    def in_words(self, actions: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns the captions, and what was done, with the actions' words."""
        return [caption_text(x) for x in self.captions], [action_name(actions, x) for x in self.actions.tolist()]


def write_episodes(path: str, episodes: Sequence[Segment]) -> None:
    """Writes a file. Raises OSError: it can't be written."""
    index = {text: i for i, text in enumerate(dict.fromkeys(text for episode in episodes for text in episode.captions))}
    arrays = {
        "lengths": np.array([episode.length for episode in episodes], np.int32),
        "terminated": np.array([episode.terminated for episode in episodes]),
        "starts": np.array([episode.start for episode in episodes], np.int32),
        "actions": np.concatenate([episode.actions for episode in episodes]).astype(np.int32),
        "rewards": np.concatenate([episode.rewards for episode in episodes]).astype(np.float32),
        "captions": join_texts(index),
        "caption_index": np.array([index[text] for episode in episodes for text in episode.captions], np.int32),
    }
    for name in episodes[0].observations:
        arrays[OBSERVATIONS + name] = np.concatenate([episode.observations[name] for episode in episodes])
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_atomically(path, content.getbuffer())


def read_episodes(path: str) -> list[Segment]:
    """Returns the episodes of a file, or of all files of a folder by their names. Raises UserError: there are none.

    Files of BK's published form, .npy, are read too: see `segments.published`.
    """
    if os.path.isdir(path):
        files = [name for name in os.listdir(path) if name.endswith((".npz", ".npy"))]
        files.sort(key=lambda name: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)])
        episodes = [episode for name in files for episode in _read_file(os.path.join(path, name))]
    else:
        episodes = _read_file(path)
    if not episodes:
        raise UserError(f"{path}: holds no episodes; launch.collect_segments writes some")
    return episodes


def _read_file(path: str) -> list[Segment]:
    if path.endswith(".npy"):
        from oni_jax.offline.segment_published import read_published_episodes

        return read_published_episodes(path)
    try:
        with open_npz(path) as (file, headers):
            _check_sizes(file["lengths"], headers)
            arrays = dict(file)
        _check_values(arrays)
        captions = np.array(split_texts(arrays["captions"]), object)[arrays["caption_index"]].tolist()
        ends = np.cumsum(arrays["lengths"]).tolist()
        named = {key.removeprefix(OBSERVATIONS): x for key, x in arrays.items() if key.startswith(OBSERVATIONS)}
        starts = arrays.get("starts", np.zeros(len(ends), np.int32))
        return [
            Segment(
                {name: x[start + i : end + i + 1] for name, x in named.items()},
                captions[start + i : end + i + 1],
                arrays["actions"][start:end],
                arrays["rewards"][start:end],
                bool(arrays["terminated"][i]),
                int(starts[i]),
            )
            for i, (start, end) in enumerate(zip([0, *ends], ends))
        ]
    except (
        OSError,
        EOFError,
        ValueError,
        LookupError,
        TypeError,
        RuntimeError,
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise UserError(f"{path}: is no file of episodes ({error})") from None


def _check_sizes(lengths: np.ndarray, headers: Mapping[str, Header]) -> None:
    """Raises ValueError: the arrays, which are not unpacked yet, are not as large as the lengths of episodes imply."""
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths) or lengths.min() < 0:
        raise ValueError("its lengths are none")
    num_steps = int(lengths.sum(dtype=np.int64))
    num_states = num_steps + len(lengths)
    wanted = {"actions": num_steps, "rewards": num_steps, "caption_index": num_states}
    wanted |= {name: len(lengths) for name in ("lengths", "terminated", "starts") if name in headers}
    if any(headers[name].shape != (number,) for name, number in wanted.items()):
        raise ValueError("its arrays don't fit each other")
    for name, header in headers.items():
        rows = header.shape[0] if header.shape else 0
        if name.startswith(OBSERVATIONS) and rows != num_states:
            raise ValueError("its arrays don't fit each other")
        if header.num_bytes > num_states * MAX_STATE_BYTES:
            raise ValueError(f"{name} is too large, with {header.num_bytes / 2**30:.1f} GiB unpacked")
    total = sum(header.num_bytes for header in headers.values())
    if total > memory_bytes() // 2:
        raise ValueError(f"it is too large for this machine's memory, with {total / 2**30:.1f} GiB unpacked")


def _check_values(arrays: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError: values that no episode has."""
    for name, kinds in KINDS.items():
        if name in arrays:
            check_kind(name, arrays[name], kinds)
    for name, array in arrays.items():
        check_kind(name, array, "biuf")
        if name in ("actions", "caption_index", "starts"):
            check_index(name, array)


def check_kind(name: str, array: np.ndarray, kinds: str) -> None:
    """Raises ValueError: an array is of another kind of NumPy's types, or holds NaN or inf."""
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name} is of type {array.dtype}")
    with np.errstate(over="ignore"):
        if array.dtype.kind == "f" and not np.isfinite(array.astype(np.float32)).all():
            raise ValueError(f"{name} holds NaN, inf or huge numbers")


def check_index(name: str, array: np.ndarray) -> None:
    """Raises ValueError: an array of integers holds negative ones, or such as int32 can't hold."""
    if array.size and not 0 <= array.min() <= array.max() <= np.iinfo(np.int32).max:
        raise ValueError(f"{name} holds negative or huge numbers")


class SegmentSampler:
    """Draws segments of L steps: an episode uniformly, again if it is shorter, then a start uniformly.

    Args:
        episodes: episodes to draw from.
        length: L.
        seed: seed of the draws; the same as NumPy's global generator, so that published runs draw the same.

    Raises:
        UserError: no episode is as long.
    """

    def __init__(self, episodes: Sequence[Segment], length: int, seed: int):
        if not any(episode.length >= length for episode in episodes):
            raise UserError(f"none of the {len(episodes)} episodes has {length} steps: draw shorter segments")
        self._episodes, self._length, self._rng = episodes, length, np.random.RandomState(seed)

    def draw_index(self) -> tuple[int, int]:
        """Returns the index of an episode, and the first step."""
        while (episode := self._episodes[index := int(self._rng.randint(len(self._episodes)))]).length < self._length:
            pass
        return index, int(self._rng.randint(episode.length - self._length + 1))

    def draw(self) -> Segment:
        index, start = self.draw_index()
        return self._episodes[index].part(start, self._length)
