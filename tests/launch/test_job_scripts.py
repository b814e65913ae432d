"""launch/local.sh and the scripts of launch/slurm, with stand-ins for what they call."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

from tests.launch.stand_ins import GOES_ON, LAUNCH, Scripts

SCRIPTS = [path.relative_to(LAUNCH).as_posix() for path in sorted(LAUNCH.rglob("*.s*"))]
NODE, BESIDE, ALONE, LOCAL = (
    "slurm/train_with_server.sbatch", "slurm/train_beside_server.sbatch", "slurm/train.sbatch", "local.sh",
)  # fmt: skip
WITH_SERVER = [NODE, BESIDE, LOCAL]
WORDS = "-m launch.train --seed 3 --on_sigusr1 stop"
SERVED = WORDS + " --llm_server_addr {} --llm_model m"
ARRAY = dict(SLURM_ARRAY_JOB_ID="5", SLURM_ARRAY_TASK_ID="4", SLURM_JOB_ID="5", JOB="5_4")
PREEMPTED = "2026-11-22T01:01:39"
SRUN = {
    NODE: "--het-group=0 --cpus-per-task=1 --het-group=1 --kill-on-bad-exit=1 --cpus-per-task=2",
    ALONE: "--kill-on-bad-exit=1 --cpus-per-task=3",
}


@pytest.fixture
def scripts(tmp_path):
    with contextlib.closing(Scripts(tmp_path)) as scripts:
        yield scripts


def ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("script", SCRIPTS)
def test_bash_reads_it(script):
    subprocess.run(["bash", "-n", LAUNCH / script], check=True)


@pytest.mark.parametrize(
    "script, words, gpus",
    [
        (NODE, SERVED.format("node0:10007"), "4,5 4,5"),  # Slurm shows each step its GPUs
        (BESIDE, SERVED.format("127.0.0.1:10007"), "4 5"),
        (LOCAL, SERVED.format("127.0.0.1:9001"), "4 5"),
        (ALONE, WORDS, " 4,5"),
    ],
)
def test_trains_against_the_server_and_ends_with_its_code(scripts, script, words, gpus):
    assert scripts.start(script, "exit 5").wait(30) == 5
    assert scripts.read("trained").strip() == words
    served = scripts.read("served").split()
    assert f"{served[1] if served else ''} {scripts.read('gpus').strip()}" == gpus
    assert not scripts.read("scontrol.log")
    again = f"env MODEL=m SERVER_COMMAND=serve {LAUNCH}/local.sh --seed 3" if script == LOCAL else ""
    assert scripts.read("started_by").strip() == again
    assert scripts.read("srun.log").split() == SRUN.get(script, "").split()
    if served:
        assert ended(int(scripts.read("serving")))


@pytest.mark.parametrize("script", [NODE, BESIDE, ALONE])
def test_usr1_saves_and_goes_back_into_the_queue(scripts, script):
    process = scripts.start(script)
    scripts.wait_for("trained")
    os.kill(process.pid, signal.SIGUSR1)
    assert process.wait(30) == 0
    assert scripts.read("trained").splitlines()[-1] == "saved"
    assert scripts.read("scontrol.log") == "requeue 7\n"
    assert script == ALONE or ended(int(scripts.read("serving")))


def test_usr1_before_the_server_answers(scripts):
    process = scripts.start(NODE, SERVER_COMMAND="echo > started; sleep 60")
    scripts.wait_for("output")
    scripts.wait_for("started")
    os.kill(process.pid, signal.SIGUSR1)
    assert process.wait(30) == 0
    assert scripts.read("scontrol.log") == "requeue 7\n" and not scripts.read("trained")


def test_failing_training_does_not_go_back_into_the_queue(scripts):
    process = scripts.start(ALONE, f"trap 'exit 2' USR1; echo > ready; {GOES_ON}")
    scripts.wait_for("ready")
    os.kill(process.pid, signal.SIGUSR1)
    assert process.wait(30) == 2
    assert not scripts.read("scontrol.log")


@pytest.mark.parametrize("code", [0, 1, 138, 143])  # the last two: it was ended before it could listen
def test_a_preempted_job_goes_back_into_the_queue_when_training_has_saved(scripts, code):
    words = dict(PREEMPTED=PREEMPTED, SLURM_RESTART_COUNT="9")
    assert scripts.start(ALONE, f"exit {code}", **words).wait(30) == code
    assert scripts.read("scontrol.log") == ("" if code == 1 else "requeue 7\n")


def test_a_job_preempted_before_the_server_answers_goes_back_into_the_queue(scripts):
    process = scripts.start(NODE, SERVER_COMMAND="echo > started; sleep 1", PREEMPTED=PREEMPTED)
    assert process.wait(30) == 0
    assert scripts.read("scontrol.log") == "requeue 7\n" and not scripts.read("trained")


def test_a_preempted_job_whose_server_ends_first_goes_back_into_the_queue(scripts):
    """A grace time's TERM comes to what srun has started, all at once; training takes a while to save."""
    saves = "trap 'sleep 2; echo saved >> trained; exit 0' TERM"
    process = scripts.start(NODE, f"{saves}; echo > ready; {GOES_ON}", PREEMPTED=PREEMPTED)
    scripts.wait_for("ready")
    for group in scripts.read("groups").split():
        os.killpg(int(group), signal.SIGTERM)
    assert process.wait(30) == 0
    assert scripts.read("trained").splitlines()[-1] == "saved"
    assert scripts.read("scontrol.log") == "requeue 7\n"
    assert "the LLM server on node0 ended" not in scripts.read("output")


