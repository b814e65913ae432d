"""The command line: the published command lines, forms of flags, refusals, help."""

import dataclasses
import re
import shlex

import pytest
from absl import flags as absl_flags

from launch import flags, help, refused_flags
from oni_jax.offline.pair_config import AnnotatePairs, CollectPairs, TrainReward, check_annotate, check_train_reward
from oni_jax.settings.config import Config, changed, check_resume, config_from_json, config_to_json
from oni_jax.settings.fields import UserError, settings, with_values
from oni_jax.settings.learning import NetworkConfig, TorchbeastConfig

ONI = (
    "--train_dir YOUR_DIR --llm_model Meta-Llama-3.1-8B-Instruct --llm_server_addr localhost --experiment default "
    "--root_env NetHackScoreExtendedActions-v1 --llm_reward_type online_cls --llm_reward_coeff 0.4 "
    "--extrinsic_reward_coeff 0.1 --wandb True --wandb_entity ENTITY --wandb_proj PROJ"
)
MOTIF = (
    "--algo APPO --env nle_fixed_eat_action --num_workers 24 --num_envs_per_worker 20 --batch_size 4096 "
    "--reward_scale 0.1 --obs_scale 255.0 --train_for_env_steps 2_000_000_000 --save_every_steps 10_000_000 "
    "--keep_checkpoints 5 --stats_avg 1000 --seed 777 --experiment standard_motif --train_dir train_dir/rl_saving_dir "
    "--extrinsic_reward 0.1 --llm_reward 0.1 --root_env NetHackScore-v1 --beta_count_exponent 3"
)
MOTIF_REWARD_MODEL = (
    "--reward_dir train_dir/reward_saving_dir/standard_reward/ --reward_encoder nle_torchbeast_encoder "
    "--eps_threshold_quantile 0.5"
)
ANNOTATE_PAIRS = (
    "--directory motif_dataset --prompt-version default --goal-key defaultgoal --n-annotation-chunks 1 --chunk-number 0"
)
LOCAL_MODEL = "--llm-size 70 --num-gpus 8"
TRAIN_REWARD = (
    "--batch_size 1024 --num_workers 40 --reward_lr 1e-5 --num_epochs 10 --seed 777 --dataset_dir motif_dataset "
    "--annotator llama70b_msg_defaultgoal_default --experiment standard_reward --train_dir train_dir/reward_saving_dir"
)
GIVEN = "--llm_reward_type online_cls --llm_reward_coeff 0.4 "


def parse(line: str) -> Config:
    return flags.parse(line.split())


def message(line: str) -> str:
    """The one line that a command line is refused with."""
    with pytest.raises(UserError) as error:
        flags.check(parse(line))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_command_line_of_the_online_system():
    config = parse(ONI)
    flags.check(config)
    assert config.run.train_dir == "YOUR_DIR" and config.run.experiment == "default"
    assert config.annotation.llm_server_addr == "localhost"
    assert config.env.root_env == "NetHackScoreExtendedActions-v1"
    assert config.reward.llm_reward_type == "online_cls"
    assert (config.reward.llm_reward_coeff, config.reward.extrinsic_reward_coeff) == (0.4, 0.1)
    assert config.run.wandb is True
    assert (config.run.wandb_entity, config.run.wandb_proj) == ("ENTITY", "PROJ")


def test_command_line_of_the_offline_system():
    config = parse(MOTIF)
    assert (config.reward.llm_reward_coeff, config.reward.extrinsic_reward_coeff) == (0.1, 0.1)
    assert config.run.train_for_env_steps == 2_000_000_000
    assert config.run.save_every_steps == 10_000_000
    assert config.learner.batch_size == 4096 and config.actors.num_workers == 24
    assert config.learner.reward_scale == 0.1 and config.run.seed == 777


def test_a_reward_dir_implies_the_offline_reward():
    reward = parse(f"{MOTIF} {MOTIF_REWARD_MODEL}").reward
    assert reward.llm_reward_type == "motif"
    assert reward.reward_dir == "train_dir/reward_saving_dir/standard_reward/"
    assert (reward.ranking.encoder, reward.eps_threshold_quantile) == ("nle_torchbeast_encoder", "0.5")


