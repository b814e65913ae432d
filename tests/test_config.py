"""The settings: the published names and defaults, ranges, JSON, and what a resumed run may change."""

import dataclasses
import json

import pytest

from oni_jax.settings.config import (
    Config,
    changed,
    check_config,
    check_resume,
    config_from_json,
    config_to_json,
    hparams,
)
from oni_jax.settings.fields import UserError, is_within, range_in_words, sections, settings, with_values

DEFAULTS = {
    "root_env": "NetHackScore-v1",
    "train_dir": "./train_dir",
    "experiment": "default_experiment",
    "llm_reward_coeff": 0.0,
    "extrinsic_reward_coeff": 1.0,
    "reward_scale": 1.0,
    "reward_clip": 10.0,
    "obs_subtract_mean": 0.0,
    "obs_scale": 1.0,
    "beta_count_exponent": 3.0,
    "llm_model": "Meta-Llama-3.1-8B-Instruct",
    "llm_server_addr": "",
    "llm_batch_size": 100,
    "prompt_version": "default",
    "goal_key": "defaultgoal",
    "encoder_embedding_dim": 128,
    "encoder_hidden_dim": 512,
    "encoder_crop_dim": 16,
    "encoder_num_layers": 2,
    "encoder_msg_model": "lt_cnn",
    "use_crop": False,
    "use_glyphs": False,
    "use_blstats": False,
    "encoder_custom": "auto",  # nle_rgbcrop_encoder there
    "hidden_size": 512,
    "use_rnn": True,
    "rnn_type": "gru",
    "rnn_num_layers": 1,
    "nonlinearity": "elu",
    "policy_initialization": "orthogonal",
    "num_envs_per_worker": 20,  # 2 there
    "worker_num_splits": 2,
    "batch_size": 1024,
    "rollout": 32,
    "recurrence": 32,
    "num_batches_per_iteration": 1,
    "ppo_epochs": 1,
    "gamma": 0.99,
    "learning_rate": 1e-4,
    "adam_eps": 1e-6,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "max_grad_norm": 4.0,
    "ppo_clip_ratio": 0.1,
    "ppo_clip_value": 1.0,
    "value_loss_coeff": 0.5,
    "exploration_loss": "entropy",
    "exploration_loss_coeff": 0.003,
    "with_vtrace": True,
    "vtrace_rho": 1.0,
    "vtrace_c": 1.0,
    "max_policy_lag": 1000,  # 10000 there
    "train_for_env_steps": 10**10,
    "train_for_seconds": 1e10,
    "save_every_sec": 120.0,
    "save_every_steps": 0,  # 1e8 there; 0 is off
    "keep_checkpoints": 3,
    "save_milestones_sec": 0.0,
    "stats_avg": 100,
    "seed": 1,
    "max_episode_steps": 5000,
    "wandb": False,
}


def test_published_names_and_defaults():
    defaults = {field.name: default for field, default in settings(Config())}
    assert {name: defaults.get(name, "missing") for name in DEFAULTS} == DEFAULTS


def test_every_setting_has_a_unique_name_a_type_and_help():
    fields = [field for field, _ in settings(Config())]
    names = [field.name for field in fields] + [alias for field in fields for alias in field.metadata["aliases"]]
    assert len(set(names)) == len(names)
    for field in fields:
        assert type(field.default) is field.type, field.name
        assert field.type in (int, float, bool, str), field.name
        assert len(field.metadata["help"]) > 10, field.name


def test_defaults_pass_the_checks():
    check_config(Config())


@pytest.mark.parametrize(
    "values, words",
    [
        ({"batch_size": 1000}, ["--batch_size 1000", "--rollout 32", "992"]),
        ({"batch_size": -32}, ["--batch_size -32"]),
        ({"recurrence": 16}, ["--recurrence 16", "--rollout 32"]),
        ({"gae_lambda": 1.5}, ["--gae_lambda 1.5"]),
        ({"num_processes": 2, "process_id": 0}, ["--coordinator_address", "all three"]),
        ({"coordinator_address": "a:1", "num_processes": 2}, ["--process_id", "all three"]),
        ({"process_id": 0}, ["--num_processes", "all three"]),
        ({"coordinator_address": "a:1", "num_processes": 2, "process_id": 2}, ["--process_id 2"]),
        *[
            (
                {"coordinator_address": text, "num_processes": 2, "process_id": 1},
                [f"--coordinator_address {text}", "host:port"],
            )
            for text in ("a", "a:", ":1", "a:b", "a:0", "a:65536")
        ],
        ({"num_batches_per_iteration": 3}, ["--num_batches_per_iteration 3"]),
        ({"bootstrap": "published", "gamma": 0.0}, ["--bootstrap published", "--gamma"]),
        ({"with_vtrace": False}, ["--with_vtrace", "GAE"]),
        ({"llm_reward_coeff": -0.1}, ["--llm_reward_coeff -0.1"]),
        ({"extrinsic_reward_coeff": -1.0}, ["--extrinsic_reward_coeff -1.0"]),
        ({"exploration_loss_coeff": -1.0}, ["--exploration_loss_coeff"]),
        ({"value_loss_coeff": float("nan")}, ["--value_loss_coeff nan"]),
        ({"learning_rate": float("inf")}, ["--learning_rate inf"]),
        ({"gamma": 1.01}, ["--gamma 1.01", "from 0 to 1"]),
        ({"adam_beta1": 1.0}, ["--adam_beta1 1.0", "from 0 to below 1"]),
        ({"num_workers": -1}, ["--num_workers -1"]),
        ({"num_envs_per_worker": 5}, ["--num_envs_per_worker 5", "--worker_num_splits 2"]),
        ({"worker_num_splits": 0}, ["--worker_num_splits 0"]),
        ({"use_crop": True}, ["--use_crop", "--use_blstats"]),
        ({"rnn_type": "vanilla"}, ["--rnn_type vanilla", "gru"]),
        ({"llm_constraint": "vllm"}, ["--llm_constraint vllm", "--llm_answer label"]),
        ({"judge_latency_secs": 1.0, "llm_server_addr": "gpu1"}, ["--judge_latency_secs 1.0", "--llm_server_addr"]),
        ({"experiment": ""}, ["--experiment"]),
        ({"experiment": ".."}, ["--experiment"]),
        ({"experiment": "../x"}, ["--experiment"]),
        ({"experiment": "/x"}, ["--experiment"]),
        ({"seed": 2**31}, ["--seed"]),
    ],
)
def test_bad_values_are_named_in_one_line(values, words):
    with pytest.raises(UserError) as error:
        check_config(with_values(Config(), values))
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "value, interval, inside",
    [(0, "[0, 1)", True), (1, "[0, 1)", False), (0, "(0, inf)", False), (float("inf"), "[0, inf)", False)],
)
def test_intervals(value, interval, inside):
    assert is_within(value, interval) is inside


