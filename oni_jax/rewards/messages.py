"""Messages as the arrays that reward models read."""

from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.networks.messages import MESSAGE_SIZE
from oni_jax.types import CaptionBatch


def message_array(messages: Sequence[bytes]) -> np.ndarray:
    """[N, MESSAGE_SIZE] uint8; what a message has beyond is cut off."""
    joined = b"".join(message[:MESSAGE_SIZE].ljust(MESSAGE_SIZE, b"\0") for message in messages)
    return np.frombuffer(joined, np.uint8).reshape(-1, MESSAGE_SIZE)


def message_texts(messages: np.ndarray | Sequence[np.ndarray]) -> list[bytes]:
    """The inverse of `message_array`; messages [N, MESSAGE_SIZE] uint8."""
    return [message.tobytes().rstrip(b"\0") for message in np.asarray(messages, np.uint8)]


def distinct_messages(captions: CaptionBatch) -> Mapping[str, np.ndarray]:
    """A batch's messages, each once: `messages` [T * B, MESSAGE_SIZE] uint8, and which rows are `used` [T * B] bool.

    As many rows as there can be, so that the shape is always the same.
    """
    count = captions.index.size
    messages = np.zeros((count, MESSAGE_SIZE), np.uint8)
    messages[: len(captions.messages)] = message_array(captions.messages)
    return {"messages": messages, "used": np.arange(count) < len(captions.messages)}
