"""CPU time of the live view and of the metrics' files, per drawing and per row, also as a fraction of a core.

    python -m benchmarks.view --json view.json

A run draws and writes every `log_every_sec` seconds; the fraction is for its default. The view draws on a
pseudo-terminal that is read at once; what its thread does between two drawings is a separate side, per second:
without an episode, and with one that is new at every look.
"""

import fcntl
import functools
import itertools
import os
import pathlib
import pty
import struct
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, TextIO

import jax
import numpy as np
from rich.console import Console

from benchmarks.harness import JSON, num_repeats, run_app, sized, spread, write_report
from oni_jax.envs.base import make_step_output
from oni_jax.envs.display import Terminal
from oni_jax.envs.registry import make_vector_env
from oni_jax.metrics.rows import Row, histogram
from oni_jax.metrics.sinks import build_sinks
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import CrafterConfig, EnvConfig
from oni_jax.show.live import live
from oni_jax.show.live.live import LiveView
from oni_jax.types import Answer

SIZES = ((80, 24), (140, 50))  # columns and rows
DEVICE_ENVS = ("Crafter-v1", "BabyAI-Text-PickUp-RedBall-S20")
OWN_MAPS = CrafterConfig(maps="exact")
BATCH_SIZE = 4096
Looks = Callable[[], Terminal | None]
ANSWERS = tuple(
    Answer((b"You kill the newt! It is the %dth today." % i,), ("not helpful", "helpful")[i % 2], "a reason " * 100)
    for i in range(10)
)


def sample_row(env_steps: int) -> dict[str, Any]:
    """Returns a row as of a run with a reward model on an accelerator."""
    waits = ("learner_waits", "inference_waits", "actors_wait", "games_paused")
    rates = ("env_steps", "acted_steps", "updates", "inference_calls", "labels", "llm_tokens", "llm_prompt_tokens")
    names = (
        "policy_lag_mean",
        "policy_lag_max",
        "labels_held",
        "labels_asked",
        "answers_unreadable",
        "requests_failed",
    )
    names += ("labels_backlog", "ring_slots_full", "ring_slots_free", "groups_paused", "reward/accuracy", "episodes")
    names += ("annotation/in_flight", "annotation/latency_secs_mean", "device_memory_bytes", "updates", "mean_return")
    names += ("loss/entropy", "loss/intrinsic_reward_mean", "reward/helpful_fraction")
    names += tuple(f"episode/{name}" for name in ("dlvl", "kills", "gold"))
    names += tuple(f"loss/{i}" for i in range(20))
    return {
        "env_steps": env_steps,
        "secs": env_steps / 1000,
        **{f"{name}_fraction": 0.37 for name in waits},
        **{f"{name}_per_sec": 1234.5 for name in rates},
        **dict.fromkeys(names, 12.5 + env_steps % 7),
        "server_state": "ok",
        "limited_by": "the environments: --num_workers 8",
        "answers": ANSWERS,
    }


@contextmanager
def terminal(columns: int, rows: int) -> Iterator[TextIO]:
    """Opens a pseudo-terminal whose other end is read by a thread."""
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read() -> None:
        try:
            while os.read(reading, 1 << 16):
                pass
        except OSError:  # closed on the other side
            pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    with open(writing, "w") as stream:
        yield stream
    thread.join()
    os.close(reading)


def one_of(looks: Sequence[Looks]) -> Looks:
    """Returns a function that gives the next of them each time, from the first one on again after the last."""
    left = itertools.cycle(looks)
    return lambda: next(left)()


def nethack_looks() -> list[Looks]:
    """Plays a game at random."""
    with closing(make_vector_env(EnvConfig(), 1, 0, 0)) as env:
        out, generator = make_step_output(env.spec, 1), np.random.default_rng(0)
        env.reset(out)
        found = []
        for step in range(1000):
            env.step(generator.integers(env.spec.num_actions, size=1).astype(np.int32), out)
            if step % 50 == 0:
                found.append(functools.partial(_copied, env.terminal()))
        return found


def _copied(terminal: Terminal | None) -> Terminal | None:
    return terminal and Terminal(*terminal)


