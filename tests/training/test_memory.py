"""Settings that need more memory than there is are refused in a line with the numbers, before anything starts."""

import pytest

import oni_jax
from launch import sweep, train
from oni_jax.rewards.dataset import DataSet
from oni_jax.runs.plan import Machine
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.training.memory import check_update_memory
from oni_jax.training.plan import resolve
from oni_jax.types import ArraySpec

GIB = 1 << 30
CATCH = {"root_env": "Catch-v0", "encoder_custom": "mlp_encoder", "llm_reward_type": "none"}
SMALL = Machine(2, 24 * GIB)


def resolved(machine: Machine, **values: object) -> None:
    resolve(with_values(Config(), {"llm_reward_type": "none", **values}), machine)


@pytest.mark.parametrize(
    "values, told",
    [
        ({"num_workers": 900}, "900 actor processes 29.3, 18,000 environments"),
        ({"num_workers": 2, "num_envs_per_worker": 40_000}, "80,000 environments"),
        ({"batch_size": 32_000_000}, "batches of 32,000,000 steps"),
        ({"batch_size": 4_096_000, "rollout": 4_096_000, "recurrence": 4_096_000}, "40 environments"),
        ({"num_batches_to_accumulate": 100_000}, "100,000 batches that may wait"),
        ({**CATCH, "batch_size": 32_000_000}, "batches of 32,000,000 steps"),
    ],
)
def test_run_beyond_the_memory_is_refused_with_the_numbers(values, told):
    with pytest.raises(UserError, match=f"GiB of memory are needed at least .*{told}.*there are 24.0 GiB: lower --"):
        resolved(SMALL, **values)


@pytest.mark.parametrize("values", [{}, {"num_workers": 64, "num_envs_per_worker": 64}, {"batch_size": 65_536}, CATCH])
def test_run_that_fits_is_not_refused(values):
    resolved(SMALL, **values)


def test_group_s_limit_counts():
    resolved(Machine(2, 4 * GIB), num_workers=60)
    with pytest.raises(UserError, match="60 actor processes 2.0, .*there are 2.0 GiB"):
        resolved(Machine(2, 2 * GIB), num_workers=60)


def test_accelerator_s_memory_counts_for_what_lies_there():
    resolved(Machine(8, 64 * GIB, 2, 40 * GIB), batch_size=16_000_000)
    with pytest.raises(UserError, match="batches of 64,000,000 steps .*there are 40.0 GiB on each accelerator: lower"):
        resolved(Machine(8, 640 * GIB, 2, 40 * GIB), batch_size=64_000_000)


@pytest.mark.parametrize(
    "words, told",
    [
        ("--num_workers=1024 --num_envs_per_worker=8000", "8,192,000 environments"),
        ("--root_env=Catch-v0 --encoder_custom=mlp_encoder --hidden_size=65536 --num_workers=1", "parameters"),
    ],
)
def test_program_says_it_in_a_line(tmp_path, capsys, words, told):
    assert train.main([*words.split(), "--llm_reward_type=none", f"--train_dir={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and told in error and "GiB: lower --" in error


def test_update_that_does_not_fit_is_refused_before_it_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "330")  # MiB; the sum of what is sure before compiling is less
    words = [f"--{name}={value}" for name, value in CATCH.items()]
    words += ["--actor_pool=serial", "--hidden_size=64", "--num_workers=1", "--num_envs_per_worker=32"]
    words += ["--batch_size=8192", "--rollout=128", "--recurrence=128", "--num_batches_to_accumulate=1"]
    assert train.main([*words, "--train_for_env_steps=8192", f"--train_dir={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert "an update of 8,192 steps" in error and "there are 0.3 GiB: lower --batch_size" in error, error
    assert error.count("\n") == 1


def test_update_on_an_accelerator_counts_there():
    plan = resolve(with_values(Config(), {"llm_reward_type": "none"}), Machine(8, GIB, 1, 40 * GIB))
    check_update_memory(plan, 39 * GIB)
    with pytest.raises(UserError, match="an update of .* steps 41.0.* there are 40.0 GiB on each accelerator"):
        check_update_memory(plan, 41 * GIB)


def test_sweep_s_jobs_are_refused_before_any_starts(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("oni_jax.host.memory.memory_bytes", lambda: GIB)
    words = [f"--{name}={value}" for name, value in CATCH.items()]
    axes = ["seed=1-20", "--jobs=20", f"--train_dir={tmp_path}", "--", *words, "--train_for_env_steps=1000"]
    assert sweep.main(axes) == 2
    assert "20 runs at a time 5.6), and there are 1.0 GiB: lower --jobs" in capsys.readouterr().err


def test_data_set_of_labels_and_made_environments_count():
    with pytest.raises(UserError, match="a data set of 1,000,000,000,000 rows .*: lower --reward_dataset_size"):
        DataSet({"caption": ArraySpec((256,), "uint8")}, 10**12, None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="1,000,000,000 environments .*: lower num_envs"):
        oni_jax.make_vec("NetHackScore-v1", num_envs=10**9)
