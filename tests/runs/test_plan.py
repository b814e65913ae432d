"""The plan of a run: choices that its settings leave open, and what they name."""

import pytest

from oni_jax.rewards import registry
from oni_jax.rewards.registry import RewardType, register_reward
from oni_jax.runs.plan import Machine, Plan, with_chosen_env
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.training.plan import resolve

MACHINE = Machine(num_cores=2, memory_bytes=1 << 34)


def config_of(**values) -> Config:
    values = {"root_env": "CrafterTextEnv-v1", "llm_reward_type": "mine", "encoder_custom": "generic_encoder", **values}
    return with_values(Config(), values)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "REWARD_TYPES", {**registry.REWARD_TYPES})
    monkeypatch.setattr("oni_jax.runs.plan.REWARD_TYPES", registry.REWARD_TYPES)
    return register_reward


def test_reward_of_a_plugin_says_what_the_environment_gives_it(registered):
    registered("mine", RewardType(lambda context: None))  # type: ignore[arg-type]
    registered("of_events", RewardType(lambda context: None, of_events=True))  # type: ignore[arg-type]
    registered("of_goals", RewardType(lambda context: None, pays_goals=True))  # type: ignore[arg-type]
    chosen = {name: with_chosen_env(config_of(llm_reward_type=name)).env for name in ("mine", "of_events", "of_goals")}
    assert [env.caption for env in chosen.values()] == ["state", "event", "state"]
    assert [env.goals.suggester for env in chosen.values()] == ["none", "none", "oracle"]


def test_training_s_plan_leaves_nothing_open():
    plan = resolve(config_of(llm_reward_type="ellm", llm_reward_coeff=1.0, batch_size=0, precision="auto"), MACHINE)
    config = plan.config
    assert (config.env.caption, config.env.goals.suggester, config.network.precision) == (
        "state",
        "oracle",
        "float32",
    )
    assert config.learner.batch_size and {choice.flag for choice in plan.chosen} == {"precision", "batch_size"}
    assert len(plan.devices.learning) == len(plan.devices.acting) == 1
    assert plan.world_spec.observations.keys() > plan.policy_spec.observations.keys()
    assert resolve(config, MACHINE).config == config  # nothing is chosen twice


def test_question_has_its_prompt():
    plan = Plan(config_of(llm_reward_type="online_cls", prompt_file="missing.json"))
    ((settings, kind),) = plan.questions
    assert kind == "classification" and plan.world_seed(0) != plan.world_seed(0, 1) != plan.world_seed(8, 1)
    with pytest.raises(UserError, match=r"missing\.json"):
        plan.prompt(settings, kind)
