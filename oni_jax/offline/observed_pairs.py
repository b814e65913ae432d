"""Inputs of a reward model from a data set's pairs: unique messages, or whole observations."""

from collections.abc import Callable, Mapping
from typing import cast

import jax
import numpy as np

from oni_jax.envs.nethack.vector_env import BLSTATS_SCALE, VECTOR_OBS_BOUND
from oni_jax.networks.glyphs import RankingNetwork
from oni_jax.networks.messages import MESSAGE_SIZE
from oni_jax.networks.ragged import map_messages, map_unique_messages
from oni_jax.offline.dataset import PairDataset
from oni_jax.settings.fields import UserError
from oni_jax.types import Array, PyTree

PAIRS_AT_ONCE = 512
Batch = Mapping[str, np.ndarray]  # leaves [n, 2, L, ...]
SOURCES = {"message": "data/message", "vector_obs": "data/blstats", "hero_xy": "data/blstats", "glyphs": "data/glyphs"}


class ObservedPairs:
    """P pairs of sub-episodes of L steps; scores every step."""

    def __init__(self, dataset: PairDataset, network: RankingNetwork):
        self._dataset, self._network, self._names = dataset, network, network.reads
        self._score = jax.jit(self.score)
        self.batch(np.arange(1))  # raises now if a shape is wrong

    def batch(self, rows: np.ndarray) -> Batch:
        """Returns the inputs of `score` for the pairs `rows` [n]."""
        return {name: self._observation(name, rows) for name in self._names}

    def _observation(self, name: str, rows: np.ndarray) -> np.ndarray:
        dataset = self._dataset
        if name == "message":
            messages = dataset.messages(rows)[..., :MESSAGE_SIZE]
            return np.pad(messages, [*[(0, 0)] * 3, (0, MESSAGE_SIZE - messages.shape[-1])])
        if name == "glyphs":
            glyphs = dataset["data/glyphs"]
            if glyphs.ndim != 5:
                raise UserError(
                    f"{dataset.path('data/glyphs')}: its shape is {glyphs.shape}, not (pairs, 2, steps, 21, 79)"
                )
            return np.asarray(glyphs[rows], np.int16)
        blstats = dataset.blstats(rows)
        if name == "hero_xy":
            return blstats[..., :2].astype(np.uint8)
        if blstats.shape[-1] != len(BLSTATS_SCALE):
            path = dataset.path("data/blstats")
            raise UserError(f"{path}: has {blstats.shape[-1]} statistics, but needs {len(BLSTATS_SCALE)}")
        return (blstats * BLSTATS_SCALE).clip(-VECTOR_OBS_BOUND, VECTOR_OBS_BOUND).astype(np.float32)

    def score(self, params: PyTree, batch: Mapping[str, Array]) -> Array:
        """Returns the rewards [n, 2, L] of a batch; pure."""
        shape = next(iter(batch.values())).shape[:3]
        flat = {name: x.reshape(-1, *x.shape[3:]) for name, x in batch.items()}
        return cast(Array, self._network.apply(params, flat)).reshape(shape)

    def all_rewards(self, params: PyTree) -> np.ndarray:
        """Returns the rewards [P, 2, L] float32 of every step."""
        num_pairs = self._dataset.num_pairs
        blocks = []
        for start in range(0, num_pairs, PAIRS_AT_ONCE):
            rows = np.minimum(np.arange(start, start + PAIRS_AT_ONCE), num_pairs - 1)  # one shape for all blocks
            blocks.append(np.asarray(self._score(params, self.batch(rows))))
        return np.concatenate(blocks)[:num_pairs]

    def unique_indices(self, rows: np.ndarray) -> np.ndarray:
        """Indices into the flattened [n, 2, L] of the pairs `rows`: one for each unique input of the network."""
        return np.arange(len(rows) * 2 * self._dataset.num_steps)


class MessagePairs(ObservedPairs):
    """Pairs for a network that reads only messages; scores each unique message of a batch once."""

    def __init__(self, dataset: PairDataset, network: RankingNetwork):
        ids: dict[bytes, int] = {}
        self._index = np.zeros((dataset.num_pairs, 2, dataset.num_steps), np.int32)
        for start in range(0, dataset.num_pairs, PAIRS_AT_ONCE):
            rows = slice(start, start + PAIRS_AT_ONCE)
            messages = np.ascontiguousarray(dataset.messages(rows)[..., :MESSAGE_SIZE])
            texts = messages.view(f"S{messages.shape[-1]}").ravel().tolist()
            self._index[rows] = np.reshape([ids.setdefault(text, len(ids)) for text in texts], messages.shape[:3])
        padded = np.array(list(ids), f"S{MESSAGE_SIZE}")
        self._messages = padded.view(np.uint8).reshape(-1, MESSAGE_SIZE)  # [U, 256]
        self._network = network
        self._score_block = jax.jit(self._score_messages)

    def batch(self, rows: np.ndarray) -> Batch:
        index = self._index[rows]
        return {"index": index, "message": self._messages[index]}

    def score(self, params: PyTree, batch: Mapping[str, Array]) -> Array:
        index = batch["index"]
        messages = batch["message"].reshape(-1, MESSAGE_SIZE)
        rewards = map_unique_messages(self._apply(params), messages, index.ravel())
        return rewards.reshape(index.shape)

    def all_rewards(self, params: PyTree) -> np.ndarray:
        count, size, blocks = len(self._messages), 2 * PAIRS_AT_ONCE, []
        for start in range(0, count, size):
            index = np.arange(start, start + size)  # one shape for all blocks
            block = self._messages[np.minimum(index, count - 1)]
            blocks.append(np.asarray(self._score_block(params, block, index < count)))
        return np.concatenate(blocks)[self._index]

    def unique_indices(self, rows: np.ndarray) -> np.ndarray:
        return np.unique(self._index[rows], return_index=True)[1]

    def _score_messages(self, params: PyTree, messages: Array, used: Array) -> Array:
        return map_messages(self._apply(params), messages, used)

    def _apply(self, params: PyTree) -> Callable[[Array], Array]:
        return lambda messages: self._network.apply(params, {"message": messages})


def observe(dataset: PairDataset, network: RankingNetwork) -> ObservedPairs:
    """Makes the pairs that a network reads. Raises UserError: the data set's arrays don't fit."""
    return (MessagePairs if network.reads == ("message",) else ObservedPairs)(dataset, network)