def test_command_lines_of_the_offline_pipeline():
    config = flags.parse(ANNOTATE_PAIRS.split(), AnnotatePairs())
    check_annotate(config)
    assert config.preference.directory == "motif_dataset" and config.preference.annotator == "llm"
    assert (config.preference.n_annotation_chunks, config.preference.chunk_number) == (1, 0)
    assert (config.annotation.prompt_version, config.annotation.goal_key) == ("default", "defaultgoal")
    config = flags.parse(TRAIN_REWARD.split(), TrainReward())
    check_train_reward(config)
    training = config.training
    assert (training.batch_size, training.reward_lr, training.num_epochs, training.seed) == (1024, 1e-5, 10, 777)
    assert training.dataset_dir == "motif_dataset" and training.annotator == "llama70b_msg_defaultgoal_default"
    assert (training.train_dir, training.experiment) == ("train_dir/reward_saving_dir", "standard_reward")


@pytest.mark.parametrize("words", [LOCAL_MODEL.split()[:2], LOCAL_MODEL.split()[2:], LOCAL_MODEL.split()])
def test_local_models_are_refused_by_the_offline_pipeline(words):
    with pytest.raises(UserError, match="name the one that your server holds with --llm_model"):
        flags.parse([*ANNOTATE_PAIRS.split(), *words], AnnotatePairs())


@pytest.mark.parametrize("program", [CollectPairs(), AnnotatePairs(), TrainReward()])
def test_help_of_the_offline_programs(program):
    text = help.help_text("x", program, "all")
    for field, _ in settings(program):
        assert f"--{field.name} (" in text
    assert flags.parse([], program) == program


def test_encoder_flags_shape_the_reward_model():
    config = flags.parse(["--use-blstats", "--encoder_hidden_dim", "64"], TrainReward())
    assert config.encoder() == NetworkConfig(torchbeast=TorchbeastConfig(use_blstats=True, hidden_dim=64))
    with pytest.raises(UserError, match="use_blstats"):
        check_train_reward(flags.parse(["--use_crop"], TrainReward()))


def test_every_setting_is_a_flag_with_its_default():
    assert flags.parse([]) == Config()
    values = flags.define_flags()
    for field, default in settings(Config()):
        assert values[field.name].value == default
        assert (values[field.name].help or "").endswith(field.metadata["help"])


@pytest.mark.parametrize(
    "line, expected",
    [
        ("--use_rnn", True),
        ("--nouse_rnn", False),
        ("--no-use-rnn", None),
        ("--use_rnn=false", False),
        ("--use_rnn False", False),
        ("--use-rnn no", False),
        ("--use_rnn 0 --seed 3", False),
        ("--use_rnn --seed 3", True),
        ("--nouse_rnn --use_rnn yes", True),
    ],
)
def test_forms_of_booleans(line, expected):
    if expected is None:
        with pytest.raises(UserError, match="unknown flag"):
            parse(line)
    else:
        assert parse(line).network.use_rnn is expected


def test_dashes_equal_signs_aliases_and_the_last_one_wins():
    assert parse("--batch-size=64").learner.batch_size == 64
    assert parse("-batch_size 64").learner.batch_size == 64
    assert parse("--llm-reward 0.2").reward.llm_reward_coeff == 0.2
    assert parse("--extrinsic_reward=3 --extrinsic_reward_coeff 0.5").reward.extrinsic_reward_coeff == 0.5
    assert parse("--wandb_proj=a=b").run.wandb_proj == "a=b"
    assert flags.parse(["--wandb_proj="]).run.wandb_proj == ""


def test_a_value_may_begin_with_dashes():
    assert parse("--experiment --odd").run.experiment == "--odd"
    assert parse("--llm_reward_coeff -1").reward.llm_reward_coeff == -1