@pytest.mark.parametrize("restarts, code", [("2", 138), ("3", 1)])
def test_a_job_whose_training_is_ended_before_it_listens_ends_after_three_restarts(scripts, restarts, code):
    process = scripts.start(ALONE, f"trap - USR1; echo > ready; {GOES_ON}", SLURM_RESTART_COUNT=restarts)
    scripts.wait_for("ready")
    os.kill(process.pid, signal.SIGUSR1)
    assert process.wait(30) == code
    assert scripts.read("scontrol.log") == ("requeue 7\n" if code == 138 else "")


@pytest.mark.parametrize("script", [NODE, BESIDE, ALONE])
def test_a_job_whose_task_is_killed_goes_back_into_the_queue_three_times(scripts, script):
    for number in range(1, 5):
        (scripts.folder / "serving").unlink(missing_ok=True)  # the last start's server answers by it
        assert scripts.start(script, "kill -KILL $$", SLURM_RESTART_COUNT="9").wait(30) == 137
        assert scripts.read("scontrol.log") == "requeue 7\n" * min(number, 3)
    assert "killed more than 3 times, see killed-7.log" in scripts.read("output")
    assert len(scripts.read("killed-7.log").splitlines()) == 4


@pytest.mark.parametrize("code", [1, 2, 134, 139])
def test_a_job_whose_task_fails_or_crashes_by_itself_ends(scripts, code):
    assert scripts.start(ALONE, f"exit {code}").wait(30) == code
    assert not scripts.read("scontrol.log") and not scripts.read("killed-7.log")


@pytest.mark.parametrize("restarts, code", [("2", 0), ("3", 1)])
def test_a_job_whose_training_never_starts_ends(scripts, restarts, code):
    process = scripts.start(NODE, SERVER_COMMAND="echo > started; sleep 60", SLURM_RESTART_COUNT=restarts)
    scripts.wait_for("started")
    os.kill(process.pid, signal.SIGUSR1)
    assert process.wait(30) == code
    assert scripts.read("scontrol.log") == ("" if code else "requeue 7\n")
    assert ("the time limit came before training started, after 3 restarts" in scripts.read("output")) == bool(code)


