"""Images of small codes: what divides them, and what runs keep that were trained before there was a choice."""

import json
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from oni_jax.envs.gymnasium_env import gymnasium_environment
from oni_jax.networks.generic import make_generic_encoder
from oni_jax.runs.experiment import check_unchanged, write_settings
from oni_jax.runs.plan import Machine, with_chosen_encoder
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config, config_from_json, config_to_json
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.training.plan import resolve
from oni_jax.types import ArraySpec, EnvSpec

MACHINE = Machine(num_cores=2, memory_bytes=1 << 34)


class Codes(gymnasium.Env):
    """Shows codes, 0 to 10, 5 and 0 by channel, and pixels."""

    def __init__(self):
        codes = gymnasium.spaces.Box(0, np.broadcast_to(np.array([10, 5, 0], np.uint8), (4, 4, 3)), (4, 4, 3), np.uint8)
        pixels = gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8)
        self.observation_space = gymnasium.spaces.Dict({"codes": codes, "pixels": pixels})
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}


def settings_of(folder, **values: Any) -> Config:
    values = {"root_env": "Catch-v0", "train_dir": str(folder), "hidden_size": 8, "llm_reward_type": "none", **values}
    return with_values(Config(), values)


def outputs(scale: str, image: np.ndarray, highest: tuple[float, ...]) -> np.ndarray:
    spec = EnvSpec({"image": ArraySpec(image.shape, "uint8", highest=highest)}, 2, False, ())
    encoder = make_generic_encoder(NetworkConfig(hidden_size=8, image_scale=scale), spec)
    seen = {"image": image[None]}
    return np.asarray(encoder.apply(encoder.init(jax.random.key(0), seen), seen))


def test_environment_s_space_says_the_highest_codes():
    spec = gymnasium_environment("Codes-v0", Codes).make_spec(EnvConfig(root_env="Codes-v0"))
    assert spec.observations["codes"].highest == (10, 5, 0)
    assert spec.observations["pixels"].highest == (255, 255, 255)


def test_codes_are_divided_by_the_highest_of_their_channel():
    codes = np.random.default_rng(0).integers(0, 2, (7, 7, 3)).astype(np.uint8)
    highest = np.array([10, 5, 0], np.uint8)
    np.testing.assert_allclose(
        outputs("space", codes * highest, (10, 5, 0)),
        outputs("space", codes * np.array([255, 255, 0], np.uint8), ()),
        rtol=1e-5,
    )
    np.testing.assert_array_equal(outputs("255", codes, (10, 5, 0)), outputs("space", codes, (255,) * 3))


def test_run_of_before_there_was_a_choice_keeps_255(tmp_path):
    text = json.loads(config_to_json(settings_of(tmp_path, experiment="old", encoder_custom="generic_encoder")))
    del text["network"]["image_scale"]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text(json.dumps(text))
    assert Run(str(tmp_path / "old")).plan.config.network.image_scale == "255"
    resumed = settings_of(tmp_path, experiment="old")
    assert check_unchanged(resumed) == [] and resolve(resumed, MACHINE).config.network.image_scale == "255"
    with pytest.raises(UserError, match="--image_scale=255"):
        check_unchanged(settings_of(tmp_path, experiment="old", image_scale="space"))
    later = settings_of(tmp_path, experiment="later", init_from=str(tmp_path / "old"))
    assert with_chosen_encoder(later).network.image_scale == "255"


def test_new_run_takes_what_its_space_says_and_keeps_it(tmp_path):
    config = resolve(settings_of(tmp_path, experiment="new"), MACHINE).config
    assert config.network.image_scale == "space"
    (tmp_path / "new").mkdir()
    write_settings(config, str(tmp_path / "new"))
    assert check_unchanged(settings_of(tmp_path, experiment="new")) == []
    assert config_from_json('{"network": {"hidden_size": 8}}').network.image_scale == "auto"  # a config, not a run's
