"""Saving and loading trained reward models."""

import pathlib

import jax
import numpy as np
import pytest

from oni_jax.rewards.oni.reward_model import QUANTILES, RewardModel, load_reward_model, save_reward_model
from oni_jax.rewards.trained import holds_trained
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig, TorchbeastConfig
from tests.support.full_disk import full_disk


def example(value: float = 0.5) -> RewardModel:
    params = {"params": {"dense": {"kernel": np.full((2, 3), value, np.float32), "bias": np.zeros(3, np.float32)}}}
    network = NetworkConfig(torchbeast=TorchbeastConfig(hidden_dim=64, msg_model="lt_cnn_small"))
    return RewardModel(network, params, 0.25, 4.0, {share: share - value for share in QUANTILES})


def refusal(folder: pathlib.Path) -> str:
    with pytest.raises(UserError) as error:
        load_reward_model(str(folder))
    assert "\n" not in str(error.value) and str(folder) in str(error.value)
    return str(error.value)


def test_the_newest_is_loaded_as_it_was_saved(tmp_path):
    save_reward_model(str(tmp_path), 1, example(0.1), {})
    save_reward_model(str(tmp_path), 2, example(), {"annotator": "score"})
    loaded = load_reward_model(str(tmp_path))
    assert loaded._replace(params=None) == example()._replace(params=None)
    jax.tree.map(np.testing.assert_array_equal, loaded.params, example().params)
    assert loaded.quantiles[0.05] == 0.05 - 0.5 and len(loaded.quantiles) == 19


def test_folders_without_a_model_are_refused(tmp_path):
    assert "holds no reward model" in refusal(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
    (tmp_path / "reward_model" / "1.orbax-checkpoint-tmp").mkdir(parents=True)  # a killed process's
    assert "holds no reward model" in refusal(tmp_path) and not holds_trained(str(tmp_path))


@pytest.mark.parametrize("max_bytes", [0, 300])
def test_a_full_disk_is_told_in_a_line_and_the_last_one_stays(tmp_path, max_bytes):
    save_reward_model(str(tmp_path), 1, example(), {})
    with full_disk(max_bytes), pytest.raises(UserError, match="can't be written") as error:
        save_reward_model(str(tmp_path), 2, example(0.1), {})
    assert "\n" not in str(error.value)
    assert load_reward_model(str(tmp_path)).quantiles == example().quantiles
    save_reward_model(str(tmp_path), 3, example(0.1), {})
    assert load_reward_model(str(tmp_path)).quantiles == example(0.1).quantiles


def test_a_damaged_or_foreign_model_is_refused(tmp_path):
    save_reward_model(str(tmp_path), 3, example(), {})
    settings = next(path for path in (tmp_path / "reward_model" / "3" / "settings").iterdir() if path.is_file())
    text = settings.read_text()
    for bad in (
        text.replace("reward model of", "policy of"),
        text.replace('"0.95"', '"0.96"'),
        text.replace('"lt_cnn_small"', "3"),
        text.replace('"encoder_hidden_dim"', '"other"'),
        text[: len(text) // 2],
    ):
        assert bad != text
        settings.write_text(bad)
        assert "can't be read" in refusal(tmp_path)
    settings.write_text(text)
    for path in (tmp_path / "reward_model" / "3" / "model").rglob("*"):
        if path.is_file() and path.stat().st_size > 200:
            path.write_bytes(b"x" * 50)
    assert "can't be read" in refusal(tmp_path)


def test_a_model_of_nan_is_refused(tmp_path):
    save_reward_model(str(tmp_path), 1, example(float("nan")), {})
    assert "NaN or inf" in refusal(tmp_path)
