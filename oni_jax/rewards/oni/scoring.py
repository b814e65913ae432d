"""Scores of observations by a ranking model: of unique messages where it reads nothing else."""

from collections.abc import Callable, Mapping
from typing import cast

import jax.numpy as jnp
import numpy as np

from oni_jax.networks.glyphs import RankingNetwork
from oni_jax.networks.ragged import map_messages
from oni_jax.ops.moments import Moments, normalise
from oni_jax.rewards.base import Scorer, Seen
from oni_jax.rewards.oni.messages import MESSAGE_SIZE, unique_messages
from oni_jax.settings.fields import UserError
from oni_jax.types import Array, ArraySpec, CaptionBatch, EnvSpec, PyTree


class ObservationScorer(Scorer):
    """Base class of the online and the offline ranking reward: normalised, 0 unless above a threshold.

    Args:
        network: network with its encoder.
        normalised: False for the raw score, without a threshold.
        threshold: threshold of the normalised reward.

    Raises:
        UserError: the environment lacks an observation that the encoder reads.
    """

    def __init__(self, network: RankingNetwork, spec: EnvSpec, normalised: bool, threshold: float):
        self._network, self._normalised, self._threshold = network, normalised, threshold
        names = network.reads
        available = {**spec.observations, "message": ArraySpec((MESSAGE_SIZE,), "uint8")}
        missing = [name for name in names if name not in available]
        if missing:
            raise UserError(f"the reward model reads {', '.join(missing)}, which this --root_env does not have")
        self._observations = {name: available[name] for name in names}
        self.other_observations = [name for name in names if name != "message"]
        self._reads_messages_alone = names == ("message",)

    def params(self, state: PyTree) -> PyTree:
        """Returns the network's parameters."""
        raise NotImplementedError

    def moments(self, state: PyTree) -> Moments:
        """Returns the moments that raw scores are normalised by."""
        raise NotImplementedError

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        return unique_messages(captions) if "message" in self._observations else {}

    def raw_values(self, state: PyTree, seen: Seen, features: Mapping[str, Array]) -> Array:
        params = self.params(state)
        if self._reads_messages_alone:
            return map_messages(self._score_messages(params), features["messages"], features["used"])[seen.index]
        read = {name: seen.observations[name] for name in self.other_observations}
        if "message" in self._observations:
            read["message"] = features["messages"][seen.index]
        values = self._network.apply(params, {name: x.reshape(-1, *x.shape[2:]) for name, x in read.items()})
        return cast(Array, values).reshape(seen.index.shape)

    def _score_messages(self, params: PyTree) -> Callable[[Array], Array]:
        return lambda messages: self._network.apply(params, {"message": messages})

    def normalise(self, state: PyTree, raw: Array) -> Array:
        if not self._normalised:
            return raw
        # ONI: the published code computes the normalised reward, and then uses the raw score.
        normalised = normalise(raw, self.moments(state))
        return jnp.where(normalised <= self._threshold, 0.0, normalised)  # NaN stays NaN: a bad update
