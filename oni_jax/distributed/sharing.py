"""What all processes hear of, once an update: labels, captions, episodes, failures."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from oni_jax.buffers.exchange import TrajectoryExchange
from oni_jax.distributed.peers import Peers
from oni_jax.learner.loop import Annotator
from oni_jax.learner.shares import merge_captions
from oni_jax.rewards.base import Item
from oni_jax.types import Annotation, Answer, CaptionBatch

T = TypeVar("T")


class Shared:
    """The annotator of a run of several processes: process 0's own, of which all hear.

    Args:
        annotator: process 0's; the others' is asked nothing.
        observations: names of those that the reward learns from, which travel with the captions.
    """

    def __init__(self, peers: Peers, annotator: Annotator, exchange: TrajectoryExchange, observations: Sequence[str]):
        self._peers, self._annotator, self._exchange = peers, annotator, exchange
        self._observations = observations
        self._annotations: list[Annotation] = []
        # Of all processes:
        self.episodes: deque[np.ndarray] = deque()  # statistics of those that ended
        self.failures: deque[str] = deque()  # of actors that were replaced, one line each
        self.num_game_restarts = 0
        names = peers.gather({"labels_of": np.array(annotator.labels_of)})
        self.labels_of = str(names[0]["labels_of"])

    def share(self, captions: CaptionBatch) -> CaptionBatch:
        """Tells the others of this process's trajectories, and gives the captions of all. All processes call it."""
        annotations = self._annotator.poll()
        episodes, failures = _taken(self._exchange.episodes), _taken(self._exchange.failures)
        told = self._peers.tell(
            {
                **_pack_texts("failures", [text.encode() for text in failures]),
                "game_restarts": np.array(self._exchange.num_game_restarts),
                **_pack_texts("messages", captions.messages),
                "index": captions.index,
                **{f"observation {name}": captions.observations[name] for name in self._observations},
                **_pack_texts("items", [message for a in annotations for message in a.item]),
                "labels": np.array([a.label for a in annotations], np.int32),
                "probabilities": np.array([a.probability for a in annotations], np.float64),
                **({"episodes": np.stack(episodes)} if episodes else {}),
            }
        )
        for index, found in enumerate(told):
            self.episodes.extend(found.get("episodes", ()))
            self.failures.extend(f"process {index}: {text.decode()}" for text in _unpack_texts("failures", found))
        self.num_game_restarts = int(sum(found["game_restarts"] for found in told))
        first = told[0]
        messages, labels = _unpack_texts("items", first), first["labels"].tolist()
        size = len(messages) // max(1, len(labels))
        items = [tuple(messages[i : i + size]) for i in range(0, len(messages), max(1, size))]
        self._annotations += map(Annotation, items, labels, first["probabilities"].tolist())
        return merge_captions(
            [
                CaptionBatch(
                    _unpack_texts("messages", found),
                    found["index"],
                    {name: found[f"observation {name}"] for name in self._observations},
                )
                for found in told
            ]
        )

    def submit(self, items: Sequence[Item]) -> None:
        self._annotator.submit(items)

    def poll(self) -> list[Annotation]:
        """Those that all have heard of."""
        annotations, self._annotations = self._annotations, []
        return annotations

    def stats(self) -> Mapping[str, float | str]:
        return self._annotator.stats()

    def answers(self) -> tuple[Answer, ...]:
        return self._annotator.answers()

    def close(self) -> None:
        self._annotator.close()


def _taken(queue: deque[T]) -> list[T]:
    return [queue.popleft() for _ in range(len(queue))]


def _pack_texts(name: str, texts: Sequence[bytes]) -> dict[str, np.ndarray]:
    return {
        name: np.frombuffer(b"".join(texts), np.uint8),
        f"{name} lengths": np.array([len(text) for text in texts], np.int32),
    }


def _unpack_texts(name: str, arrays: Mapping[str, np.ndarray]) -> list[bytes]:
    joined, ends = arrays[name].tobytes(), np.cumsum(arrays[f"{name} lengths"])
    return [joined[end - length : end] for end, length in zip(ends.tolist(), arrays[f"{name} lengths"].tolist())]
