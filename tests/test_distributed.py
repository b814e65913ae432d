"""Runs of several processes on this machine: one run, whatever dies; each is started as a user starts it."""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import jax
import numpy as np
import pytest

from launch import train
from oni_jax.host.npz import from_npz, to_npz
from oni_jax.host.runtime import StopRequest
from oni_jax.learner.loop import Learner
from oni_jax.learner.peers import meeting, peers
from oni_jax.learner.peers.contributions import Contribution, merge_contributions, pack_contribution
from oni_jax.learner.peers.peers import SingleProcess
from oni_jax.networks import ragged
from oni_jax.ops.captions import NO_CAPTIONS
from oni_jax.parallel import local
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import DevicesConfig, is_primary_process, num_processes
from oni_jax.training import build
from oni_jax.training.parts import Makers
from oni_jax.types import Annotation, CaptionBatch, StepCaptions
from oni_jax.worlds.base import WorldReport
from tests.support.faults import free_port
from tests.support.processes import COMPILES_SOON, Launched, rows, summary

BATCH = 160
WORDS = (
    f"--root_env=Catch-v0 --num_workers=1 --num_envs_per_worker=8 --batch_size={BATCH} --rollout=5 --recurrence=5 "
    "--encoder_custom=mlp_encoder --hidden_size=16 --policy_initialization=xavier_uniform "
    "--encoder_msg_model=lt_cnn_small --encoder_hidden_dim=16 --llm_reward_type=online_motif --llm_reward_coeff=0.3 "
    "--reward_model_batch_size=16 --reward_dataset_size=256 --online_dataset_subsample=1 --log_every_sec=0.1"
).split()


def start(folder: pathlib.Path, number: int, *words: str) -> list[Launched]:
    """The processes of a run; each leaves its training state in <folder>/<index>.npz at an orderly end."""
    where = f"--coordinator_address=127.0.0.1:{free_port()}", f"--num_processes={number}"
    of_each = [(*where, f"--process_id={index}") if number > 1 else () for index in range(number)]
    common = (*WORDS, f"--train_dir={folder}", "--experiment=run", *words)
    return [
        Launched("tests.test_distributed", f"{folder / str(index)}.npz", *common, *process_words)
        for index, process_words in enumerate(of_each)
    ]


def finish(runs: list[Launched], code: int = 0, timeout_secs: float = 400) -> list[str]:
    outputs = [run.finish(timeout_secs) for run in runs]
    assert [run.process.returncode for run in runs] == [code] * len(runs), "\n".join(outputs)
    assert [run.leftovers() for run in runs] == [[]] * len(runs)
    return outputs


def states(folder: pathlib.Path, number: int) -> list[dict[str, np.ndarray]]:
    return [dict(np.load(folder / f"{index}.npz", allow_pickle=False)) for index in range(number)]


def check(folder: pathlib.Path, number: int, num_updates: int) -> None:
    """After an orderly end: all processes have the same, and counted the same."""
    first, *others = states(folder, number)
    assert any(name.startswith(".reward_state.model") for name in first)
    for other in others:
        assert first.keys() == other.keys()
        for name in first:
            np.testing.assert_array_equal(other[name], first[name], err_msg=name)
    done = summary(folder / "run")
    assert done["env_steps"] == num_updates * BATCH and done["updates"] == num_updates
    assert done["labels_held"] > 0 and done["rewarded_steps"] > 0
    assert any(name.startswith("episode/intrinsic_return/") and value > 0 for name, value in done.items() if value)
    assert Run(str(folder / "run")).config.devices == DevicesConfig()  # they are no single process's
    assert done["episodes"] > 0.8 * done["env_steps"] / 9  # all processes' episodes: an episode has nine steps


def wait_for_updates(folder: pathlib.Path, run: Launched, number: int) -> None:
    run.wait_for(lambda: rows(folder / "run") and rows(folder / "run")[-1]["updates"] >= number, 400)


