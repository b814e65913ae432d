"""The whole of it: real games, real HTTP, real checkpoints, started as a user starts it."""

import asyncio
import contextlib
import multiprocessing
import pathlib
import shutil
import signal
import time

import aiohttp
import psutil
import pytest

from launch import train as program
from oni_jax.runs.experiment import is_running
from oni_jax.runs.message_counts import MessageCounts
from tests.support.documented import undocumented
from tests.support.faults import free_port
from tests.support.full_disk import full_disk
from tests.support.processes import RETRIEVAL, SMALL, Launched, rows, summary


def words_in(tmp_path: pathlib.Path, *words: str) -> list[str]:
    return [*SMALL, f"--train_dir={tmp_path}", "--experiment=run", *words]


def train(tmp_path: pathlib.Path, *words: str) -> Launched:
    return Launched("launch.train", *words_in(tmp_path, *words))


def an_actor(run: Launched) -> psutil.Process:
    return next(process for process in run.descendants() if process.name().startswith("actor-"))


def wait_for_metric(run: Launched, folder: pathlib.Path, name: str, least: float) -> None:
    run.wait_for(lambda: rows(folder)[-1][name] >= least)


def checkpoints(folder: pathlib.Path) -> list[int]:
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdigit())


def test_a_run_labels_messages_and_learns_from_them(tmp_path):
    words = "--answers=judge", "--goal_key=zeroknowledge", "--train_for_env_steps=100000000"  # many messages help
    run = train(tmp_path, *RETRIEVAL, *words)
    folder = tmp_path / "run"
    run.wait_for(lambda: rows(folder) and rows(folder)[-1]["rewarded_steps"] and rows(folder)[-1]["labels_held"] > 10)
    run.process.send_signal(signal.SIGINT)
    output = run.finish()
    assert run.process.returncode == 0, output
    assert "rule-based stand-in" in output
    assert output.startswith("starting: importing JAX and building the networks")
    assert 0 < output.index("compiling the update") < output.index(" of 100 M steps")
    done = summary(folder)
    assert done["env_steps"] == 256 * done["updates"] > 0
    assert done["labels_held"] > 10 and done["rewarded_steps"] > 0
    assert done["labels_asked"] >= done["labels_held"]
    assert done["labels_by"] == "rule-based judge, not an LLM" and f"labels by: {done['labels_by']} (" in output
    assert checkpoints(folder) == [done["env_steps"]]
    assert (folder / "config.json").exists() and list((folder / "tensorboard").iterdir())
    assert rows(folder)[-1]["env_steps"] == done["env_steps"]
    assert undocumented({name for row in rows(folder) for name in row} - {"step", "checksum", "run_id"}) == []
    assert run.leftovers() == []


@pytest.fixture
def judge(unused_port):
    launched = Launched("launch.judge", f"--port={unused_port}")
    yield f"127.0.0.1:{unused_port}", launched
    launched.process.send_signal(signal.SIGTERM)
    launched.finish(20)


@pytest.fixture
def unused_port() -> int:
    return free_port()


async def judge_stats(address: str) -> dict:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/stats") as response:
        return await response.json()


def test_a_resumed_run_goes_on_and_asks_nothing_twice(tmp_path, judge):
    address, _ = judge
    folder = tmp_path / "run"
    words = (*RETRIEVAL, f"--llm_server_addr={address}")
    first = train(tmp_path, *words, "--train_for_env_steps=4096")
    assert first.finish() and first.process.returncode == 0
    before = summary(folder)
    second = train(tmp_path, *words, "--train_for_env_steps=8192", "--learning_rate=0.0002")
    output = second.finish()
    assert second.process.returncode == 0, output
    after = summary(folder)
    assert "resumed at 4,096" in output and "learning_rate: 0.0001 -> 0.0002" in output
    assert (before["env_steps"], after["env_steps"]) == (4096, 8192)
    assert (before["updates"], after["updates"]) == (16, 32)
    assert after["labels_held"] >= before["labels_held"] > 0
    assert after["rewarded_steps"] >= before["rewarded_steps"]
    assert checkpoints(folder) == [4096, 8192]
    met = MessageCounts()
    met.restore(str(folder))
    assert 8192 <= sum(met.counts().values()) <= 8192 + 2 * 256  # at each end a batch waited to be learnt from
    stats = asyncio.run(judge_stats(address))
    assert stats["repeated"] == 0 and stats["prompts"] >= after["labels_held"]


