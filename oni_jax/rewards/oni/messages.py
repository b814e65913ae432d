"""Captions as the `message` arrays that reward models read."""

from collections.abc import Mapping, Sequence

import numpy as np

from oni_jax.networks.messages import MESSAGE_SIZE
from oni_jax.types import CaptionBatch


def message_array(captions: Sequence[bytes]) -> np.ndarray:
    """Returns captions as [N, MESSAGE_SIZE] uint8, truncated or zero padded."""
    joined = b"".join(caption[:MESSAGE_SIZE].ljust(MESSAGE_SIZE, b"\0") for caption in captions)
    return np.frombuffer(joined, np.uint8).reshape(-1, MESSAGE_SIZE)


def captions_of(messages: np.ndarray | Sequence[np.ndarray]) -> list[bytes]:
    """Returns the captions of messages [N, MESSAGE_SIZE] uint8; the inverse of `message_array`."""
    return [message.tobytes().rstrip(b"\0") for message in np.asarray(messages, np.uint8)]


def unique_messages(captions: CaptionBatch) -> Mapping[str, np.ndarray]:
    """Returns a batch's unique captions: `messages` [T * B, MESSAGE_SIZE] uint8, and the mask `used` [T * B] bool.

    Padded to the largest possible number of rows, so that the shape is always the same.
    """
    count = captions.index.size
    messages = np.zeros((count, MESSAGE_SIZE), np.uint8)
    messages[: len(captions.captions)] = message_array(captions.captions)
    return {"messages": messages, "used": np.arange(count) < len(captions.captions)}