def kill_one(folder: pathlib.Path, number: int, killed: int) -> None:
    """A new run in which one process is killed soon: the others end."""
    runs = start(folder, number, f"--save_every_steps={2 * BATCH}")
    wait_for_updates(folder, runs[0], 5)
    victim = runs.pop(killed)
    victim.process.send_signal(signal.SIGKILL)
    start_secs = time.monotonic()
    outputs = [run.finish(60) for run in runs]
    assert time.monotonic() < start_secs + 60
    told = []
    for run, output in zip(runs, outputs):
        assert run.leftovers() == [] and run.process.returncode != 0
        told.append(output.splitlines()[-1].startswith("error: another process of this run is gone"))
        # Errors within JAX or gloo that end a process: the first one has died, or several leave at the same moment.
        assert told[-1] or "another task died" in output or "gloo::" in output, output
    assert any(told) or killed == 0
    assert told == [True] or number > 2 or killed == 0
    assert victim.finish() and victim.leftovers() == []


def stop_one(folder: pathlib.Path, number: int, num_updates: int, was_killed: bool) -> None:
    """A run that begins or goes on, in which the last process is told to end later: all end, and are alike."""
    runs = start(folder, number)
    wait_for_updates(folder, runs[0], num_updates + 10)
    threads = pathlib.Path(f"/proc/{runs[0].process.pid}/task").iterdir()
    assert os.SCHED_BATCH in {os.sched_getscheduler(int(thread.name)) for thread in threads}  # gloo's is among them
    next(process for process in runs[-1].descendants() if process.name().startswith("actor-")).kill()
    wait_for_updates(folder, runs[0], num_updates + 25)
    runs[-1].process.send_signal(signal.SIGTERM)
    outputs = finish(runs)
    assert (f"resumed at {num_updates * BATCH:,} environment steps" in outputs[0]) == was_killed
    assert "another process asks for it: saving and leaving" in outputs[0]
    assert f"warning: process {number - 1}: actor-0" in outputs[0] and summary(folder / "run")["actor_restarts"] == 1
    check(folder, number, updates_saved(folder))


def updates_saved(folder: pathlib.Path) -> int:
    saved = [int(path.name) for path in folder.glob("run/checkpoints/*") if path.name.isdecimal()]
    return max(saved, default=0) // BATCH


@pytest.mark.parametrize(
    ("number", "killed", "others"),
    [
        (2, None, ()),
        pytest.param(2, -1, (), marks=pytest.mark.slow),
        pytest.param(2, 0, (1, 2), marks=pytest.mark.slow),
        pytest.param(4, 1, (2, 1, 4), marks=pytest.mark.slow),
    ],
)
def test_processes_train_alike_end_together_and_are_resumed_by_any_number(
    number, killed, others, tmp_path, monkeypatch
):
    for name, value in COMPILES_SOON.items():
        monkeypatch.setenv(name, value)
    if killed is not None:
        kill_one(tmp_path, number, killed)
    stop_one(tmp_path, number, updates_saved(tmp_path), killed is not None)
    for other in others:
        num_updates = updates_saved(tmp_path) + 8
        outputs = finish(start(tmp_path, other, f"--train_for_env_steps={num_updates * BATCH}"))
        assert "resumed at" in outputs[0]
        check(tmp_path, other, num_updates)


@pytest.mark.slow
def test_processes_begin_with_the_parameters_of_another_run(tmp_path):
    """The first one alone reads them."""
    finish(start(tmp_path, 1, f"--train_for_env_steps={BATCH}"))
    (tmp_path / "run").rename(tmp_path / "earlier")
    words = (f"--init_from={tmp_path / 'earlier'}", "--learning_rate=1e-9", f"--train_for_env_steps={BATCH}")
    earlier = states(tmp_path, 1)[0]
    finish(start(tmp_path, 2, *words), timeout_secs=120)
    found = states(tmp_path, 2)
    for name in (name for name in earlier if name.startswith(".params")):
        np.testing.assert_array_equal(found[1][name], found[0][name])
        np.testing.assert_allclose(found[0][name], earlier[name], atol=1e-6)


def test_processes_with_other_settings_are_refused_by_name(tmp_path):
    where = f"--coordinator_address=127.0.0.1:{free_port()}", "--num_processes=2", f"--train_dir={tmp_path}"
    of_each = [(f"--process_id={index}", f"--seed={index}", f"--learner_devices={index}") for index in range(2)]
    for output in finish([Launched("launch.train", *WORDS, *where, *words) for words in of_each], 2, 120):
        assert "error: process 1 was started with other settings than process 0: " in output
        assert "seed: 0 -> 1" in output and "learner_devices: 0 -> 1" in output


