"""The encoder of a run whose settings name none: the one that fits its environment."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from launch import train
from oni_jax.envs.registry import find_environment
from oni_jax.networks import registry
from oni_jax.runs.experiment import check_unchanged, experiment_folder, write_settings
from oni_jax.runs.plan import Machine, chosen_encoder, with_chosen_encoder, with_chosen_env
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.training.plan import resolve
from oni_jax.types import ArraySpec, EnvSpec
from tests.support import corridor_plugin

MACHINE = Machine(num_cores=2, memory_bytes=1 << 34)
CORRIDOR = {"root_env": "Corridor-v0", "plugin": "tests.support.corridor_plugin"}


def config_of(**values: Any) -> Config:
    return with_values(Config(), {"llm_reward_type": "none", **values})


def chosen(config: Config) -> Config:
    return with_chosen_encoder(with_chosen_env(config))


@pytest.mark.parametrize(
    "values, encoder",
    [
        ({"root_env": "NetHackScore-v1"}, "nle_rgbcrop_encoder"),
        ({"root_env": "NetHackOracle-v1", "language_state": True}, "generic_encoder"),  # the other can't read it
        ({"root_env": "BabyAI-Text-GoToLocal-RedBall-S20"}, "mlp_encoder"),
        ({"root_env": "Catch-v0"}, "mlp_encoder"),
        ({"root_env": "Crafter-v1"}, "generic_encoder"),
        ({"root_env": "CrafterTextEnv-v1", "goal_conditioned": True}, "generic_encoder"),
        (CORRIDOR, "generic_encoder"),
        ({**CORRIDOR, "encoder_custom": "corridor_encoder"}, "corridor_encoder"),
        ({"root_env": "BabyAI-Text-GoToLocal-RedBall-S20", "encoder_custom": "bk_encoder"}, "bk_encoder"),
    ],
)
def test_encoder_fits_the_environment(values, encoder):
    plan = resolve(config_of(**values), MACHINE)
    assert plan.config.network.encoder_custom == encoder and plan.policy_spec.observations
    said = [choice for choice in plan.chosen if choice.flag == "encoder_custom"]
    assert [choice.suits for choice in said] == ([] if "encoder_custom" in values else ["environment"])
    assert all(name in choice.reason for choice in said for name in plan.policy_spec.observations)


def test_registration_names_an_encoder(monkeypatch):
    environment = find_environment(config_of(**CORRIDOR).env)
    named: Mapping[str, Any] = {"corridor_encoder": "corridor_encoder", "nowhere": None}
    for name, expected in named.items():
        monkeypatch.setattr(
            "oni_jax.envs.registry.ENVIRONMENTS",
            [environment._replace(encoder=name)],
        )
        if expected:
            assert chosen(config_of(**CORRIDOR)).network.encoder_custom == expected
        else:
            with pytest.raises(UserError, match="nowhere"):
                chosen(config_of(**CORRIDOR))
    assert corridor_plugin.ENCODER in registry.ENCODERS.values()


def test_environment_that_shows_nethack_s_names_in_other_shapes_gets_the_generic_encoder():
    shapes = {"chars": (12, 12), "colors": (12, 12), "vector_obs": (27,), "message": (256,)}
    network = config_of().network

    def fitting(**changed: tuple[int, ...]) -> str:
        observations = {name: ArraySpec(shape, "uint8") for name, shape in {**shapes, **changed}.items()}
        return registry.fitting_encoder(network, EnvSpec(observations, 4, False, ()))

    assert fitting() == "nle_rgbcrop_encoder"
    assert fitting(chars=(144,)) == fitting(colors=(3, 3)) == fitting(message=(16, 16)) == "generic_encoder"
    assert registry.fitting_encoder(network, EnvSpec({}, 4, False, ())) == "generic_encoder"


def test_run_keeps_its_encoder(tmp_path):
    values = {"root_env": "Catch-v0", "train_dir": str(tmp_path), "experiment": "run", "hidden_size": 8}
    old = chosen(config_of(**values, encoder_custom="generic_encoder"))
    folder = tmp_path / "run"
    folder.mkdir()
    assert experiment_folder(old) == str(folder)
    write_settings(old, str(folder))
    assert check_unchanged(config_of(**values)) == []
    plan = resolve(config_of(**values), MACHINE)
    assert plan.config.network.encoder_custom == "generic_encoder"
    assert "encoder_custom" not in [choice.flag for choice in plan.chosen]  # nothing was chosen
    with pytest.raises(UserError, match="--encoder_custom=generic_encoder"):
        check_unchanged(config_of(**values, encoder_custom="mlp_encoder"))
    # Another run that begins with its parameters takes its encoder, too.
    later = config_of(**{**values, "experiment": "later"}, init_from=str(folder))
    assert chosen(later).network.encoder_custom == "generic_encoder"
    assert chosen(dataclasses.replace(later, pretrained=old.pretrained)).network.encoder_custom == "mlp_encoder"


def test_reason_for_an_encoder_tells_what_it_reads_from_the_goal_that_the_policy_sees():
    alone = {"root_env": "BabyAI-Text-GoToLocal-RedBall-S20", "llm_reward_type": "online_cls", "llm_reward_coeff": 1.0}
    several = {**alone, "goal_key": "keys,balls", "goal_conditioned": True}
    of_one, of_several = (chosen_encoder(with_chosen_env(with_values(Config(), x))).reason for x in (alone, several))
    reads, _, about = of_one.partition("; ")
    assert of_several == f"{reads}; the policy sees its episode's goal too; {about}" and "goal" not in of_one


def test_training_says_which_encoder_it_takes(tmp_path, capfd):
    words = "--llm_reward_type none --root_env Catch-v0 --hidden_size 8 --num_workers 1 --num_envs_per_worker 4 "
    words += "--batch_size 512 --actor_pool serial --train_for_env_steps 512"
    assert train.main([*words.split(), "--train_dir", str(tmp_path), "--experiment", "run"]) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if "encoder" in line]
    assert lines == [
        "--encoder_custom mlp_encoder suits this environment: it reads board, message; "
        "a dense layer over all observations, for small environments"
    ]
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["network"]["encoder_custom"] == "mlp_encoder"