@pytest.mark.parametrize("number", [pytest.param(signal.SIGUSR1, marks=pytest.mark.slow), signal.SIGINT])
def test_a_run_refuses_a_second_one_and_when_stopped_saves_and_exits_0(tmp_path, number, capfd):
    run = train(tmp_path, *RETRIEVAL)
    folder = tmp_path / "run"
    run.wait_for(lambda: rows(folder))
    assert "in use" in refused(capfd, tmp_path, *RETRIEVAL)
    run.process.send_signal(number)
    output = run.finish(30)
    assert run.process.returncode == 0, output
    assert checkpoints(folder) == [summary(folder)["env_steps"]]
    assert run.leftovers() == []


@pytest.mark.slow
def test_signals_to_every_process_of_a_run_save_it_and_then_stop_it_while_an_actor_is_replaced(tmp_path):
    run = train(tmp_path, *RETRIEVAL, "--on_sigusr1=save", "--save_every_sec=0")
    folder = tmp_path / "run"
    run.wait_for(lambda: rows(folder))
    for process in (run.process, *run.descendants()):
        process.send_signal(signal.SIGUSR1)
    run.wait_for(lambda: checkpoints(folder))
    wait_for_metric(run, folder, "env_steps", checkpoints(folder)[0] + 2048)  # it went on, beyond what lay in the ring
    assert rows(folder)[-1]["actor_restarts"] == 0
    an_actor(run).kill()
    for process in run.descendants():
        with contextlib.suppress(psutil.NoSuchProcess):  # the killed one is listed until it is replaced
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 60
    while run.process.poll() is None and time.monotonic() < deadline:  # also while it saves, and while Python ends
        run.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    output = run.finish(0)
    assert run.process.returncode == 0 and "SIGTERM: saving and leaving" in output, output
    assert checkpoints(folder)[-1] == summary(folder)["env_steps"]
    assert run.leftovers() == []


@pytest.mark.slow
def test_a_second_interrupt_leaves_while_it_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))  # nothing is, and it takes a while
    run = train(tmp_path, *RETRIEVAL)
    run.wait_for(lambda: "compiling" in run.output())
    for _ in range(2):
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # two that come before it runs again are one
    assert "interrupted twice: left at once" in run.finish(30)
    assert run.process.returncode == 130
    assert run.leftovers() == []


@pytest.mark.parametrize(
    "seen, told",
    [
        ("starting: importing JAX", "SIGTERM: left before the first step"),
        pytest.param("compiling the update", "SIGTERM: saving and leaving", marks=pytest.mark.slow),
    ],
)
def test_a_run_stopped_while_it_starts_exits_0(tmp_path, seen, told):
    run = train(tmp_path, "--llm_reward_type=none")
    run.wait_for(lambda: seen in run.output())
    run.process.send_signal(signal.SIGTERM)
    output = run.finish(60)
    assert run.process.returncode == 0 and "Traceback" not in output, output
    assert told in output, output
    assert summary(tmp_path / "run")["state"] == "stopped"
    assert run.leftovers() == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> pathlib.Path:
    """The folder of a run of 512 steps without a reward."""
    train_dir = tmp_path_factory.mktemp("finished")
    assert program.main(words_in(train_dir, "--llm_reward_type=none", "--train_for_env_steps=512"), False) == 0
    return train_dir / "run"


def test_a_task_of_other_actions_is_refused_by_name(tmp_path, finished, capfd):
    shutil.copytree(finished, tmp_path / "run")
    words = "--llm_reward_type=none", "--train_for_env_steps=512", "--root_env=NetHackScore-v1"
    assert "--root_env" in refused(capfd, tmp_path, *words)


def test_a_run_whose_last_save_failed_is_not_finished(tmp_path, capfd):
    words = (  # a network that is larger than a file may be
        "--root_env=Catch-v0 --llm_reward_type=none --encoder_custom=mlp_encoder --hidden_size=512 --num_workers=1 "
        "--num_envs_per_worker=4 --batch_size=64 --rollout=16 --recurrence=16 --actor_pool=serial "
        f"--train_dir={tmp_path} --experiment=run --train_for_env_steps=128"
    ).split()
    with full_disk(300_000):
        assert program.main(words) == 1
    assert summary(tmp_path / "run")["state"] == "unsaved" and checkpoints(tmp_path / "run") == []
    line = capfd.readouterr().err.splitlines()[-1]
    assert "the last save failed" in line and "128 of 128 environment steps are lost" in line
    assert program.main(words, False) == 0
    assert summary(tmp_path / "run")["state"] == "finished" and checkpoints(tmp_path / "run") == [128]