def test_a_process_that_waits_for_others_can_be_stopped():
    where = f"--coordinator_address=127.0.0.1:{free_port()}", "--num_processes=2", "--process_id=1"
    run = Launched("launch.train", *WORDS, *where)
    run.wait_for(lambda: f"waiting for the other processes of this run at {where[0].partition('=')[2]}" in run.output())
    run.process.send_signal(signal.SIGTERM)
    [output] = finish([run], 0, 10)
    assert output.endswith("SIGTERM: leaving\n")


def test_processes_that_do_not_come(monkeypatch, capsys):
    monkeypatch.setattr(meeting, "MEETING_SECS", 0.1)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *words, **given: time.sleep(30))
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(meeting.os, "_exit", sys.exit)
    devices = DevicesConfig(coordinator_address="127.0.0.1:9", num_processes=2, process_id=1)
    with pytest.raises(SystemExit, match="2"), meeting.joined(devices, StopRequest()):
        pass
    error = capsys.readouterr().err
    assert "did not meet at 127.0.0.1:9 in 0.1 s" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "here, there, refused",
    [
        ("127.0.1.1", "10.0.0.7", True),
        ("127.0.1.1", "me", True),
        ("127.0.1.1", "127.0.0.1", False),
        ("127.0.1.1", "localhost", False),
        ("10.0.0.8", "10.0.0.7", False),
    ],
)
def test_host_whose_name_leads_to_itself_alone_is_refused(monkeypatch, here, there, refused):
    """By flags, and under Slurm."""
    monkeypatch.setattr(meeting.socket, "gethostname", lambda: "me")
    monkeypatch.setattr(meeting.socket, "gethostbyname", {"me": here}.get)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *words, **given: None)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setenv("SLURM_SRUN_COMM_HOST", there)
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", "2")
    for devices in (DevicesConfig(coordinator_address=f"{there}:1", num_processes=2, process_id=1), DevicesConfig()):
        with (
            pytest.raises(UserError, match="this host's name, me, resolves to 127.0.1.1") if refused else nullcontext()
        ):
            meeting._meet(devices, False, StopRequest())
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", "1")
    meeting._meet(DevicesConfig(), True, StopRequest())


@pytest.mark.parametrize("backend, policy", [("cpu", os.SCHED_BATCH), ("gpu", os.SCHED_OTHER)])
def test_threads_of_a_backend_of_cpus_wait_for_their_turn(monkeypatch, backend, policy):
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)

    def default_backend() -> str:
        thread.start()
        return backend

    monkeypatch.setattr(peers.jax, "default_backend", default_backend)
    try:
        peers._start_backends()
        assert thread.native_id and os.sched_getscheduler(thread.native_id) == policy
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
    finally:
        ended.set()


def test_messages_of_each_process_reach_all():
    captions = CaptionBatch([b"a", b"", b"\xff"], np.arange(2, dtype=np.int32)[:, None], {"x": np.ones((2, 1, 3))})
    annotations = [Annotation((b"a", b"bc"), b"1 0.25"), Annotation((b"",), None, 1), Annotation((b"", b"d"), b"\0", 2)]
    report = WorldReport([np.ones(3), np.zeros(3)], ["one died"], 2, ["as usual"])
    other = captions._replace(captions=[b"d", b"a", b"e"])
    returns = [np.array([1.0, 2.0])]
    told = [
        Contribution(StepCaptions(captions, NO_CAPTIONS), annotations, report, returns),
        Contribution(StepCaptions(other, NO_CAPTIONS)),
    ]
    found = [from_npz(to_npz(pack_contribution(contribution))) for contribution in told]
    assert merge_contributions(found[1:]).annotations == [] and merge_contributions(found[1:]).report.episodes == []
    merged = merge_contributions(found + found[:1])
    assert [[merged.captions.before.captions[i] for i in row] for row in merged.captions.before.index] == [
        [b"a", b"d", b"a"],
        [b"", b"a", b""],
    ]
    assert merged.captions.before.observations["x"].shape == (2, 3, 3)
    assert merged.captions.caused.index.size == 0
    assert merged.annotations == annotations  # process 0's alone
    assert merged.report.failures == ["process 0: one died", "process 2: one died"]
    assert merged.report.num_restarts == 4 and merged.report.notes == ["as usual"]
    assert np.array_equal(merged.report.episodes, [np.ones(3), np.zeros(3)] * 2)
    assert np.array_equal(merged.intrinsic_returns, returns * 2)


