"""Crafter in a device world: two devices collect what one does, and a restored world goes on bit for bit."""

import dataclasses

import jax
import numpy as np
import pytest

from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.settings.worlds import CrafterConfig, EnvConfig
from tests.support.processes import equal_on_devices
from tests.worlds.device.device_worlds import CONFIG, collect, make_world

MINE = dataclasses.replace(
    CONFIG,
    env=EnvConfig(root_env="Crafter-v1", max_episode_steps=25, crafter=CrafterConfig(map_stock=8)),
    network=NetworkConfig(encoder_custom="generic_encoder", hidden_size=8),
    learner=LearnerConfig(batch_size=4 * 20, rollout=20, recurrence=20),
)


def compare() -> None:
    """One device and two collect the same, and so does a world that one of them was restored in."""
    one, two, third = (make_world(MINE, num_devices, ("tiles",))[0] for num_devices in (1, 2, 1))
    one.start()
    two.start()
    for batch, other in zip(collect(one, 3), collect(two, 3), strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), other.payload, batch.payload)
        assert list(other.captions.caused.captions) == list(batch.captions.caused.captions)
    assert third.restore(one.save())
    third.start()
    for batch, other in zip(collect(one, 2), collect(third, 2), strict=True):
        jax.tree.map(np.testing.assert_array_equal, other.payload, batch.payload)
    print("equal")


@pytest.mark.slow
def test_devices_and_restored_worlds():
    equal_on_devices(2, "-m", "tests.envs.crafter.test_devices", flags="", timeout_secs=500)


if __name__ == "__main__":
    compare()
