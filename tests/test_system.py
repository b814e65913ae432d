"""The whole of it: real games, real HTTP, real checkpoints, started as a user starts it."""

import asyncio
import contextlib
import pathlib
import signal
import time

import aiohttp
import psutil
import pytest

from benchmarks.faults import free_port
from oni_jax.learner.message_counts import MessageCounts
from tests.documented import undocumented
from tests.processes import RETRIEVAL, SMALL, Launched, rows, summary


def train(tmp_path: pathlib.Path, *words: str) -> Launched:
    return Launched("launch.train", *SMALL, f"--train_dir={tmp_path}", "--experiment=run", *words)


def an_actor(run: Launched) -> psutil.Process:
    return next(process for process in run.descendants() if process.name().startswith("actor-"))


def wait_for_metric(run: Launched, folder: pathlib.Path, name: str, least: float) -> None:
    run.wait_for(lambda: rows(folder)[-1][name] >= least)


def checkpoints(folder: pathlib.Path) -> list[int]:
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdigit())


def test_a_run_labels_messages_and_learns_from_them(tmp_path):
    words = ("--encoder_custom=nle_rgbcrop_encoder", "--goal_key=zeroknowledge")  # with which much is helpful
    run = train(tmp_path, *RETRIEVAL, *words, "--train_for_env_steps=6144")
    output = run.finish()
    assert run.process.returncode == 0, output
    assert "rule-based stand-in" in output
    assert output.startswith("starting: importing JAX and building the networks")
    assert 0 < output.index("compiling the update") < output.index(" of 6,144 steps")
    folder = tmp_path / "run"
    done = summary(folder)
    assert done["env_steps"] == 6144 and done["updates"] == 24
    assert done["labels_held"] > 10 and done["rewarded_steps"] > 0
    assert done["labels_asked"] >= done["labels_held"]
    assert done["labels_by"] == "rule-based judge, not an LLM" and f"labels by: {done['labels_by']}\n" in output
    assert checkpoints(folder) == [6144]
    assert (folder / "config.json").exists() and list((folder / "tensorboard").iterdir())
    assert rows(folder)[-1]["env_steps"] == 6144
    assert undocumented({name for row in rows(folder) for name in row} - {"step"}) == []
    assert run.leftovers() == []


@pytest.fixture
def judge(unused_port):
    program = Launched("launch.judge", f"--port={unused_port}")
    yield f"127.0.0.1:{unused_port}", program
    program.process.send_signal(signal.SIGTERM)
    program.finish(20)


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
def test_a_stopped_run_saves_and_exits_0(tmp_path, number):
    run = train(tmp_path, *RETRIEVAL)
    folder = tmp_path / "run"
    run.wait_for(lambda: rows(folder))
    run.process.send_signal(number)
    output = run.finish(30)
    assert run.process.returncode == 0, output
    assert checkpoints(folder) == [summary(folder)["env_steps"]]
    assert run.leftovers() == []


def test_signals_to_every_process_of_a_run_save_it_and_then_stop_it_while_an_actor_is_replaced(tmp_path):
    run = train(tmp_path, *RETRIEVAL, "--on_sigusr1=save", "--save_every_sec=0")
    folder = tmp_path / "run"
    run.wait_for(lambda: rows(folder))
    for process in (run.process, *run.descendants()):
        process.send_signal(signal.SIGUSR1)
    run.wait_for(lambda: checkpoints(folder))
    wait_for_metric(run, folder, "env_steps", checkpoints(folder)[0] + 512)  # it went on
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


@pytest.mark.parametrize("delay_secs", [1.5, 4.0])
def test_a_run_stopped_while_it_starts_exits_0(tmp_path, delay_secs):
    run = train(tmp_path, "--llm_reward_type=none")
    time.sleep(delay_secs)
    run.process.send_signal(signal.SIGTERM)
    output = run.finish(60)
    assert run.process.returncode == 0 and "Traceback" not in output, output
    assert "SIGTERM: left before the first step" in output or "SIGTERM: saving and leaving" in output, output
    assert summary(tmp_path / "run")["state"] == "stopped"
    assert run.leftovers() == []