def test_peers_by_slurm_and_flags(monkeypatch):
    """Nobody, or as Slurm's step says, or as the flags say."""
    asked: list[tuple] = []
    monkeypatch.setattr(meeting, "Peers", lambda: "peers")
    monkeypatch.setattr(meeting, "_check_host_name", lambda host: None)
    monkeypatch.setattr(meeting.os, "_exit", sys.exit)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *words, **given: asked.append((words, given)))
    monkeypatch.setattr(jax.distributed, "shutdown", lambda: asked.append(()))
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    for variable in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)

    def found(devices: DevicesConfig) -> object:
        with meeting.joined(devices, StopRequest()) as peers:
            return peers

    assert isinstance(found(DevicesConfig()), SingleProcess)
    with pytest.raises(UserError, match="outside of Slurm"):
        found(DevicesConfig(coordinator_address="a:1"))
    # No number of accelerators means all: Slurm's tasks would have one each.
    always = {"heartbeat_timeout_seconds": meeting.HEARTBEAT_SECS, "local_device_ids": []}
    always |= {"initialization_timeout": 2 * meeting.MEETING_SECS}
    given = {"num_processes": 3, "process_id": 2}
    assert found(DevicesConfig(coordinator_address="a:1", **given)) == "peers"
    monkeypatch.setenv("SLURM_NTASKS", "4")  # a job whose script runs us once
    assert isinstance(found(DevicesConfig()), SingleProcess)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert isinstance(found(DevicesConfig(num_processes=1)), SingleProcess)
    assert found(DevicesConfig()) == "peers" and found(DevicesConfig(coordinator_address="a:1")) == "peers"
    assert asked == [(("a:1",), {**always, **given}), (), ((None,), always), (), (("a:1",), always), ()]


@pytest.mark.parametrize(
    ("tasks", "index", "number", "is_primary"),
    [
        (None, None, 1, True),
        (None, "3", 1, True),
        ("1(x2)", "0", 1, True),
        ("", "0", 1, True),
        ("many", "one", 1, True),
        ("0", None, 1, True),
        ("1", None, 1, True),
        ("2", "0", 2, True),
        ("2", "1", 2, False),
        ("2", None, 2, None),
        ("2", "", 2, None),
        ("2", "1(x2)", 2, None),
        ("2", "2", 2, None),
    ],
)
def test_variables_of_slurm_may_be_half_set(monkeypatch, tasks, index, number, is_primary):
    """None: of several processes, there is no telling which this is."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for name, value in {"SLURM_STEP_NUM_TASKS": tasks, "SLURM_PROCID": index}.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    devices = DevicesConfig()
    assert num_processes(devices) == number and is_primary_process(DevicesConfig(num_processes=1))
    if is_primary is None:
        with pytest.raises(UserError, match="SLURM_PROCID .* --num_processes 1"):
            is_primary_process(devices)
    else:
        assert is_primary_process(devices) == is_primary


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "node0", "SLURM_NTASKS": "1(x2)", "SLURM_LOCALID": "0"},
        {"SLURM_JOB_ID": "", "SLURM_STEP_NODELIST": "", "SLURM_NTASKS": "2", "SLURM_LOCALID": ""},
    ],
)
def test_processes_that_slurm_does_not_describe_end_in_a_line(tmp_path, variables):
    """Several processes are meant, and JAX can't learn from the other variables where they meet."""
    given = {**os.environ, **variables, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_NODES": ""}
    program = (
        "from oni_jax.host.runtime import StopRequest; from oni_jax.learner.peers.meeting import joined\n"
        "from oni_jax.settings.worlds import DevicesConfig\n"
        "with joined(DevicesConfig(), StopRequest()): pass"
    )
    ended = subprocess.run([sys.executable, "-c", program], env=given, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and ended.stderr.splitlines()[-1].startswith("error: --coordinator_address"), ended
    assert "Traceback" not in ended.stderr and "--num_processes" in ended.stderr


def main(path: str, *words: str) -> int:
    """launch.train, which then writes the training state to `path`."""
    ragged.LENGTHS = ()  # less to compile
    built: list[Learner] = []

    def build_learner(*args: object) -> Learner:
        built.append(Learner(*args))  # type: ignore
        return built[-1]

    build.run = functools.partial(build.run, makers=Makers(learner=build_learner))
    code = train.main(words)
    leaves = jax.tree_util.tree_leaves_with_path(local(built[-1].state))
    np.savez(path, **{jax.tree_util.keystr(place): np.asarray(x) for place, x in leaves})  # type: ignore
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
