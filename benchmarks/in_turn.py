"""CPU time of an environment step: NLE's environment, our steppers in Python and in C, and on the engine that is built
here (`make engine`), in turn in one process.

    python -m benchmarks.in_turn --processes 2 --games 128 --view terminal

For machines whose speed changes within seconds, as of virtual ones: the sides take a few steps each, one after the
other, over and over, and what is compared is the CPU time of neighbours. `env_step` measures rates, one side after the
other. The same seeds and actions on every side, resets included; each of our sides also checks what it shows.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import harness
from benchmarks.peers.nle_env import NleEnvs
from benchmarks.stepper import SEEDS, TASK, Stepper, Workload
from oni_jax.envs.nethack.native.vector_env import BUILT, WHEEL, NativeVectorEnv, why_not_built
from oni_jax.envs.nethack.screens import VIEWS

_PROCESSES = flags.DEFINE_integer("processes", 2, "Processes at the same time.", 1)
_GAMES = flags.DEFINE_integer("games", None, "Games of each side in each. (default: 128; 4 with --smoke)", 1)
_STEPS = flags.DEFINE_integer("steps", None, "Steps of each game. (default: 400; 40 with --smoke)", 1)
_TURN_STEPS = flags.DEFINE_integer("turn_steps", 10, "Steps that a side takes in its turn.", 1)
_WARM_UP_STEPS = flags.DEFINE_integer("warm_up_steps", None, "Steps before. (default: 200; 10 with --smoke)", 1)
_VIEW = flags.DEFINE_enum("view", "terminal", list(VIEWS), "The view.")

SIDES = ("nle_env", "ours", "native", "built")  # the last where it is built
RATIOS = (("nle_env", "native"), ("ours", "native"), ("nle_env", "ours"), ("native", "built"), ("nle_env", "built"))
NUM_PARTS = 8  # of the steps, for the spread


def make_side(name: str, workload: Workload, view: str) -> NleEnvs | Stepper:
    if name == "nle_env":
        names = ("blstats", "message", "glyphs", VIEWS[view].chars, VIEWS[view].colors)
        return NleEnvs(TASK, workload.num_games, SEEDS, workload.first_index, names)
    if name == "ours":
        return Stepper(workload, view, share_code=True)
    return Stepper(workload, view, share_code=True, make=NativeVectorEnv, engine=BUILT if name == "built" else WHEEL)


def take_turns(workload: Workload, view: str, turn_steps: int, names: Sequence[str]) -> harness.Work:
    """Steps all sides, every second time from the last to the first. Result: CPU seconds [turns, sides]."""
    warm_up_actions, actions = workload.actions()
    sides = [make_side(name, workload, view) for name in names]
    for side in sides:
        side.run(warm_up_actions)
    yield
    secs = []
    for turn, start in enumerate(range(0, len(actions), turn_steps)):
        secs.append([0.0] * len(sides))
        for k in range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides))):
            before = time.process_time()
            sides[k].run(actions[start : start + turn_steps])
            secs[-1][k] = time.process_time() - before
        if len({side.shown() for side in sides if isinstance(side, Stepper)}) != 1:
            raise RuntimeError("the steppers' games differ")
    yield
    for side in sides:
        side.close()
    return secs


def main(argv: Sequence[str]) -> None:
    del argv
    num_games = _GAMES.value or harness.sized(128, 4)
    num_steps = _STEPS.value or harness.sized(400, 40)
    num_warm_up_steps = _WARM_UP_STEPS.value or harness.sized(200, 10)
    workloads = [Workload(i * num_games, num_games, num_warm_up_steps, num_steps) for i in range(_PROCESSES.value)]
    names = [name for name in SIDES if name != "built" or not why_not_built()]
    timed = harness.run_together(take_turns, [(own, _VIEW.value, _TURN_STEPS.value, names) for own in workloads])
    secs = np.sum([own.result for own in timed], axis=0)  # [turns, sides]
    parts = [part.sum(axis=0) for part in np.array_split(secs, min(NUM_PARTS, len(secs)))]
    part_steps = num_steps * num_games * _PROCESSES.value / len(parts)
    by_side = dict(zip(names, np.array(parts).T.tolist(), strict=True))
    each: dict[str, Any] = {
        f"{name}_cpu_us_per_step": harness.spread([1e6 * part / part_steps for part in own])
        for name, own in by_side.items()
    }
    ratios = {
        f"{one}_to_{other}": harness.ratio(by_side[one], by_side[other])
        for one, other in RATIOS
        if {one, other} <= by_side.keys()
    }
    totals = {f"{name}_cpu_secs": float(secs[:, k].sum()) for k, name in enumerate(names)}
    harness.write_report(harness.JSON.value, {**each, **ratios, **totals})


if __name__ == "__main__":
    app.run(main)