def test_a_task_of_other_actions_is_refused_by_name(tmp_path):
    run = train(tmp_path, "--llm_reward_type=none", "--train_for_env_steps=256")
    assert run.finish() and run.process.returncode == 0
    line = refused(tmp_path, "--llm_reward_type=none", "--train_for_env_steps=256", "--root_env=NetHackScore-v1")
    assert "--root_env" in line


def test_a_killed_run_leaves_nothing_and_is_resumed(tmp_path):
    run = train(tmp_path, *RETRIEVAL, "--save_every_steps=512")
    folder = tmp_path / "run"
    run.wait_for(lambda: rows(folder) and rows(folder)[-1]["env_steps"] >= 2048)
    assert len(run.descendants()) >= 4  # two actors, the annotation service, the judge
    run.kill()
    assert run.leftovers() == []
    saved = checkpoints(folder)[-1]
    again = train(tmp_path, *RETRIEVAL, f"--train_for_env_steps={saved + 512}")
    output = again.finish()
    assert again.process.returncode == 0, output
    assert f"resumed at {saved:,}" in output
    assert summary(folder)["env_steps"] == saved + 512


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


def test_without_a_server_training_goes_on_and_says_so(tmp_path, unused_port):
    words = (*RETRIEVAL, f"--llm_server_addr=127.0.0.1:{unused_port}")
    run = train(tmp_path, *words, "--train_for_env_steps=4096")
    output = run.finish()
    assert run.process.returncode == 0, output
    assert "waiting for server" in output
    done = summary(tmp_path / "run")
    assert done["labels_held"] == 0 and done["rewarded_steps"] == 0 and done["env_steps"] == 4096


def refused(tmp_path: pathlib.Path, *words: str) -> str:
    """The one line with which a start is refused, beside the one that it starts."""
    run = train(tmp_path, *words)
    output = run.finish(90)
    assert run.process.returncode == 2, output
    assert run.leftovers() == []
    lines = [line for line in output.splitlines() if not line.startswith("starting: ")]
    assert len(lines) == 1 and lines[0].startswith("error: "), output
    return lines[0]


def test_a_server_that_is_required_and_missing(tmp_path, unused_port):
    line = refused(tmp_path, *RETRIEVAL, f"--llm_server_addr=127.0.0.1:{unused_port}", "--llm_required")
    assert str(unused_port) in line


def test_a_prompt_without_a_place_for_the_message(tmp_path):
    prompt = tmp_path / "prompt.json"
    prompt.write_text("{}")
    assert str(prompt) in refused(tmp_path, *RETRIEVAL, f"--prompt_file={prompt}")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "run").write_text("a file in the way")
    assert "--train_dir" in refused(tmp_path, "--llm_reward_type=none")


def test_damaged_and_foreign_checkpoints(tmp_path):
    run = train(tmp_path, "--llm_reward_type=none", "--train_for_env_steps=512")
    assert run.finish() and run.process.returncode == 0
    assert "hidden_size: 32 -> 16" in refused(tmp_path, "--llm_reward_type=none", "--hidden_size=16")
    config = tmp_path / "run" / "config.json"
    config.write_text(
        config.read_text()
        .replace('"hidden_size": 32', '"hidden_size": 16')
        .replace('"train_for_env_steps": 512', '"train_for_env_steps": 1024')
    )
    assert "checkpoints/512" in refused(
        tmp_path, "--llm_reward_type=none", "--hidden_size=16", "--train_for_env_steps=1024"
    )
    config.write_text(config.read_text().replace('"hidden_size": 16', '"hidden_size": 32'))
    for path in (tmp_path / "run" / "checkpoints" / "512" / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    assert "checkpoints/512" in refused(tmp_path, "--llm_reward_type=none", "--train_for_env_steps=1024")


def test_a_second_run_of_an_experiment_is_refused(tmp_path):
    run = train(tmp_path, "--llm_reward_type=none")
    run.wait_for(lambda: rows(tmp_path / "run"))
    assert "in use" in refused(tmp_path, "--llm_reward_type=none")
    run.process.send_signal(signal.SIGTERM)
    run.finish(30)
    assert run.process.returncode == 0
