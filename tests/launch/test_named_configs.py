"""The paper's grid: every named config is valid and says what the specification says."""

import pytest

from launch import flags, named_configs
from oni_jax.settings.config import Config, config_to_json
from oni_jax.settings.fields import UserError, settings, with_values
from tests.rewards.word_vector_files import write_text

# Task -> its environment, and the weight of the environment's reward.
TASKS = {
    "score": ("NetHackScoreExtendedActions-v1", 0.1),
    "oracle": ("NetHackOracleExtendedActions-v1", 10.0),
    "staircase_lvl3": ("NetHackStaircaseLvl3ExtendedActions-v1", 10.0),
    "staircase_lvl4": ("NetHackStaircaseLvl4ExtendedActions-v1", 10.0),
    "reward_free": ("NetHackScoreExtendedActions-v1", 0.0),
}
METHODS = {
    "extrinsic": ("none", 0.0),
    "retrieval": ("online_cls", 0.4),
    "classification": ("online_cls_reward_model", 0.4),
    "ranking": ("online_motif", 0.4),
    "motif": ("motif", 0.1),
    "ellm_bow": ("cosine-bow", 0.4),
}
GRID = [(task, method) for task in TASKS for method in METHODS if (task, method) != ("reward_free", "extrinsic")]


GPU = ("extrinsic", "retrieval", "classification", "ranking")
SMALL = {
    "encoder_subtype": "convnet_impala",
    "hidden_size": 128,
    "learning_rate": 3e-4,
    "num_envs_per_worker": 64,
    "batch_size": 4096,
}
LEARNS_A_MODEL = {"reward_model_lr": 1e-3, "reward_model_batch_size": 64}
PAYS_LESS = {"llm_reward_coeff": 0.02, "remove_duplicated_obs": True}
ELLM = {  # suggester, and what reaches the goals
    "ellm_llm": ("model", "strict"),
    "ellm_oracle": ("oracle", "strict"),
    "ellm_novelty": ("all", "tried"),
    "ellm_uniform": ("random", "strict"),
}


def test_the_grid_is_whole():
    assert named_configs.names() == sorted(
        ["bk_code", "bk_goal", "bk_pref", "ellm_task", *ELLM]
        + [f"{size}_{method}" for size in ("gpu", "small") for method in GPU]
        + [f"{task}_{method}" for task, method in GRID]
    )


def test_bk_s_settings(tmp_path):
    (tmp_path / "potential.py").write_text("def compute_reward(obs, past_obs, past_actions): return 1, {}")
    config = flags.parse(["--config", "bk_code", "--pretrain_path", str(tmp_path)])
    flags.check(config)
    assert (config.reward.llm_reward_type, config.network.encoder_custom) == ("bk-code", "bk_encoder")
    assert (config.reward.extrinsic_reward_coeff, config.reward.llm_reward_coeff) == (10.0, 1.0)


@pytest.mark.parametrize("task, method", GRID)
def test_a_named_config(task, method, tmp_path):
    name = f"{task}_{method}"
    files = {
        "motif": ["--reward_dir", str(tmp_path)],
        "ellm_bow": ["--word_vectors", write_text(tmp_path / "words.vec", {"gold": [1.0, 0.0]})],
    }
    config = flags.parse(["--config", name, *files.get(method, [])])
    flags.check(config)
    assert (config.env.root_env, config.reward.extrinsic_reward_coeff) == TASKS[task]
    assert (config.reward.llm_reward_type, config.reward.llm_reward_coeff) == METHODS[method]
    assert config.learner.reward_scale == (0.1 if method == "motif" else 1.0)
    assert config.network.rgbcrop.scale == (255.0 if method == "motif" else 1.0)
    assert config.run.experiment == name
    changed = {
        field.name for (field, value), (_, default) in zip(settings(config), settings(Config())) if value != default
    }
    assert changed <= {
        "root_env",
        "extrinsic_reward_coeff",
        "llm_reward_type",
        "llm_reward_coeff",
        "reward_scale",
        "obs_scale",
        "experiment",
        "reward_dir",
        "word_vectors",
    }