@pytest.mark.parametrize(
    "line, words",
    [
        ("--batch_sise 3", ["--batch_sise", "--batch_size"]),
        ("--xyzzy", ["--xyzzy", "--help"]),
        ("--batch_size abc", ["--batch_size", "abc"]),
        ("--use_rnn=maybe", ["use_rnn", "maybe"]),
        ("--nonlinearity gelu", ["nonlinearity", "elu"]),
        ("--seed", ["--seed", "value"]),
        ("train", ["train", "not a flag"]),
        ("--", ["not a flag"]),
        ("--algo PPO", ["algo", "APPO"]),
        ("--env doom", ["env", "nle_fixed_eat_action"]),
        ("", ["--llm_reward_type", "none", "online_cls"]),
        ("--llm_reward_type rdn", ["rdn", "none, online_cls"]),
        ("--llm_reward_type online_cls", ["--llm_reward_coeff above 0"]),
        ("--llm_reward_type none --llm_reward_coeff 0.1", ["none", "--llm_reward_coeff 0"]),
        (GIVEN + "--llm_reward_coeff -0.1", ["--llm_reward_coeff -0.1"]),
        (GIVEN + "--root_env NetHackScor-v1", ["NetHackScor-v1", "NetHackScore-v1"]),
        (GIVEN + "--batch_size 1000", ["--batch_size 1000", "--rollout 32"]),
        (GIVEN + "--llm_server_addr ftp://h", ["ftp://h"]),
        (GIVEN + "--llm_server_addr host:port", ["host:port"]),
        (GIVEN + "--llm_chat_template /nowhere/t", ["/nowhere/t"]),
        (GIVEN + "--prompt_file /nowhere/p.json", ["/nowhere/p.json"]),
        (GIVEN + "--llm_api_key file:/nowhere/key", ["--llm_api_key", "no key", "file"]),
        (GIVEN + "--llm_api_key_file /nowhere/key", ["unknown", "did you mean --llm_api_key?"]),
        (GIVEN + "--llm_size 70", ["--llm_size", "--llm_model"]),
        (GIVEN + "--num-gpus 8", ["--num_gpus", "--llm_model"]),
    ],
)
def test_refused_in_one_line(line, words):
    text = message(line)
    for word in words:
        assert word in text


# ---- several rewards

TWO = "--llm_reward_type online_cls,online_motif --llm_reward_coeff 0.4,0.1 "


def test_several_rewards_have_separate_settings_where_these_are_lists():
    config = parse(TWO + "--goal_key gold,combat --beta_count_exponent 0 --extrinsic_reward 0.3 --gamma 0.5")
    flags.check(config)
    first, second = config.terms()
    assert (first.reward, first.annotation) == (config.reward, config.annotation)
    assert config.others == ((second.reward, second.annotation),)
    for term, each in ((first, ("online_cls", 0.4, "gold")), (second, ("online_motif", 0.1, "combat"))):
        assert (term.reward.llm_reward_type, term.reward.llm_reward_coeff, term.annotation.goal_key) == each
        assert (term.reward.captions.count_exponent, term.reward.extrinsic_reward_coeff, term.learner.gamma) == (
            0.0,
            0.3,
            0.5,
        )
        assert term.terms() == [term]


def test_the_order_of_the_flags_does_not_matter_and_the_last_one_wins():
    lists = "--llm-reward=0.4,0.1 --llm_reward_type=online_cls,online_motif"
    assert parse(lists) == parse(TWO) == parse(f"--llm_reward 9 --llm_reward_type none {TWO}")


@pytest.mark.parametrize("before", ["--llm_reward_type online_cls,motif,online_cls", "--llm_reward 1,2,3"])
def test_a_list_of_another_length_that_does_not_count(before):
    """Overridden by the last one, as in a script that appends to a command line."""
    assert parse(f"{before} {TWO}") == parse(TWO)


def test_settings_of_a_reward_s_parts_are_lists():
    terms = parse(TWO + "--beta_count_exponent 2,1 --judge_wrong_seed 4,5").terms()
    assert [term.reward.captions.count_exponent for term in terms] == [2.0, 1.0]
    assert [term.annotation.judge.wrong_seed for term in terms] == [4, 5]


@pytest.mark.parametrize("flag", ["--rew_norm=true,false", "--rew_norm=True,False", "--rew_norm true,false"])
def test_a_list_of_truths(flag):
    assert [term.reward.rew_norm for term in parse(TWO + flag).terms()] == [True, False]


@pytest.mark.parametrize("flag", ["--norew_norm", "--rew_norm no", "--rew_norm=false"])
def test_one_truth_for_all(flag):
    assert [term.reward.rew_norm for term in parse(TWO + flag).terms()] == [False, False]


def test_a_value_of_a_list_may_be_empty():
    config = parse("--llm_reward_type online_cls,motif,none --reward_dir ,models/a, --llm_reward 1,2,0")
    assert [term.reward.reward_dir for term in config.terms()] == ["", "models/a", ""]


