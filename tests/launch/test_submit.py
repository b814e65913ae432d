"""launch.submit, with a stand-in for sbatch; tests/slurm has the real one."""

import os
import shlex

import pytest

from launch import submit
from oni_jax.settings.config import Config

TRAINING = ["--llm_reward_type", "online_cls", "--llm_reward_coeff", "0.4", "--goal", "be good", "--experiment", "x"]


@pytest.fixture(autouse=True)
def no_platform(monkeypatch):
    """As in a shell: what --device cpu sets in one test is not there in the next."""
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """Puts a stand-in alone on the PATH; gives the file into which it writes the script that it gets."""
    path = tmp_path / "sbatch"
    told = "/usr/bin/env | /bin/grep ^SLURM_ > of_slurm"
    path.write_text(f'#!/bin/sh\n/bin/cat > script\n{told}\necho "Submitted batch job 7"\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "script"


def shown(capsys, *words: str, training=TRAINING) -> list[str]:
    assert submit.main([*words, "--dry_run", "--", *training]) == 0
    return capsys.readouterr().out.splitlines()


def test_nodes(capsys):
    lines = shown(capsys, "--nodes", "4", "--time", "2-00", "--gpus_per_node=8", "--seeds=1-5%2", "--save_secs=300")
    assert lines[0] == "#!/bin/bash"
    expected = "job-name=x time=2-00 nodes=4 ntasks-per-node=1 cpus-per-task=32 gres=gpu:8 array=1-5%2 requeue"
    assert {f"#SBATCH --{word}" for word in [*expected.split(), "signal=B:USR1@300"]} < set(lines)
    names = [line.partition("=")[0] for line in lines if line.startswith("#SBATCH")]
    assert len(names) == len(set(names))
    assert lines[-2].startswith("train srun ") and lines[-2].endswith(f"-- {shlex.join(TRAINING)}")
    assert lines[-1] == "finish"
    assert "ONI_EXPERIMENT=x" in lines  # whatever --sbatch "--job-name" says


def test_server_on_a_separate_node(capsys):
    words = ["--server=node", "--server_gpus=2", "--server_command=serve it", "--sbatch=--partition=gpu --exclusive"]
    text = "\n".join(shown(capsys, *words, "--nodes=2", training=[*TRAINING, "--llm_model=big one"]))
    server, trainers = text.split("#SBATCH hetjob\n")
    for line in ("--nodes=1", "--cpus-per-task=8", "--gres=gpu:2", "--partition=gpu", "--exclusive", "--job-name=x"):
        assert f"#SBATCH {line}\n" in server
    for line in (
        "--nodes=2",
        "--cpus-per-task=32",
        "--gres=gpu:1",
        "--partition=gpu",
        "--exclusive",
        "--time=24:00:00",
    ):
        assert f"#SBATCH {line}\n" in trainers
    assert "SERVER_COMMAND='serve it'\n" in trainers and "MODEL='big one'\n" in trainers


def test_server_beside_training(capsys):
    lines = shown(capsys, "--server=beside", "--gpus_per_node=4")
    assert {"#SBATCH --gres=gpu:5", "#SBATCH --cpus-per-task=40", "NUM_SERVER_GPUS=1"} < set(lines)
    assert not [line for line in lines if line.startswith(("MODEL=", "SERVER_COMMAND="))]


@pytest.mark.parametrize("words", [["--llm_model", "{}"], ["--llm-model={}"]])
def test_serves_the_model_that_training_names(capsys, words):
    name = Config().annotation.llm_model
    lines = shown(capsys, "--server=node", training=[*TRAINING, *(word.format(name) for word in words)])
    assert f"MODEL={name}" in lines


def test_devices_share_a_batch(capsys, monkeypatch):
    """32 trajectories."""
    assert shown(capsys, "--nodes=2", "--gpus_per_node=16") and shown(capsys, "--nodes=2", "--gpus_per_node=0")
    assert shown(capsys, "--gpus_per_node=3", training=[*TRAINING, "--learner_devices=2"])
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert shown(capsys, "--gpus_per_node=3", training=[*TRAINING, "--device=cpu"])


@pytest.mark.parametrize(
    "time, secs",
    [("5", 300), ("5:06", 306), ("1:02:03", 3723), ("2-03", 183600), ("2-03:04", 183840), ("2-03:04:05", 183845)],
)
def test_times(time, secs):
    assert submit._secs(time) == secs


def test_job_without_gpus(capsys):
    assert "#SBATCH --gres=none" in shown(capsys, "--gpus_per_node=0")


def test_other_options_come_last(capsys):
    lines = shown(capsys, "--sbatch", "--gres=gpu:h200:2 --comment='two words'")
    assert {"#SBATCH --gres=gpu:h200:2", "#SBATCH '--comment=two words'"} < set(lines)
    assert "#SBATCH --gres=gpu:1" not in lines


@pytest.mark.parametrize(
    "words, training, warns",
    [
        ([], TRAINING, True),
        (["--server=beside"], TRAINING, False),
        ([], [*TRAINING, "--llm_server_addr=x"], False),
        ([], ["--llm_reward_type=none"], False),
    ],
)
def test_warns_of_labels_by_rules(capsys, words, training, warns):
    assert submit.main([*words, "--dry_run", "--", *training]) == 0
    assert ("rule-based judge, not from an LLM: add --server" in capsys.readouterr().err) == warns


def test_variables_of_this_job_do_not_reach_the_new_one(sbatch, monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"):
        monkeypatch.setenv(name, name.lower())
    assert submit.main(["--", *TRAINING]) == 0
    names = {line.partition("=")[0] for line in (sbatch.parent / "of_slurm").read_text().splitlines()}
    assert names == {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"}


def test_shows_and_submits_the_same(sbatch, capsys):
    assert submit.main(["--time=1:00:00", "--", *TRAINING]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{sbatch.read_text()}\nSubmitted batch job 7\nnext:\n")


@pytest.mark.parametrize(
    "words, training, told",
    [
        ([], [], "add the flags of launch.train"),
        ([], ["--llm_reward_typ", "none"], "did you mean --llm_reward_type?"),
        ([], ["--llm_reward_type", "online_cls"], "--llm_reward_coeff"),
        ([], [*TRAINING, "--train_for_seconds=60"], "--train_for_seconds: starts again from 0 at each start of a job"),
        (["--node", "2"], TRAINING, "did you mean --nodes?"),
        (["--nodes", "0"], TRAINING, "--nodes 0: must be 1 or more"),
        (["--time", "24h"], TRAINING, "--time 24h: must be in a format of Slurm's"),
        (["--time=2", "--save_secs=120"], TRAINING, "--save_secs 120: must be below --time 2"),
        (["--nodes=3"], TRAINING, "can't be sharded evenly over 3 devices; give a multiple"),
        (["--nodes=3", "--gpus_per_node=0"], TRAINING, "evenly over 3 devices"),
        (["--nodes=2", "--gpus_per_node=3"], [*TRAINING, "--learner_devices=3"], "evenly over 6 devices"),
        (["--seeds", "1-"], TRAINING, "--seeds 1-: must be in the format of sbatch's --array"),
        (["--seeds", "1-3"], [*TRAINING, "--resume=x"], "--seeds: begins a run for each seed, and --resume goes on"),
        (["--seeds", "1-3"], [*TRAINING, "--seed=2"], "--seeds and --seed: give one or the other"),
        (["--seeds", "1-3", "--server=node"], TRAINING, "Slurm has no arrays of heterogeneous jobs"),
        (["--nodes=2", "--server=beside"], TRAINING, "is for one node; use --server node"),
        (["--server=node"], [*TRAINING, "--llm_server_addr=x"], "--llm_server_addr names one; leave one out"),
        (["--server_command=x"], TRAINING, "--server_command: needs --server"),
        (["--sbatch=--comment='a"], TRAINING, "No closing quotation"),
        (["--sbatch=--partition=gpu", "--sbatch", "--account=me"], TRAINING, "--sbatch: give it once"),
        (["--sbatch=-p gpu"], TRAINING, "--sbatch: '-p' is no option; write --name=value"),
    ],
)
def test_bad_input_is_one_line(sbatch, capsys, words, training, told):
    assert submit.main([*words, "--", *training]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert not sbatch.exists()


def test_missing_sbatch_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert submit.main(["--", *TRAINING]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: there is no sbatch on this machine") and not printed.out


def test_refusal_by_sbatch_is_one_line(sbatch, capsys):
    (sbatch.parent / "sbatch").write_text("#!/bin/sh\necho sbatch: error: invalid partition >&2\necho >&2\nexit 1\n")
    assert submit.main(["--server=beside", "--", *TRAINING]) == 2
    assert capsys.readouterr().err == "error: sbatch refused the job: sbatch: error: invalid partition\n"
    assert os.listdir(sbatch.parent) == ["sbatch"]