def test_a_job_passes_over_term(scripts):
    process = scripts.start(NODE, "sleep 2; exit 6")
    scripts.wait_for("trained")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(30) == 6
    assert "TERM is passed over" in scripts.read("output") and not scripts.read("scontrol.log")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_local_saves_and_leaves_nothing(scripts, number):
    process = scripts.start(LOCAL, SERVER_COMMAND="sleep 61 & serve")
    scripts.wait_for("trained")
    os.kill(process.pid, number)
    assert process.wait(30) == 0
    assert scripts.read("trained").splitlines()[-1] == "saved"
    left = [found for found in psutil.process_iter() if str(scripts.folder) in cwd(found)]
    assert not left  # nor what the server had started


def cwd(process: psutil.Process) -> str:
    try:
        return process.cwd()
    except psutil.Error:
        return ""


@pytest.mark.parametrize("script", WITH_SERVER)
@pytest.mark.parametrize("code", [3, 255])  # 128 and more are mostly signals, this one is none
def test_says_why_the_server_ended(scripts, script, code):
    assert scripts.start(script, SERVER_COMMAND=f"echo no such model; exit {code}").wait(30) == 1
    output = scripts.read("output")
    assert f"ended before it answered (exit code {code})" in output and "no such model\n" in output
    assert not scripts.read("trained")


@pytest.mark.parametrize("script", WITH_SERVER)
def test_a_server_that_ends_later_ends_training(scripts, script):
    process = scripts.start(script)
    scripts.wait_for("trained")
    os.kill(int(scripts.read("serving")), signal.SIGKILL)
    assert process.wait(30) == 1
    assert scripts.read("trained").splitlines()[-1] == "saved"
    assert "ended before training, which now saves and ends (signal KILL)" in scripts.read("output")
    assert not scripts.read("scontrol.log")


def test_a_port_in_use(scripts):
    (scripts.folder / "serving").write_text(f"{scripts.start(ALONE).pid}")
    assert scripts.start(LOCAL).wait(30) == 1
    assert "something else answers at 127.0.0.1:9001; choose another PORT" in scripts.read("output")


@pytest.mark.parametrize("script", WITH_SERVER)
def test_flags_are_read_before_a_server_is_started(scripts, script):
    assert scripts.start(script, "exit 0", "--lr", "x", REFUSED="2").wait(30) == 2
    assert scripts.read("checked").endswith("-- --lr x --llm_server_addr=\n")
    assert not scripts.read("output")
    assert not scripts.read("served") and not scripts.read("trained")


@pytest.mark.parametrize("rate, code", [("0.1", 0), ("x", 2)])
def test_flags_are_read_as_training_will(scripts, rate, code):
    """Those of a run that had a server, too."""
    words = "--llm_server_addr=old:1 --llm_reward_type=online_cls --llm_reward_coeff=0.4 --learning_rate".split()
    words.append(rate)
    environment = dict(REAL=sys.executable, PYTHONPATH=str(LAUNCH.parent))
    assert scripts.start(LOCAL, "exit 0", *words, **environment).wait(60) == code
    assert ("learning_rate" in scripts.read("output").splitlines()[-1]) == bool(code)


@pytest.mark.parametrize("script, secs, code", [(LOCAL, "60", 0), (LOCAL, "1h", 2), (BESIDE, "60", 2)])
def test_a_time_limit_is_one_of_no_job(scripts, script, secs, code):
    words = f"--llm_reward_type=none --train_for_seconds={secs}".split()
    environment = dict(REAL=sys.executable, PYTHONPATH=str(LAUNCH.parent))
    assert scripts.start(script, "exit 0", *words, **environment).wait(60) == code
    assert ("starts again from 0 at each start of a job" in scripts.read("output")) == (script == BESIDE)


@pytest.mark.parametrize("flag", [["--llm_model", "user/one's"], ["-llm-model=user/one's"], []])
def test_the_model_is_the_flag_s_where_the_environment_names_none(scripts, flag):
    words = ["--llm_reward_type=online_cls", "--llm_reward_coeff=0.4", *flag]
    environment = dict(REAL=sys.executable, PYTHONPATH=str(LAUNCH.parent), MODEL="")
    assert scripts.start(LOCAL, "exit 0", *words, **environment).wait(60) == 0
    model = "user/one's" if flag else "meta-llama/Llama-3.1-8B-Instruct"
    assert scripts.read("served").startswith(f"{model} ")
    assert scripts.read("trained").endswith(f"--llm_model {model}\n")