@pytest.mark.parametrize("line", [TWO, GIVEN, TWO + "--prompt_version default,reworded"])
@pytest.mark.parametrize("goal", ["Fight, eat, sleep.", "a,b", ",", "Collect gold"])
def test_a_goal_with_commas_is_one_text(line, goal):
    config = flags.parse([*line.split(), "--goal", goal])
    assert {term.annotation.goal for term in config.terms()} == {goal}
    flags.check(config)


def test_settings_of_the_run_are_no_lists():
    plugins = "tests.support.corridor_plugin,tests.support.memory_env"
    config = parse(TWO + f"--label_store a,b.sqlite --experiment x,y --wandb_proj p,q,r --plugin {plugins}")
    assert (config.run.experiment, config.run.wandb_proj) == ("x,y", "p,q,r")
    assert {term.annotation.label_store for term in config.terms()} == {"a,b.sqlite"}
    assert config.env.plugin == plugins


def test_one_reward_takes_commas_as_they_are():
    config = parse(GIVEN + "--prompt_file a,b.json --llm_model one,two")
    assert (config.annotation.prompt_file, config.annotation.llm_model) == ("a,b.json", "one,two") and not config.others


@pytest.mark.parametrize(
    "line, words",
    [
        (TWO + "--goal_key gold,combat,stairs", ["--goal_key gold,combat,stairs", "3 values for 2 rewards"]),
        (TWO + "--llm_reward_coeff 1,2,3", ["--llm_reward_coeff 1,2,3", "3 values for 2 rewards"]),
        (
            "--llm_reward_type online_cls,online_motif,online_cls --llm_reward 1,2",
            ["--llm_reward_coeff 1,2", "2 values"],
        ),
        (TWO + "--llm_model a,b,c", ["--llm_model a,b,c", "give one, or one for each"]),
        (TWO + "--prompt_file=,,", ["--prompt_file ,,", "3 values"]),
        (GIVEN + "--llm_reward_coeff 0.4,0.1", ["llm_reward_coeff", "0.4,0.1"]),
        (TWO + "--extrinsic_reward_coeff 0.1,0.2", ["extrinsic_reward_coeff", "0.1,0.2"]),
        (TWO + "--llm_reward_coeff 1,x", ["llm_reward_coeff", "x"]),
        (TWO + "--llm_reward_coeff 1,-2", ["--llm_reward_coeff -2.0"]),
        (TWO + "--llm_reward_coeff 1,0", ["--llm_reward_type online_motif", "--llm_reward_coeff above 0"]),
        (TWO + "--goal_key gold,silver", ["goal_key", "silver"]),
        (TWO + "--batch_size 64,128", ["batch_size", "64,128"]),
        (TWO + "--llm_reward_value probability", ["--llm_reward_value probability", "online_motif"]),
        (TWO + "--llm_server_addr localhost,ftp://h", ["ftp://h"]),
        (TWO + "--prompt_file ,/nowhere/p.json", ["/nowhere/p.json"]),
        ("--llm_reward_type online_cls,none --llm_reward 1,0", ["--llm_reward_type none", "leave it out"]),
        ("--llm_reward_type online_cls,rdn --llm_reward 1", ["rdn", "none, online_cls"]),
        ("--llm_reward_type online_cls, --llm_reward 1", ["--llm_reward_type", "online_cls"]),
        ("--llm_reward_type online_cls,motif --llm_reward 1 --reward_dir x", ["--reward_dir x", "online_cls"]),
        (
            TWO + "--root_env Memory-v0 --plugin tests.support.memory_env --encoder_custom mlp_encoder",
            ["Memory-v0", "no captions"],
        ),
    ],
)
def test_lists_refused_in_one_line(line, words):
    text = message(line)
    for word in words:
        assert word in text


@pytest.mark.parametrize("key", ["env:HOME,S3CRET", "S3CRET,env:HOME", "env:HOME,S3CRET,env:HOME", "env:HOME,S3CRET:b"])
def test_a_key_among_several_is_refused_and_not_repeated(key):
    """Whatever else is wrong with the list."""
    assert "S3CRET" not in message(TWO + f"--llm_api_key {key}")