def device_looks(root_env: str) -> list[Looks]:
    """Plays an environment on a device at random; drawing is part of looking."""
    make_env = Plan(Config(config := EnvConfig(root_env=root_env, crafter=OWN_MAPS))).environment.device
    assert make_env is not None
    env, key = make_env(config), jax.random.key(0)
    state, step, scene = jax.jit(env.reset)(key), jax.jit(env.step), jax.jit(env.scene)
    found = []
    for i in range(100):
        key = jax.random.fold_in(key, i)
        state = step(state, jax.random.randint(key, (), 0, env.spec.num_actions), key).state
        if i % 5 == 0:
            found.append(functools.partial(env.draw, jax.device_get(scene(state))))
    return found


def cpu_secs(act: Callable[[Row], None], num_rows: int) -> float:
    """Returns this thread's CPU time per row."""
    rows = [sample_row(i) for i in range(num_rows)]
    start = time.thread_time()
    for row in rows:
        act(row)
    return (time.thread_time() - start) / num_rows


@contextmanager
def live_view(columns: int, rows: int, looks: Looks = lambda: None) -> Iterator[tuple[LiveView, Callable[[], float]]]:
    """Opens a view that draws every row, with its thread's CPU time."""
    fraction, live.MAX_FRACTION = live.MAX_FRACTION, float("inf")
    try:
        with terminal(columns, rows) as stream:
            console = Console(file=stream, force_terminal=True, color_system="256")
            with closing(LiveView(RunConfig(train_for_env_steps=10**6), console, terminal=looks)) as view:
                clock = time.pthread_getcpuclockid(view._thread.ident or 0)
                yield view, lambda: time.clock_gettime(clock)
    finally:
        live.MAX_FRACTION = fraction


def drawing_secs(columns: int, rows: int, num_rows: int) -> float:
    """Measures drawing a page; where there is room, with an episode that stands still."""
    still = one_of(nethack_looks())()
    with live_view(columns, rows, lambda: still) as (view, cpu):

        def draw(number: int) -> None:
            for i in range(number):
                view.update(sample_row(i))
                while view._is_new:
                    time.sleep(0.001)

        draw(100)  # points of the curves
        start = cpu()
        draw(num_rows)
        return (cpu() - start) / num_rows


def waiting_secs(secs: float, looks: Looks = lambda: None) -> float:
    """Returns the CPU time a second of a view without a new row."""
    with live_view(140, 50, looks) as (view, cpu):
        for i in range(2):
            view.update(sample_row(i))
            time.sleep(1.0)
        start = cpu()
        time.sleep(secs)
        return (cpu() - start) / secs


def writing_secs(num_rows: int) -> float:
    """Measures writing a row to metrics.jsonl and TensorBoard's file, with histograms of a batch."""
    rewards = np.random.default_rng(0).normal(size=BATCH_SIZE).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder, closing(build_sinks(RunConfig(), pathlib.Path(folder))) as sinks:

        def write(row: Row) -> None:
            found = {"extrinsic_rewards": histogram(rewards), "intrinsic_rewards": histogram(rewards)}
            sinks.write(row["env_steps"], {**row, **found})

        cpu_secs(write, 3)
        return cpu_secs(write, num_rows)


def main() -> None:
    num_rows, period = sized(100, 5), RunConfig().log_every_sec
    sides: dict[str, tuple[Callable[[], float], float]] = {
        f"drawing at {columns} x {rows}": (functools.partial(drawing_secs, columns, rows, num_rows), period)
        for columns, rows in SIZES
    }
    sides["writing a row"] = functools.partial(writing_secs, num_rows), period
    quiet = sized(20.0, 1.0)
    sides["waiting for a second"] = functools.partial(waiting_secs, quiet), 1.0
    episodes = {"NetHack": nethack_looks, **{name: functools.partial(device_looks, name) for name in DEVICE_ENVS}}
    for name, play in episodes.items():
        sides[f"an episode of {name} for a second"] = functools.partial(waiting_secs, quiet, one_of(play())), 1.0
    figures = {}
    for name, (measure, secs_each) in sides.items():
        secs = [measure() for _ in range(num_repeats())]
        figures[name] = {
            "cpu_millis": spread([1000 * x for x in secs]),
            "core_percent": spread([100 * x / secs_each for x in secs]),
        }
    write_report(JSON.value, figures)


if __name__ == "__main__":
    run_app(main)
