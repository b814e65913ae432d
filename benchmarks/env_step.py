"""Environment steps a second on random actions: our steppers, the bare engine, NLE's environment, gymnasium's vectors.

    python -m benchmarks.env_step --processes 2 --games 1,16,128,256 --json env_step.json

Every measurement starts fresh processes, warms up until episodes begin at different times, and then times a fixed
number of steps, resets included; its rate is printed as soon as it is known. `ours` is our stepper in Python, `native`
the one in C, both on NLE's engine; `built` the one in C on the engine that `make engine` builds. The engine's sides
replay the calls of the engines under our stepper in the same games (see engine_replay), and nothing else. Beside each
rate: turns of game time per step, since a game that waits in a prompt is stepped quickly.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks import harness
from benchmarks.engine_replay import Recording, Replay, recorded
from benchmarks.peers import gymnasium_vector
from benchmarks.peers.nle_env import NleEnvs
from benchmarks.stepper import SEEDS, TASK, Stepper, Workload
from oni_jax.envs.nethack.engine.built import find_engine
from oni_jax.envs.nethack.native.stepper import why_not
from oni_jax.envs.nethack.native.vector_env import BUILT, WHEEL, NativeVectorEnv, why_not_built
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv

_PROCESSES = flags.DEFINE_integer("processes", 2, "Processes at the same time.", 1)
_GAMES = flags.DEFINE_list("games", None, "Games in each process. (default: 1,16,128,256; 4 with --smoke)")
_STEPS = flags.DEFINE_integer(
    "steps", None, "Steps of each of 128 games that are timed; of fewer, more. (default: 500; 50 with --smoke)", 1
)
_WARM_UP_STEPS = flags.DEFINE_integer("warm_up_steps", None, "Steps before. (default: 400; 20 with --smoke)", 1)
_SIDES = flags.DEFINE_list("sides", None, "Sides to measure. (default: all but those with code of their own)")
_PEERS = flags.DEFINE_bool("peers", True, "Also gymnasium's vector environments; not with --smoke.")
_PEER_GAMES = flags.DEFINE_integer("peer_games", 16, "Games of a gymnasium vector environment.", 1)

VIEWS = {"terminal": "", "map": "_map"}  # and the endings of their figures' names
MANY_GAMES, MAX_FACTOR = 128, 20  # fewer games are stepped longer, up to so many times
OWN_CODE = "own_code"


class Played(NamedTuple):
    """Record of a workload's games."""

    recording: Recording
    shown: bytes  # observations of our stepper at the end

    def turns(self) -> int:
        """Returns the turns of game time in the timed steps."""
        before, after = self.recording.marks
        return after.turns - before.turns


def record(workload: Workload, view: str) -> harness.Work:
    """Records a workload's games. Result: Played."""
    warm_up_actions, actions = workload.actions()
    with recorded() as (recording, mark):
        stepper = Stepper(workload, view, share_code=False)
        stepper.run(warm_up_actions)
        mark()
        yield
        stepper.run(actions)
        yield
        mark()
        shown = stepper.shown()
        stepper.close()
    return Played(recording, shown)


def step_ours(
    workload: Workload,
    played: Played,
    view: str,
    share_code: bool,
    make: type[NetHackVectorEnv] = NetHackVectorEnv,
    engine: str = WHEEL,
) -> harness.Work:
    """Steps our environment in the recorded games. Result, as of the other sides: turns."""
    warm_up_actions, actions = workload.actions()
    stepper = Stepper(workload, view, share_code, make, engine)
    stepper.run(warm_up_actions)
    yield
    stepper.run(actions)
    yield
    if stepper.shown() != played.shown:
        raise RuntimeError("the games are not those that were recorded")
    stepper.close()
    return played.turns()


def step_native(workload: Workload, played: Played, view: str, share_code: bool) -> harness.Work:
    return step_ours(workload, played, view, share_code, NativeVectorEnv)


def step_built(workload: Workload, played: Played, view: str, share_code: bool) -> harness.Work:
    return step_ours(workload, played, view, share_code, NativeVectorEnv, BUILT)


def step_engine_built(workload: Workload, played: Played, view: str, share_code: bool) -> harness.Work:
    return step_engine(workload, played, view, share_code, find_engine())


def step_engine(workload: Workload, played: Played, view: str, share_code: bool, library: str = "") -> harness.Work:
    del workload, view  # the recording has them
    replay = Replay(played.recording, share_code, library)
    before, after = played.recording.marks
    replay.run(0, before.num_calls)
    yield
    replay.run(before.num_calls, after.num_calls)
    yield
    if replay.digest() != after.digest:
        raise RuntimeError("the engines' games are not those that were recorded")
    replay.close()
    return played.turns()