def test_json_round_trip_leaves_secrets_out():
    config = with_values(Config(), {"llm_api_key": "sk-secret", "batch_size": 4096, "root_env": "NetHackOracle-v1"})
    text = config_to_json(config)
    assert "sk-secret" not in text and "sk-secret" not in repr(config)
    assert config_from_json(text) == with_values(config, {"llm_api_key": ""})


@pytest.mark.parametrize("text", ["", "[]", "3", '{"run": 3}', "{"])
def test_json_of_something_else_is_refused(text):
    with pytest.raises(UserError):
        config_from_json(text)


def test_changes_are_named_and_some_refused():
    old = Config()
    new = with_values(old, {"learning_rate": 3e-4, "seed": 2, "llm_api_key": "sk-secret"})
    assert changed(old, new) == ["learning_rate: 0.0001 -> 0.0003", "seed: 1 -> 2"]
    check_resume(old, new)
    with pytest.raises(UserError, match="hidden_size: 512 -> 64"):
        check_resume(old, with_values(new, {"hidden_size": 64}))


def test_a_run_of_former_defaults_is_not_resumed_on_other_pixels():
    former = with_values(Config(), {"obs_scale": 255.0, "num_batches_to_accumulate": 2})
    with pytest.raises(UserError, match="obs_scale: 255.0 -> 1.0.* give what it was started with, --obs_scale=255.0"):
        check_resume(former, Config())
    check_resume(former, with_values(Config(), {"obs_scale": 255.0}))


def test_settings_of_a_policy_s_parameters_are_fixed():
    free = {"policy_initialization", "precision"}
    changeable = {field.name for field, _ in settings(Config().network) if not field.metadata["fixed"]}
    assert changeable <= free


def test_settings_lie_with_what_they_belong_to_and_are_set_by_their_flags():
    values = {
        "crafter_length": 7,
        "goal_suggester": "oracle",
        "babyai_size": 9,
        "rnd_output_dim": 3,
        "noveld_alpha": 0.5,
        "apt_neighbours": 5,
        "potential_horizon": 4,
        "reward_model_lr": 0.5,
        "use_blstats": True,
        "encoder_hidden_dim": 24,
        "judge_wrong_seed": 2,
    }
    config = with_values(Config(), values)
    env, reward, network = config.env, config.reward, config.network
    assert (env.crafter.length, env.goals.suggester, env.babyai.size) == (7, "oracle", 9)
    assert (reward.rnd.output_dim, reward.noveld.alpha, reward.apt.neighbours) == (3, 0.5, 5)
    assert (reward.potential.horizon, reward.model.learning_rate) == (4, 0.5)
    assert (network.torchbeast.use_blstats, network.torchbeast.hidden_dim) == (True, 24)
    assert config.annotation.judge.wrong_seed == 2 and hparams(config) == values


def test_config_of_before_settings_were_nested_is_read():
    values = {
        "rnd_output_dim": 3,
        "use_blstats": True,
        "judge_wrong_seed": 2,
        "crafter_length": 7,
        "llm_answer": "label",
    }
    config = with_values(Config(), values)
    config = dataclasses.replace(config, others=((config.reward, config.annotation),))
    parts = json.loads(config_to_json(config))

    def flat(name: str, parts: dict) -> dict:
        return {flag: value for part in sections(getattr(config, name), name) for flag, value in parts[part].items()}

    before = {field.name: flat(field.name, parts) for field in dataclasses.fields(Config) if field.name != "others"}
    others = [{name: flat(name, each) for name in ("reward", "annotation")} for each in parts["others"]]
    assert config_from_json(json.dumps({**before, "others": others})) == config == config_from_json(json.dumps(parts))


@pytest.mark.parametrize(
    "interval, is_whole, words",
    [
        ("[1, inf)", True, "1 or more"),
        ("[0, inf]", True, "0 or more"),
        ("(0, inf)", False, "above 0"),
        ("[0, 1]", False, "from 0 to 1"),
        ("[0, 1)", False, "from 0 to below 1"),
        ("(0, 1]", False, "above 0, and 1 at most"),
        ("(0, 1)", False, "above 0 and below 1"),
        ("[-1, 65536)", True, "from -1 to 65,535"),
    ],
)
def test_ranges_are_named_in_words(interval, is_whole, words):
    assert range_in_words(interval, is_whole) == words
