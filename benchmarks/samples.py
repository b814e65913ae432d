"""Random batches in the layout of real ones, and with the same cost."""

import numpy as np

from oni_jax.envs.base import record_dtype
from oni_jax.networks.policy import ActorCritic
from oni_jax.ops.records import as_bytes
from oni_jax.settings.config import Config
from oni_jax.types import CaptionBatch, EnvSpec, StepCaptions
from oni_jax.worlds.actors.batches import ActorPayload
from oni_jax.worlds.actors.exchange import policy_record_dtype
from oni_jax.worlds.base import Collected

WINDOW = b" " * 120 + b"." * 30 + b"#|-" * 6 + b"@dfkxF+<>%!?)["  # characters around a hero: most of it is dark
PHRASES = (
    b"You hit the newt",
    b"It misses",
    b"There is a staircase down here. You see here gold pieces",
    b"You feel more confident in your weapon skills. The jackal bites! Experience",
    b"This door is locked",
)
EPISODE_STEPS = 500  # mean length of an episode


def sample_messages(count: int, first: int = 0) -> list[bytes]:
    """Returns unique messages, numbered from `first` on."""
    return [b"%s %d." % (PHRASES[i % len(PHRASES)], i) for i in range(first, first + count)]


def sample_records(shape: tuple[int, ...], spec: EnvSpec, rng: np.random.Generator) -> np.ndarray:
    """Samples records of the actors; half of the observations show a message."""
    records = np.zeros(shape, record_dtype(spec))
    window = records["chars"].shape
    records["chars"] = rng.choice(np.frombuffer(WINDOW, np.uint8), window)
    records["colors"] = np.where(rng.random(window) < 0.9, 7, rng.integers(0, 16, window))
    records["vector_obs"] = rng.normal(size=records["vector_obs"].shape).clip(-5, 5)
    messages = np.array([b"", *sample_messages(1000)], f"S{records['message'].shape[-1]}")
    number = rng.integers(1, len(messages), shape) * (rng.random(shape) < 0.5)
    records["message"] = messages[number][..., None].view(np.uint8)
    records["caption_count"] = records["outcome_caption_count"] = rng.integers(1, 50, shape)
    records["is_first"] = rng.random(shape) < 1 / EPISODE_STEPS
    records["reward"] = rng.normal(size=shape)
    records["truncated"] = records["is_first"] & (rng.random(shape) < 0.2)
    records["terminated"] = records["is_first"] & ~records["truncated"]
    return records


def sample_batch(config: Config, spec: EnvSpec, policy: ActorCritic, seed: int = 0) -> Collected:
    """Samples a batch for an update, with messages as captions."""
    rng = np.random.default_rng(seed)
    steps, size = config.learner.rollout, config.learner.batch_size // config.learner.rollout
    records = sample_records((steps + 1, size), spec, rng)
    acted = np.zeros((steps, size), policy_record_dtype(spec.num_actions))
    acted["action"] = rng.integers(0, spec.num_actions, acted.shape)
    acted["logits"] = 0.1 * rng.normal(size=acted["logits"].shape)
    acted["value"] = rng.normal(size=acted.shape)
    acted["truncation_value"] = np.where(records["truncated"][1:], rng.normal(size=acted.shape), 0.0)
    shown = records["message"][:-1].copy().view(f"S{records['message'].shape[-1]}")[..., 0]
    messages, index = np.unique(shown, return_inverse=True)
    observations = {name: records[name][:-1] for name in spec.observations}
    captions = CaptionBatch(messages.tolist(), index.reshape(shown.shape).astype(np.int32), observations)
    return Collected(
        ActorPayload(as_bytes(records), as_bytes(acted), {}, policy.initial_state(size)),
        StepCaptions(captions, captions),
    )