def test_settings_of_several_rewards_are_written_and_read():
    config = parse(TWO + "--goal_key gold,combat --llm_model a,b --seed 3 --llm_api_key env:A,env:B")
    text = config_to_json(config)
    assert "env:" not in text
    blank = tuple((reward, dataclasses.replace(asked, llm_api_key="")) for reward, asked in config.others)
    assert config_from_json(text) == dataclasses.replace(with_values(config, {"llm_api_key": ""}), others=blank)
    assert '"others"' not in config_to_json(parse(GIVEN))


@pytest.mark.parametrize(
    "others",
    ["3", "[3]", "[{}]", '{"a": 1}', '[{"reward": {}}]', '[{"reward": 3, "annotation": {}}]', "[[]]", "null"]
    + ['[{"reward": {"llm_reward_coeff": "1"}, "annotation": {}}]'],
)
def test_other_rewards_that_are_none(others):
    with pytest.raises(UserError, match="not the settings of a run") as error:
        config_from_json(f'{{"others": {others}}}')
    assert "\n" not in str(error.value)


def test_flags_override_the_settings_of_several_rewards(tmp_path):
    config, path = parse(TWO + "--goal_key gold,combat"), tmp_path / "config.json"
    path.write_text(config_to_json(config))
    assert parse(f"--config {path}") == config
    assert parse(f"--config {path} --goal_key stairs,combat") == parse(TWO + "--goal_key stairs,combat")
    assert parse(f"--config {path} --llm_reward 3") == parse(TWO + "--goal_key gold,combat --llm_reward 3")
    assert parse(f"--config {path} --llm_reward_type cosine-bow").others == ()
    with pytest.raises(UserError, match="--llm_model a,b,c: 3 values for 2 rewards"):
        parse(f"--config {path} --llm_model a,b,c")


@pytest.mark.parametrize(
    "types", ["online_cls", "online_motif,online_cls", "online_cls,online_motif,online_cls", "online_motif"]
)
def test_a_resumed_run_keeps_its_rewards(types):
    old, new = parse(TWO), parse(f"--llm_reward_type {types} --llm_reward_coeff 1")
    for one, other, given in ((old, new, "online_cls,online_motif"), (new, old, types)):
        with pytest.raises(UserError, match=f"--llm_reward_type={given}, or choose another") as error:
            check_resume(one, other)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("again", ["online_cls", "online_cls,online_cls,online_cls", "online_cls,online_motif"])
def test_a_resumed_run_keeps_the_number_of_rewards_of_one_type(again):
    """Each has a separate state."""
    old = parse("--llm_reward_type online_cls,online_cls --llm_reward_coeff 1")
    with pytest.raises(UserError, match="--llm_reward_type=online_cls,online_cls, or choose another"):
        check_resume(old, parse(f"--llm_reward_type {again} --llm_reward_coeff 1"))


def test_a_resumed_run_may_have_other_coefficients():
    old, new = parse(TWO + "--goal_key gold,combat"), parse(TWO + "--goal_key gold --llm_reward 0.4")
    check_resume(old, new)
    assert changed(old, new) == ["llm_reward_coeff: '0.4,0.1' -> 0.4", "goal_key: 'gold,combat' -> 'gold'"]
    assert changed(old, parse(TWO + "--goal_key gold,combat")) == []


@pytest.mark.parametrize(
    "line",
    [
        "--with_pbt True",
        "--with_pbt",
        "--pbt_mutation_rate 0.15",
        "--num_policies 2",
        "--use_cpc=true",
        "--cpc_forward_steps 8",
        "--use_spectral_norm True",
        "--actor_critic_share_weights False",
        "--adaptive_stddev True",
        "--with_vtrace False",
    ],
)
def test_flag_that_is_not_carried_over_is_refused_by_name(line):
    assert line.split()[0].split("=")[0] in message(GIVEN + line)


@pytest.mark.parametrize(
    "line",
    [
        "--algo APPO",
        "--env nle_fixed_eat_action",
        "--device gpu",
        "--with_pbt False",
        "--num_policies 1",
        "--actor_critic_share_weights True",
        "--use_cpc=false --seed 4",
    ],
)
def test_flag_that_asks_for_the_default_is_accepted(line):
    flags.check(parse(GIVEN + line))


def test_device_cpu_is_obeyed(monkeypatch):
    import os

    monkeypatch.setenv("JAX_PLATFORMS", "")
    parse("--device cpu")
    assert os.environ["JAX_PLATFORMS"] == "cpu"