@pytest.mark.parametrize("method", GPU)
def test_an_accelerator_s_settings_leave_sizes_to_the_machine(method):
    config, plain = (flags.parse(["--config", f"{task}_{method}"]) for task in ("gpu", "score"))
    flags.check(config)
    sizes = {"num_envs_per_worker": 0, "batch_size": 0, "precision": "auto"}
    assert config == with_values(plain, {**sizes, "experiment": f"gpu_{method}"})


@pytest.mark.parametrize("method", GPU)
def test_a_small_machine_s_settings_change_sizes_and_how_models_learn(method):
    config, plain = (flags.parse(["--config", f"{task}_{method}"]) for task in ("small", "score"))
    flags.check(config)
    changes = {"classification": LEARNS_A_MODEL, "ranking": {**LEARNS_A_MODEL, **PAYS_LESS}}.get(method, {})
    assert config == with_values(plain, {**SMALL, **changes, "experiment": f"small_{method}"})


@pytest.mark.parametrize("name", ELLM)
def test_ellm_s_settings(name):
    config = flags.parse(["--config", name])
    flags.check(config)
    assert (config.env.goals.suggester, config.env.goals.success) == ELLM[name]
    assert (config.env.root_env, config.reward.llm_reward_type) == ("CrafterTextEnv-v1", "ellm")
    assert (config.reward.extrinsic_reward_coeff, config.run.experiment) == (0.0, name)
    assert config.network.goal_conditioned


def test_a_task_s_settings():
    config = flags.parse(["--config", "ellm_task", "--crafter_task", "sleep"])
    flags.check(config)
    assert (config.env.goals.suggester, config.env.crafter.task) == ("task", "sleep")
    assert (config.reward.llm_reward_type, config.reward.extrinsic_reward_coeff) == ("none", 1.0)
    # The policy of ellm_oracle fits
    assert config.network == flags.parse(["--config", "ellm_oracle"]).network


def test_flags_override_it():
    words = "--llm_reward_coeff 0.2 --config score_retrieval --experiment mine --seed 3".split()
    config = flags.parse(words)
    assert (config.reward.llm_reward_coeff, config.run.experiment, config.run.seed) == (0.2, "mine", 3)
    assert config.reward.extrinsic_reward_coeff == 0.1


def test_the_settings_of_a_run(tmp_path):
    config = with_values(Config(), {"llm_reward_type": "none", "gamma": 0.5, "experiment": "first"})
    (tmp_path / "config.json").write_text(config_to_json(config))
    again = flags.parse([f"--config={tmp_path / 'config.json'}", "--experiment", "second"])
    assert again == with_values(config, {"experiment": "second"})


@pytest.mark.parametrize(
    "content, told",
    [
        ('{"learner": {"gama": 0.5}}', "no setting gama"),
        ('{"learner": {"gamma": 2.0}}', "--gamma 2.0: must be from 0 to 1"),
        ('{"learner": {"bootstrap": "x"}}', "--bootstrap x: must be one of"),
        ('{"learner": {"gamma": "0.5"}}', "gamma is '0.5'"),
        ("[1]", "not the settings of a run"),
        ("{", "not the settings of a run"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, content, told):
    path = tmp_path / "mine.json"
    path.write_text(content)
    with pytest.raises(UserError) as error:
        flags.parse(["--config", str(path)])
    assert told in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_an_unknown_one_lists_those_that_are_there():
    with pytest.raises(UserError) as error:
        flags.parse(["--config", "score_retreival"])
    assert "did you mean score_retrieval" in str(error.value) and "--help configs lists all" in str(error.value)
    with pytest.raises(UserError, match="nowhere.json: can't be read"):
        flags.parse(["--config", "/nowhere.json"])


def test_other_programs_have_none():
    from launch.inspect_reward import InspectionConfig

    with pytest.raises(UserError, match="unknown flag --config"):
        flags.parse(["--config", "score_retrieval"], InspectionConfig())