def test_missing_curl_is_one_line(scripts):
    for name in ("dirname", "bash", "env", "date", "setsid"):
        (scripts.folder / "bin" / name).symlink_to(shutil.which(name))
    (scripts.folder / "bin" / "curl").unlink()
    assert scripts.start(LOCAL, PATH=str(scripts.folder / "bin")).wait(30) == 2
    assert scripts.read("output").count("\n") == 1 and "curl is missing" in scripts.read("output")


def test_one_gpu_is_too_few(scripts):
    assert scripts.start(LOCAL, CUDA_VISIBLE_DEVICES="0").wait(30) == 2
    assert "no GPU is left for training: of 0 the server takes all" in scripts.read("output")


def test_a_server_without_a_gpu(scripts):
    assert scripts.start(BESIDE, "exit 0", CUDA_VISIBLE_DEVICES="4", NUM_SERVER_GPUS="0").wait(30) == 0
    assert (scripts.read("served"), scripts.read("gpus")) == ("m \n", "4\n")


@pytest.mark.parametrize("gpus, size", [("0", 1), ("1", 1), ("2", 2)])
def test_vllm_takes_all_gpus_of_the_servers(scripts, gpus, size):
    words = dict(SERVER_COMMAND="", NUM_SERVER_GPUS=gpus, CUDA_VISIBLE_DEVICES="4,5,6")
    assert scripts.start(LOCAL, "exit 0", **words).wait(30) == 0
    expected = f"serve m --port 9001 --enable-prefix-caching --tensor-parallel-size {size}\n"
    assert scripts.read("vllm_words") == expected


def test_an_array_has_a_folder_a_seed(scripts):
    assert scripts.start(ALONE, "exit 0", "--lr", "1", **ARRAY).wait(30) == 0
    words = "-m launch.train --lr 1 --on_sigusr1 stop --seed 4 --experiment {}_seed4"
    assert scripts.read("trained").strip() == words.format("score")
    assert scripts.start(ALONE, "exit 0", "--lr", "1", ONI_EXPERIMENT="chosen", **ARRAY).wait(30) == 0
    assert scripts.read("trained").strip() == words.format("chosen")


def test_a_task_of_an_array_goes_back_into_the_queue_alone(scripts):
    """The one with the array's id."""
    process = scripts.start(ALONE, **ARRAY)
    scripts.wait_for("trained")
    os.kill(process.pid, signal.SIGUSR1)
    assert process.wait(30) == 0
    assert scripts.read("scontrol.log") == "requeue 5_4\n"


def test_a_preempted_task_of_an_array_goes_back_into_the_queue_alone(scripts):
    assert scripts.start(ALONE, "exit 0", PREEMPTED=PREEMPTED, **ARRAY).wait(30) == 0
    assert scripts.read("scontrol.log") == "requeue 5_4\n"


def test_the_servers_flags_win(scripts):
    """Another model than is served would be refused for ever."""
    assert scripts.start(LOCAL, "exit 0", "--llm_model", "other", "--on_sigusr1", "save").wait(30) == 0
    words = scripts.read("trained").split()
    assert (words[-2:], words[-6:-4]) == (["--llm_model", "m"], ["--on_sigusr1", "stop"])


def test_any_answer_but_a_failure_counts(scripts):
    curl = scripts.folder / "bin" / "curl"
    curl.write_text(
        "#!/bin/bash\n[ -e serving ] && echo >> asked || { echo 000; exit; }\n[ -s twice ] && echo 401 && exit\n"
        "echo 503 | tee twice\n"
    )
    assert scripts.start(LOCAL, "exit 0").wait(30) == 0
    assert scripts.read("trained") and scripts.read("asked") == "\n\n"
