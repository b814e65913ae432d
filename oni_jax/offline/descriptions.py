"""Descriptions of sub-episodes: the messages, one per line, and the statistics at the end."""

import itertools
from collections.abc import Iterator

import numpy as np

from oni_jax.envs.nethack.tasks import nethack
from oni_jax.offline.dataset import PairDataset
from oni_jax.offline.pair_config import PreferenceConfig

HUNGER = ("satiated", "not hungry", "hungry", "weak with hunger", "fainting", "fainted", "starved")


def describe_messages(messages: np.ndarray) -> bytes:
    """Renders messages [L, M] uint8, one per line; drops empty ones, and merges repeats into "message (xN)"."""
    texts = (row.tobytes().replace(b"\0", b"") for row in messages)
    groups = ((text, len(list(group))) for text, group in itertools.groupby(text for text in texts if text))
    return b"\n".join(text if count == 1 else b"%s (x%d)" % (text, count) for text, count in groups)


def describe_blstats(blstats: np.ndarray) -> bytes:
    """Renders the last step of statistics [L, D] in words."""
    last = blstats[-1]
    state = int(last[nethack.NLE_BL_HUNGER])
    hunger = HUNGER[state] if 0 <= state < len(HUNGER) else f"hunger state {state}"
    return (
        f"Depth {last[nethack.NLE_BL_DEPTH]}, gold {last[nethack.NLE_BL_GOLD]}, "
        f"HP {last[nethack.NLE_BL_HP]} of at most {last[nethack.NLE_BL_HPMAX]}, "
        f"experience level {last[nethack.NLE_BL_XP]}, {hunger}."
    ).encode()


def describe_pairs(
    preference: PreferenceConfig, dataset: PairDataset, rows: np.ndarray
) -> Iterator[tuple[bytes, bytes]]:
    """Yields both descriptions of each of the pairs `rows`."""
    messages = dataset.messages(rows) if preference.use_messages else [()] * len(rows)
    blstats = dataset.blstats(rows) if preference.use_blstats else [()] * len(rows)
    for i in range(len(rows)):
        sides: list[bytes] = []
        for side in (0, 1):
            parts = [describe_messages(messages[i][side])] if preference.use_messages else []
            parts += [describe_blstats(blstats[i][side])] if preference.use_blstats else []
            sides.append(b"\n".join(part for part in parts if part))
        yield sides[0], sides[1]
