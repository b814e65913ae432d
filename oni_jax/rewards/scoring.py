"""Values of observations by a ranking model: of distinct messages where it reads nothing else."""

from collections.abc import Mapping
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.config import UserError
from oni_jax.networks.glyphs import RankingNetwork
from oni_jax.networks.ragged import map_messages
from oni_jax.rewards.messages import MESSAGE_SIZE, distinct_messages
from oni_jax.types import Array, ArraySpec, CaptionBatch, EnvSpec, PyTree


class ObservationModel:
    """What the online and the offline ranking models share.

    Args:
        network: with its encoder.

    Raises:
        UserError: the environment lacks an observation that the encoder reads.
    """

    def __init__(self, network: RankingNetwork, spec: EnvSpec):
        self._network = network
        names = network.reads
        available = {**spec.observations, "message": ArraySpec((MESSAGE_SIZE,), "uint8")}
        missing = [name for name in names if name not in available]
        if missing:
            raise UserError(f"the reward model reads {', '.join(missing)}, which this --root_env does not give")
        self.observations = {name: available[name] for name in names}
        self.other_observations = [name for name in names if name != "message"]
        self.reads_messages_alone = names == ("message",)

    def init(self, key: Array) -> PyTree:
        """Parameters to start from."""
        zeros = {name: jnp.zeros((1, *x.shape), x.dtype) for name, x in self.observations.items()}
        return jax.jit(self._network.init)(key, zeros)

    def prepare(self, captions: CaptionBatch) -> Mapping[str, np.ndarray]:
        """Features for `score`."""
        return distinct_messages(captions) if "message" in self.observations else {}

    def score(
        self, params: PyTree, index: Array, observations: Mapping[str, Array], features: Mapping[str, Array]
    ) -> Array:
        """Raw values [S, B]; see `Scorer.raw_values`."""
        if self.reads_messages_alone:

            def score_messages(messages: Array) -> Array:
                return self._network.apply(params, {"message": messages})

            return map_messages(score_messages, features["messages"], features["used"])[index]
        seen = {name: observations[name] for name in self.other_observations}
        if "message" in self.observations:
            seen["message"] = features["messages"][index]
        values = self._network.apply(params, {name: x.reshape(-1, *x.shape[2:]) for name, x in seen.items()})
        return cast(Array, values).reshape(index.shape)