def test_no_flag_is_both_offered_and_refused():
    for field, _ in settings(Config()):
        for name in (field.name, *field.metadata["aliases"]):
            assert refused_flags.find_refusal(name) is None, name


@pytest.mark.parametrize(
    "words", ["--llm_api_key sk-S3CRET", "--llm-api-key=S3CRET", "--llm_api_key env:", "--llm_api_key S3CRET:x"]
)
def test_a_key_on_the_command_line_is_refused_and_not_repeated(words):
    text = message(GIVEN + words)
    assert "env:NAME or file:PATH" in text and "S3CRET" not in text


def test_the_global_flags_stay_untouched():
    before = set(absl_flags.FLAGS)  # those of benchmarks that other tests imported
    flags.parse(["--seed", "3", "--llm_batch_size", "7"])
    assert set(absl_flags.FLAGS) == before and "llm_batch_size" not in before


def test_the_value_of_a_word_without_dashes_is_not_repeated():
    with pytest.raises(UserError, match="'openai_key=' is not a flag; write --flag value") as error:
        flags.parse(["openai_key=sk-secret"])
    assert "sk-secret" not in str(error.value)


def test_a_word_alone_is_taken_for_a_run_s_name():
    with pytest.raises(UserError, match="'mine' is not a flag; write --experiment mine"):
        flags.parse(["mine"])
    with pytest.raises(UserError, match="'0.98' is not a flag; write --flag value"):
        flags.parse(["--gamma", "0.99", "0.98"])


@pytest.mark.parametrize(
    "line, meant",
    [
        ("--root_env nethackscore --llm_reward_type none", "NetHackScore-v1"),
        ("--llm_reward_type online-cls --llm_reward_coeff 1", "online_cls"),
        ("--config score_retreival", "score_retrieval"),
        ("--hiden_size 3", "--hidden_size"),
    ],
)
def test_the_nearest_name_is_offered(line, meant):
    with pytest.raises(UserError) as error:
        flags.check(flags.parse(shlex.split(line)))
    before, _, after = str(error.value).partition(f"; did you mean {meant}")
    assert len(before) < 60 and re.match(r"( or [\w-]+){0,2}\?( |$)", after)  # before what is known


@pytest.mark.parametrize(
    "line, hint",
    [
        (
            "--root_env NetHackStairs",
            r"did you mean NetHack\S+ or NetHack\S+ or NetHack\S+\? All: launch.train --help root_env",
        ),
        ("--root_env RedBall", r"did you mean BabyAI\S+RedBall\S+ or \S+ or \S+\? All: launch.train --help root_env"),
        ("--root_env pong", "pong'; all: launch.train --help root_env"),
        (
            "--config ranking",
            r"did you mean \w+_ranking or \w+_ranking or \w+_ranking\? Name a .json file; --help configs",
        ),
    ],
)
def test_a_long_list_of_names_is_not_printed(line, hint):
    with pytest.raises(UserError, match=hint) as error:
        flags.check(flags.parse(shlex.split(line)))
    assert len(str(error.value)) < 240


@pytest.mark.parametrize(
    "name, meant",
    [("num-envs", "num_envs_per_worker"), ("tfes", "train_for_env_steps"), *flags.NAMES_ELSEWHERE.items()],
)
def test_names_of_other_systems_have_a_suggestion(name, meant):
    with pytest.raises(UserError) as error:
        flags.parse([f"--{name}", "1"])
    assert str(error.value).endswith(f"unknown flag --{name.replace('-', '_')}; did you mean --{meant}?")


@pytest.mark.parametrize(
    "words, told",
    [
        ("--seed abc", "--seed abc: must be a whole number"),
        ("--train_for_env_steps 1e6", "--train_for_env_steps 1e6: must be a whole number, such as 1000000"),
        ("--gamma x", "--gamma x: must be a number"),
        ("--llm_api caht", "--llm_api caht: must be one of chat, completions; did you mean chat?"),
        ("--device gpuu", "--device gpuu: must be one of gpu, cuda, cpu; did you mean gpu?"),
        ("--wandb=maybe", "--wandb maybe: must be true or false"),
    ],
)
def test_values_of_a_wrong_type_are_named_in_plain_words(words, told):
    with pytest.raises(UserError) as error:
        flags.parse(words.split())
    assert str(error.value) == told