def test_a_killed_run_leaves_nothing_but_what_it_saved(tmp_path):
    """test_killed_runs resumes such runs."""
    run = train(tmp_path, *RETRIEVAL, "--save_every_steps=512")
    folder = tmp_path / "run"
    run.wait_for(lambda: rows(folder) and rows(folder)[-1]["env_steps"] >= 2048)
    assert len(run.descendants()) >= 4 and is_running(str(folder))  # two actors, the annotation service, the judge
    run.kill()
    assert run.leftovers() == [] and not is_running(str(folder))
    assert checkpoints(folder)


def test_actors_that_die_are_replaced_until_there_are_too_many(tmp_path):
    run = train(tmp_path, "--llm_reward_type=none", "--max_actor_restarts=2")
    folder = tmp_path / "run"
    run.wait_for(lambda: rows(folder))
    for num_restarts, number in enumerate((signal.SIGKILL, signal.SIGSEGV), start=1):
        an_actor(run).send_signal(number)
        wait_for_metric(run, folder, "actor_restarts", num_restarts)
        wait_for_metric(run, folder, "env_steps", rows(folder)[-1]["env_steps"] + 2048)  # more than lay in the ring
    an_actor(run).kill()
    output = run.finish(60)
    assert run.process.returncode == 1
    assert "replaced, with new episodes (restart 2 of 2" in output and "--max_actor_restarts is 2" in output
    assert "died, killed by SIGKILL" in output.splitlines()[-2], output
    assert checkpoints(folder)
    assert run.leftovers() == []


def test_training_without_a_server_goes_on_and_says_so(tmp_path, unused_port):
    words = (*RETRIEVAL, f"--llm_server_addr=127.0.0.1:{unused_port}")
    run = train(tmp_path, *words, "--train_for_env_steps=4096")
    output = run.finish()
    assert run.process.returncode == 0, output
    assert "waiting for server" in output
    done = summary(tmp_path / "run")
    assert done["labels_held"] == 0 and done["rewarded_steps"] == 0 and done["env_steps"] == 4096


def refused(capfd, tmp_path: pathlib.Path, *words: str) -> str:
    """The one line with which a start in this process is refused, beside those that it starts with other settings."""
    capfd.readouterr()
    assert program.main(words_in(tmp_path, "--train_for_seconds=1", *words)) == 2  # were it not refused, it would end
    assert multiprocessing.active_children() == []
    return the_error("".join(capfd.readouterr()))


def the_error(output: str) -> str:
    lines = [line for line in output.splitlines() if not line.startswith(("starting: ", "settings changed "))]
    assert len(lines) == 1 and lines[0].startswith("error: "), output
    return lines[0]


def test_a_server_that_is_required_and_missing(tmp_path, unused_port, capfd):
    line = refused(capfd, tmp_path, *RETRIEVAL, f"--llm_server_addr=127.0.0.1:{unused_port}", "--llm_required")
    assert str(unused_port) in line


def test_a_prompt_without_a_place_for_the_message(tmp_path, capfd):
    prompt = tmp_path / "prompt.json"
    prompt.write_text("{}")
    assert str(prompt) in refused(capfd, tmp_path, *RETRIEVAL, f"--prompt_file={prompt}")


def test_a_folder_that_cannot_be_written(tmp_path, capfd):
    (tmp_path / "run").write_text("a file in the way")
    assert "--train_dir" in refused(capfd, tmp_path, "--llm_reward_type=none")


def test_damaged_and_foreign_checkpoints(tmp_path, finished, capfd):
    shutil.copytree(finished, tmp_path / "run")
    assert "hidden_size: 32 -> 16" in refused(capfd, tmp_path, "--llm_reward_type=none", "--hidden_size=16")
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"hidden_size": 32', '"hidden_size": 16'))
    words = "--llm_reward_type=none", "--train_for_env_steps=1024"
    assert "checkpoints/512" in refused(capfd, tmp_path, *words, "--hidden_size=16")
    config.write_text(config.read_text().replace('"hidden_size": 16', '"hidden_size": 32'))
    for path in (tmp_path / "run" / "checkpoints" / "512" / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    run = train(tmp_path, *words)
    output = run.finish(90)
    assert run.process.returncode == 2 and run.leftovers() == [], output
    assert "checkpoints/512" in the_error(output)