def step_nle_env(workload: Workload, played: Played, view: str, share_code: bool) -> harness.Work:
    del view, share_code
    warm_up_actions, actions = workload.actions()
    names = played.recording.buffer_names
    envs = NleEnvs(TASK, workload.num_games, SEEDS, workload.first_index, names)
    envs.run(warm_up_actions)
    turns_before = envs.turns()
    yield
    envs.run(actions)
    yield
    turns = envs.turns() - turns_before
    envs.close()
    return turns


class Side(NamedTuple):
    """A side of the comparison."""

    body: harness.Body
    view: str
    share_code: bool


SIDES = {
    f"{name}{ending}": Side(body, view, share_code)
    for view, ending in VIEWS.items()
    for name, body, share_code in (
        ("ours", step_ours, True),
        ("native", step_native, True),
        ("built", step_built, True),
        ("engine", step_engine, True),
        ("engine_built", step_engine_built, True),
        ("nle_env", step_nle_env, False),
        ("ours_own_code", step_ours, False),
        ("engine_own_code", step_engine, False),
    )
}
RATIOS = {
    "ratio_built_to_native": ("built", "native"),
    "ratio_built_to_nle_env": ("built", "nle_env"),
    "ratio_built_to_engine_built": ("built", "engine_built"),
    "ratio_native_to_nle_env": ("native", "nle_env"),
    "ratio_native_to_ours": ("native", "ours"),
    "ratio_to_nle_env": ("ours", "nle_env"),
    "ratio_to_engine": ("ours", "engine"),
    "ratio_to_engine_own_code": ("ours_own_code", "engine_own_code"),
    "ratio_shared_to_own_code": ("ours", "ours_own_code"),
}


def chosen_sides() -> dict[str, Side]:
    """Returns the sides that --sides names, without those that can't be measured here.

    Raises:
        UsageError: there is no such side.
    """
    names = _SIDES.value or [name for name in SIDES if OWN_CODE not in name]
    if unknown := set(names) - set(SIDES):
        raise app.UsageError(f"--sides {','.join(sorted(unknown))}: there are {', '.join(SIDES)}")
    missing = {name for name in names if name.startswith("native") and why_not() or "built" in name and why_not_built()}
    return {name: SIDES[name] for name in names if name not in missing}


def measure(workloads: Sequence[Workload], repeats: int) -> dict[str, Any]:
    """Measures rates and ratios of the sides, with a process for each workload."""
    chosen = chosen_sides()
    num_steps = sum(workload.num_games * workload.num_steps for workload in workloads)
    played = {
        view: [timed.result for timed in harness.run_together(record, [(own, view) for own in workloads])]
        for view in {side.view for side in chosen.values()}
    }

    def measure_side(name: str, side: Side) -> tuple[float, float]:
        games = zip(workloads, played[side.view], strict=True)
        timed = harness.run_together(side.body, [(*own, side.view, side.share_code) for own in games])
        rate = harness.total_rate(timed, num_steps)
        print(f"{workloads[0].num_games} games: {name} {rate:,.0f} steps/s", flush=True)
        return rate, sum(own.result for own in timed) / num_steps

    sides = {name: functools.partial(measure_side, name, side) for name, side in chosen.items()}
    measured = harness.alternate(sides, repeats)
    rates = {name: [rate for rate, _ in own] for name, own in measured.items()}
    figures: dict[str, Any] = {}
    for ending in VIEWS.values():
        for name, (one, other) in RATIOS.items():
            if {one + ending, other + ending} <= rates.keys():
                figures[name + ending] = harness.ratio(rates[one + ending], rates[other + ending])
    figures["sides"] = {
        name: {"env_steps_per_sec": harness.spread(rates[name]), "turns_per_step": own[0][1]}
        for name, own in measured.items()
    }
    return figures


def main(argv: Sequence[str]) -> None:
    del argv
    sizes = [int(size) for size in _GAMES.value or harness.sized((1, 16, 128, 256), (4,))]
    num_steps = _STEPS.value or harness.sized(500, 50)
    num_warm_up_steps = _WARM_UP_STEPS.value or harness.sized(400, 20)
    for sides, reason in (("native", why_not()), ("built", why_not_built())):
        if reason:
            print(f"without the sides `{sides}`: {reason}")
    figures: dict[str, Any] = {}
    for num_games in sizes:
        steps = num_steps * min(MAX_FACTOR, MANY_GAMES // num_games) if num_games < MANY_GAMES else num_steps
        workloads = [Workload(i * num_games, num_games, num_warm_up_steps, steps) for i in range(_PROCESSES.value)]
        figures[f"{num_games}_games"] = measure(workloads, harness.num_repeats())
    if _PEERS.value and not harness.SMOKE.value:
        figures["peers"] = gymnasium_vector.measure(TASK, _PEER_GAMES.value, num_steps, harness.num_repeats())
    harness.write_report(harness.JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
