"""Every world keeps the interface's promises. A new one is tested by a line of `made.WORLDS`."""

import dataclasses
import multiprocessing
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import NamedTuple, TypeVar

import jax
import numpy as np
import pytest

from oni_jax.envs.display import COLUMNS, ROWS, Terminal
from oni_jax.host.runtime import BackgroundThread
from oni_jax.learner.compilations import CompilationCounter
from oni_jax.metrics.names import METRICS
from oni_jax.parallel import Replicas
from oni_jax.settings.worlds import ActorConfig
from oni_jax.types import CaptionBatch, Trajectory
from oni_jax.worlds.base import Collected, World, WorldReport, with_finals
from tests.support.documented import undocumented
from tests.support.processes import equal_on_devices
from tests.worlds.made import WORLDS, Kind, Made, actors

Life = TypeVar("Life")
NUM_BEFORE, NUM_BATCHES = 2, 6  # batches before a world is saved, and all; see `made.SERIAL`
SECS = 30.0  # time for what takes a moment
TESTED = [name for name, kind in WORLDS.items() if kind.num_devices <= jax.device_count()]


def each(**broken: str) -> pytest.MarkDecorator:
    """Parametrises a test over all worlds. broken: why it fails, by the worlds' names."""
    marks = {name: pytest.mark.xfail(strict=True, reason=reason) for name, reason in broken.items()}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks.get(name, ())) for name in TESTED])


@contextmanager
def within(secs: float) -> Iterator[None]:
    """Raises TimeoutError in this thread after a time."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"not within {secs} s")

    start = time.monotonic()
    handler = signal.signal(signal.SIGALRM, give_up)
    left, _ = signal.setitimer(signal.ITIMER_REAL, secs)  # rest of an outer time
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left and max(1e-3, left - (time.monotonic() - start)))
        signal.signal(signal.SIGALRM, handler)


def once(life: Callable[[str], Life]) -> Callable[[str], Life]:
    """Makes what each world lives through for several tests; one that failed fails again, at once."""
    found: dict[str, Life] = {}
    failed: dict[str, Exception] = {}

    def of(name: str) -> Life:
        if name in failed:
            raise failed[name]
        if name not in found:
            try:
                found[name] = life(name)
            except Exception as error:
                failed[name] = error
                raise
        return found[name]

    return of


@pytest.fixture(autouse=True)
def _nothing_takes_forever():
    with within(4 * SECS):
        yield


@pytest.fixture(scope="module", autouse=True)
def _compiled_once():
    """Worlds of a kind compile the same programs, which are small."""
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, 0.0)
    yield
    jax.config.update(name, before)


@contextmanager
def running(name: str, kind: Kind | None = None) -> Iterator[Made]:
    """A started world."""
    made = (kind or WORLDS[name]).made()
    with closing(made.world):
        made.world.start()
        yield made


def play(world: World, number: int, version: int = 0) -> list[Collected]:
    """The next batches, an update on each of which begins."""
    found: list[Collected] = []
    with within(SECS):
        while len(found) < number:
            if (batch := world.next(version, 1.0)) is not None:
                world.begin_update()
                found.append(batch)
    return found


def play_all(world: World, actors: ActorConfig) -> None:
    """Plays until each environment has given a trajectory: an actor lost before its first reply is not replaced."""
    missing = {*range(actors.num_workers * actors.num_envs_per_worker)}
    with within(SECS):
        while missing:
            episodes = play(world, 1)[0].episodes
            assert episodes
            missing -= {*episodes.envs.tolist()}


def taken(world: World) -> Collected:
    """The next batch; no update on it has begun."""
    batch = world.next(0, SECS)
    assert batch
    return batch


def unpacked(world: World, batches: list[Collected], version: int = 0) -> list[Trajectory]:
    """Their trajectories, on the host."""
    unpack = jax.jit(world.unpack)
    return [jax.device_get(unpack(batch.payload, np.int32(version))) for batch in batches]


def ends(trajectory: Trajectory) -> np.ndarray:
    return trajectory.terminations | trajectory.truncations


def until(is_so: Callable[[], object]) -> None:
    with within(SECS):
        while not is_so():
            time.sleep(0.01)


@contextmanager
def looked_at(world: World) -> Iterator[list[Terminal | None]]:
    """A view's thread looks at the world all the time. Yields what it has seen so far."""
    seen: list[Terminal | None] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.001):
            if (terminal := world.terminal()) is None or not seen or terminal is not seen[-1]:
                seen.append(terminal)

    thread = BackgroundThread("view", look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join(SECS)
    assert not thread.is_alive()
    thread.check()


class Played(NamedTuple):
    """All that a world gave, from its start to its end."""

    kind: Kind
    made: Made  # closed
    batches: list[Collected]
    trajectories: list[Trajectory]
    reports: list[WorldReport]  # after each batch; the first before the start, the last but one after the stop
    gauges: list[Mapping[str, float]]  # the same; the last ones after the stop, and later
    seen: list[Terminal | None]  # terminals seen by a view, which looks all the time
    saved: Mapping[str, np.ndarray]  # after NUM_BEFORE batches
    copied: Mapping[str, np.ndarray]  # copies of `saved`, at once
    saved_at_end: list[Mapping[str, np.ndarray]]  # before the stop and after it


def suggest(kind: Kind, world: World, batch: Collected, number: int) -> None:
    """Suggests the kind's goals for the captions of a batch. number: of the batch; each has other worths."""
    seen = {*batch.captions.before.captions}
    world.suggest({caption: worths / (number + 1) for caption, worths in kind.goals.items() if caption in seen})


@once
def played(name: str) -> Played:
    kind = WORLDS[name]
    made = kind.made()
    world = made.world
    with closing(world):
        gauges, reports, batches = [world.gauges()], [world.report()], list[Collected]()
        saved, copied = dict[str, np.ndarray](), dict[str, np.ndarray]()
        world.start()
        with looked_at(world) as seen:
            for number in range(NUM_BATCHES):
                if number == NUM_BEFORE:
                    saved = world.save()
                    copied = {key: x.copy() for key, x in saved.items()}
                batches += play(world, 1)
                world.suggest({})
                suggest(kind, world, batches[-1], number)
                if not kind.goals:  # they are for others
                    world.suggest({caption: np.ones(4, np.float32) for caption in batches[-1].captions.before.captions})
                gauges.append(world.gauges())
                reports.append(world.report())
        saved_at_end = [world.save()]
        world.stop()
        gauges.append(world.gauges())
        time.sleep(0.3)
        gauges.append(world.gauges())
        if world.runs_ahead:  # complete batches are there still
            while (batch := world.next(0, 0.1)) is not None:
                batches.append(batch)
        reports += [world.report(), world.report()]
        saved_at_end.append(world.save())
    trajectories = unpacked(world, batches)
    return Played(kind, made, batches, trajectories, reports, gauges, seen, saved, copied, saved_at_end)


def chains(batches: list[Collected]) -> dict[int, list[tuple[int, int]]]:
    """Environment -> (index of the batch, column) of its trajectories, in order."""
    found = defaultdict(list)
    for i, batch in enumerate(batches):
        assert batch.episodes is not None
        for column, env in enumerate(batch.episodes.envs.tolist()):
            found[env].append((i, column))
    return found


def check_joins(
    batches: list[Collected], trajectories: list[Trajectory], gaps: list[np.ndarray] | None = None
) -> Iterator[bool]:
    """Checks that trajectories begin with their environments' last observations, but for gaps. Yields each join."""
    for chain in chains(batches).values():
        for (i, j), (k, m) in zip(chain, chain[1:]):
            if not (gaps and gaps[k][m]):
                before, later = trajectories[i], trajectories[k]
                assert before.is_first[-1, j] == later.is_first[0, m]
                for key, x in before.observations.items():
                    np.testing.assert_array_equal(x[-1, j], later.observations[key][0, m])
                yield True


@each()
def test_world_gives_trajectories_of_the_promised_shapes(name):
    result = played(name)
    spec, learner, policy = result.made.world.spec, result.kind.config.learner, result.made.task.policy
    steps, size = learner.rollout, learner.batch_size // learner.rollout
    assert spec is result.made.task.spec and result.made.world.description
    promised = {
        "is_first": (steps + 1, size, np.bool_),
        **dict.fromkeys(("before_counts", "caused_counts", "rewards"), (steps, size, np.float32)),
        **dict.fromkeys(("truncation_values", "values"), (steps, size, np.float32)),
        **dict.fromkeys(("terminations", "truncations"), (steps, size, np.bool_)),
        **dict.fromkeys(("actions", "policy_lags"), (steps, size, np.int32)),
        "behaviour_logits": (steps, size, spec.num_actions, np.float32),
    }
    others = {"observations", "final_observations", "initial_core_state", "policy_params"}
    assert {*promised, *others} == {*Trajectory._fields} and len(result.trajectories) >= NUM_BATCHES
    for trajectory in result.trajectories:
        for field, (*shape, dtype) in promised.items():
            array = getattr(trajectory, field)
            assert (array.shape, array.dtype) == (tuple(shape), dtype), field
            assert np.isfinite(array).all(), field
        assert set(trajectory.observations) == set(spec.observations)
        assert set(trajectory.final_observations) == set(spec.final_observations) != set()
        for length, found in ((steps + 1, trajectory.observations), (steps, trajectory.final_observations)):
            for key, array in found.items():
                assert array.shape == (length, size, *spec.observations[key].shape), key
                assert array.dtype == spec.observations[key].dtype, key
        shapes = [jax.tree.map(np.shape, x) for x in (trajectory.initial_core_state, policy.initial_state(size))]
        assert shapes[0] == shapes[1]
        assert ((trajectory.actions >= 0) & (trajectory.actions < spec.num_actions)).all()
        assert not (trajectory.terminations & trajectory.truncations).any()
        assert not trajectory.truncation_values[~trajectory.truncations].any()


@each()
def test_world_says_when_episodes_begin_and_end(name):
    result = played(name)
    for batch, trajectory in zip(result.batches, result.trajectories, strict=True):
        episodes = batch.episodes
        assert episodes is not None and episodes.envs.dtype == np.int32
        np.testing.assert_array_equal(episodes.is_first, trajectory.is_first[:-1])
        np.testing.assert_array_equal(episodes.ended, ends(trajectory))
        np.testing.assert_array_equal(trajectory.is_first[1:], ends(trajectory))
        assert episodes.after_gap.shape == episodes.envs.shape and not episodes.after_gap.any()
    assert sum(ends(trajectory).sum() for trajectory in result.trajectories) > 10


@each()
def test_world_gives_what_the_policy_said_in_trajectories_that_join(name):
    result = played(name)
    apply = jax.jit(result.made.task.policy.apply)
    after = []
    for trajectory in result.trajectories:
        steps = {key: x[:-1] for key, x in trajectory.observations.items()}
        arguments = steps, trajectory.initial_core_state, trajectory.is_first[:-1]
        output, state = jax.device_get(apply(result.made.state.params, *arguments))
        np.testing.assert_allclose(trajectory.behaviour_logits, output.logits, atol=1e-5)
        np.testing.assert_allclose(trajectory.values, output.values, atol=1e-5)
        after.append(state)
    for chain in chains(result.batches).values():
        first, column = chain[0]
        assert result.trajectories[first].is_first[0, column]
        for (i, j), (k, m) in zip(chain, chain[1:]):
            for x, y in zip(jax.tree.leaves(after[i]), jax.tree.leaves(result.trajectories[k].initial_core_state)):
                np.testing.assert_allclose(y[m], x[j], atol=1e-5)
    assert sum(check_joins(result.batches, result.trajectories)) > 1


def texts(captions: CaptionBatch) -> np.ndarray:
    """The caption of each step [T, B], after checks that the index is one of its texts, and that each is used."""
    assert captions.index.dtype == np.int32
    assert sorted({*captions.index.ravel().tolist()}) == [*range(len(captions.captions))]
    assert len({*captions.captions}) == len(captions.captions) and not any(b"\0" in text for text in captions.captions)
    return np.array(captions.captions, object)[captions.index]


@each()
def test_world_gives_captions_of_the_states_and_their_counts(name):
    result = played(name)
    said = []
    for batch, trajectory in zip(result.batches, result.trajectories, strict=True):
        before = {key: x[:-1] for key, x in trajectory.observations.items()}
        after = {key: x[1:] for key, x in trajectory.observations.items()}
        finals = trajectory.final_observations
        after |= {key: with_finals(after[key], x, ends(trajectory)) for key, x in finals.items()}
        for captions, states in zip(batch.captions, (before, after), strict=True):
            for key, x in states.items():
                np.testing.assert_array_equal(captions.observations[key], x)
        said.append([texts(captions) for captions in batch.captions])
        for found, states in zip(said[-1], (before, after), strict=True):
            for t, j in np.ndindex(found.shape):
                assert found[t, j] == result.kind.caption_of({key: x[t, j] for key, x in states.items()})
    for chain in chains(result.batches).values():
        counts: Counter[bytes] = Counter()
        for i, j in chain:
            trajectory, (texts_before, caused_texts) = result.trajectories[i], said[i]
            for t in range(len(texts_before)):
                if trajectory.is_first[t, j]:
                    counts = Counter([texts_before[t, j]])
                counts_before = counts[texts_before[t, j]]
                counts[caused_texts[t, j]] += 1
                found = trajectory.before_counts[t, j], trajectory.caused_counts[t, j]
                assert found == (counts_before, counts[caused_texts[t, j]])


@each()
def test_world_says_how_its_payload_is_sharded(name):
    result = played(name)
    replicas = Replicas(jax.devices()[: result.kind.num_devices])
    put = replicas.put(result.batches[0].payload, result.made.world.payload_sharding)
    jax.tree.map(
        np.testing.assert_array_equal,
        unpacked(result.made.world, [Collected(put, result.batches[0].captions)])[0],
        result.trajectories[0],
    )


@each()
def test_world_reports_each_episode_once(name):
    result = played(name)
    found = []
    for chain in chains(result.batches).values():
        total, length = 0.0, 0
        for i, j in chain:
            for reward, ended in zip(
                result.trajectories[i].rewards[:, j], ends(result.trajectories[i])[:, j], strict=True
            ):
                total, length = total + float(reward), length + 1
                if ended:
                    found.append((total, length))
                    total, length = 0.0, 0
    reported = [stats for report in result.reports for stats in report.episodes]
    names = result.made.world.spec.episode_stats
    assert all(stats.shape == (len(names),) and stats.dtype == np.float32 for stats in reported)
    columns = names.index("return"), names.index("length")
    assert sorted((float(stats[columns[0]]), int(stats[columns[1]])) for stats in reported) == sorted(found)
    assert len(found) > 10


def is_empty(report: WorldReport) -> bool:
    return not any(map(len, (report.episodes, report.failures, report.notes))) and report.num_restarts == 0


@each()
def test_world_reports_everything_once(name):
    kind, reports = played(name).kind, played(name).reports
    assert is_empty(reports[0]) and is_empty(reports[-1]) and not all(map(is_empty, reports))
    assert [note for report in reports for note in report.notes] == [*kind.notes]
    assert sum(report.num_restarts for report in reports) == kind.num_restarts
    assert not any(report.failures for report in reports)


@pytest.mark.parametrize("name", [name for name in TESTED if WORLDS[name].lose])
def test_world_reports_a_failure_once_and_raises_when_there_are_too_many(name):
    lose = WORLDS[name].lose
    assert lose
    with running(name) as (world, *_):
        play_all(world, WORLDS[name].config.actors)
        lose()
        failures: list[str] = []
        with within(SECS):
            while not failures:
                play(world, 1)
                failures += world.report().failures
        (failure,) = failures
        assert "\n" not in failure and "replaced" in failure
        play(world, 4)
        assert not world.report().failures
        lose()
        check_it_ends(world, WORLDS[name])


def check_it_ends(world: World, kind: Kind) -> None:
    with pytest.raises(kind.error, match=kind.words):
        play(world, 100)
    world.stop()
    world.report()


@each()
def test_world_raises_what_ends_it(name, monkeypatch):
    kind = WORLDS[name]
    none = dataclasses.replace(kind.config.actors, max_actor_restarts=0)
    break_it = kind.break_it(monkeypatch)
    with running(name, kind._replace(config=dataclasses.replace(kind.config, actors=none))) as (world, *_):
        break_it()
        check_it_ends(world, kind)


@each()
def test_world_names_its_gauges(name):
    result = played(name)
    names = {*result.gauges[0]}
    for gauges in result.gauges:
        assert {*gauges} == names
        assert all(type(value) in (int, float) and np.isfinite(value) for value in gauges.values()), gauges
        assert all(0 <= gauges[key] <= 1 for key in result.kind.idle)
    assert {key for key in names if key.endswith("_fraction")} == {*result.kind.idle}
    assert undocumented(key if key in METRICS else f"{key}_per_sec" for key in names) == []  # rows hold counts or rates


@each()
def test_world_counts_what_it_has_played(name):
    result = played(name)
    for key in {"acted_steps", "inference_calls", "captions_seen"} & {*result.gauges[0]}:
        values = [gauges[key] for gauges in result.gauges]
        assert values[0] == 0 < values[1] and values == sorted(values), key
    seen = {text for batch in result.batches for captions in batch.captions for text in captions.captions}
    assert result.gauges[-1]["captions_seen"] == len(seen)
    if "acted_steps" in result.gauges[0]:
        steps = len(result.batches) * result.kind.config.learner.batch_size
        acted = result.gauges[-1]["acted_steps"]
        assert acted >= steps if result.made.world.runs_ahead else acted == steps


@each()
def test_world_stops_and_can_still_be_saved(name):
    result = played(name)
    at_stop, later = result.gauges[-2:]
    assert {key: x for key, x in at_stop.items() if key not in result.kind.idle}.items() <= later.items()
    before, after = result.saved_at_end
    assert bool(before) == bool(result.kind.lacking) and {*before} == {*after}
    for key, x in before.items():
        np.testing.assert_array_equal(after[key], x, err_msg=key)


class Rested(NamedTuple):
    """Events of a world that rests while its first batch is pending, and then goes on with other parameters."""

    num_compiled: int  # programs, after the start
    counts: list[Mapping[str, float]]  # gauges that are no fractions: at rest, later, and after four more batches
    fractions: Mapping[str, float]  # gauges of the time at rest
    seen: list[Terminal | None]  # before the start, at rest, and then after each batch
    batches: list[Collected]
    trajectories: list[Trajectory]
    versions: list[int]  # the newest when a batch was taken
    later_lags: list[np.ndarray]  # lags of the batches if an update learns from them later
    left: list[tuple[set, set]]  # processes and threads before all this, and after it


def counts_of(world: World) -> dict[str, float]:
    return {key: value for key, value in world.gauges().items() if not key.endswith("_fraction")}


def come_to_rest(world: World) -> None:
    """Waits until nothing is played."""
    with within(SECS):
        before = None
        while before != (now := counts_of(world)):
            before = now
            time.sleep(0.3)


def looked_often(world: World) -> Terminal | None:
    """Returns what a thread sees in the end that looks while nothing is played: it waits for nothing."""
    seen: list[Terminal | None] = []

    def look() -> None:
        for _ in range(200):
            seen.append(world.terminal())
            time.sleep(0.001)

    thread = BackgroundThread("view", look)
    thread.start()
    thread.join(SECS)
    assert not thread.is_alive()
    thread.check()
    assert seen[-1] is seen[-2] is seen[len(seen) // 2]  # nothing has come meanwhile
    return seen[-1]


def left_behind() -> tuple[set, set]:
    return {*multiprocessing.active_children()}, {*threading.enumerate()}


@once
def rested(name: str) -> Rested:
    played(name)  # an environment of the host's may compile at its first step
    kind, left = WORLDS[name], [left_behind()]
    world, _, state = kind.made()
    with closing(world), closing(CompilationCounter()) as counter:
        seen = [world.terminal()]
        world.start()
        num_before = counter.count
        batches = [taken(world)]
        num_compiled = counter.count - num_before
        come_to_rest(world)
        world.gauges()
        time.sleep(0.6)
        gauges = world.gauges()
        seen.append(looked_often(world))
        at_rest = {key: x for key, x in gauges.items() if key not in kind.idle}
        counts: list[Mapping[str, float]] = [at_rest, counts_of(world)]
        world.begin_update()
        for _ in range(4):
            batches += play(world, 1)
            seen.append(world.terminal())
        counts.append(counts_of(world))
        trajectories, later = unpacked(world, batches), unpacked(world, batches, 1)
        if kind.has_queue:  # a trajectory waits, which will be too old
            until(lambda: world.gauges()["ring_slots_full"])
        newest, num_fresh = kind.config.learner.max_policy_lag, 0
        versions = [0] * len(batches)
        world.publish(newest, jax.tree.map(lambda x: 0 * x, state.params))
        with within(SECS):
            while num_fresh < 3:  # three consecutive ones
                batches += play(world, 1, newest)
                versions.append(newest)
                trajectories += unpacked(world, batches[-1:], newest)
                later += unpacked(world, batches[-1:], newest + 1)
                num_fresh = 0 if trajectories[-1].policy_lags.any() else num_fresh + 1
    lags = [trajectory.policy_lags for trajectory in later]
    left.append(left_behind())
    return Rested(num_compiled, counts, gauges, seen, batches, trajectories, versions, lags, left)


@each()
def test_world_gauges_are_of_the_time_since_the_last_call(name):
    """Though it has played before."""
    for key, (least, most) in WORLDS[name].idle.items():
        assert least <= rested(name).fractions[key] <= most, key


@each()
def test_world_counts_a_batch_as_pending_until_its_update_begins(name):
    at_rest, later, in_the_end = rested(name).counts
    assert at_rest == later
    assert in_the_end.get("acted_steps", 1) > later.get("acted_steps", 0)


@each(lockstep="LockstepWorld.next never returns while what is pending keeps acting from going on")
def test_world_answers_in_time_whatever_is_pending(name):
    with running(name) as (world, *_):
        batch = None
        for _ in range(10):
            with within(5.0):
                batch = world.next(0, 0.3)
            if batch is None:
                break
        assert (batch is None) == WORLDS[name].has_queue


@each()
def test_world_acts_with_the_published_parameters(name):
    """With parameters of zeros all logits and values are 0."""
    result = rested(name)
    for trajectory, newest in zip(result.trajectories, result.versions, strict=True):
        version = newest - trajectory.policy_lags
        assert {*version.ravel().tolist()} <= {0, result.versions[-1]}
        np.testing.assert_array_equal((trajectory.behaviour_logits == 0).all(-1), version > 0)
        np.testing.assert_array_equal(trajectory.values == 0, version > 0)
    assert result.trajectories[0].values.any() and not result.trajectories[-1].values.any()
    if WORLDS[name].world.runs_ahead:  # batches of the others are learnt from at once
        for trajectory, later in zip(result.trajectories, result.later_lags, strict=True):
            np.testing.assert_array_equal(later, trajectory.policy_lags + 1)


@each()
def test_world_says_where_trajectories_were_dropped(name):
    result = rested(name)
    gaps = [batch.episodes.after_gap for batch in result.batches if batch.episodes]
    assert np.concatenate(gaps).any() == WORLDS[name].has_queue
    assert sum(check_joins(result.batches, result.trajectories, gaps)) > 1


@each()
def test_world_shows_an_environment_and_never_waits_for_it(name):
    seen = rested(name).seen
    assert seen[0] is None
    found = [terminal for terminal in (*seen, *played(name).seen) if terminal is not None]
    for terminal in found:
        assert terminal.chars.shape == terminal.colors.shape == (ROWS, COLUMNS)
        assert chr(terminal.chars[0, 0]) in "01234567" and (terminal.chars[1:] == ord(" ")).all()  # a signal
    assert len({*map(id, found)}) > 2 if WORLDS[name].has_looks else not found


@each()
def test_world_leaves_nothing_running(name):
    (children, threads), (children_after, threads_after) = rested(name).left
    assert children_after <= children and threads_after <= threads


@each(
    actors="ActorWorld.start does not compile the program that gathers the initial core states",
    actors_2="ActorWorld.start does not compile the program that gathers the initial core states",
    lockstep="LockstepWorld.start does not compile the program that gathers the initial core states",
)
def test_world_compiles_nothing_after_its_start(name):
    assert rested(name).num_compiled == 0


@each()
def test_world_goes_on_where_it_was_saved(name):
    """The one that was saved is looked at, and is given suggestions where no goals are: neither changes anything."""
    result = played(name)
    if not result.kind.lacking:
        assert result.saved == {}
        return
    run = dataclasses.replace(result.kind.config.run, seed=7)  # nothing restored: other episodes, other actions
    world = result.kind.made(dataclasses.replace(result.kind.config, run=run)).world
    with closing(world):
        assert world.restore(result.copied)
        world.start()
        batches: list[Collected] = []
        for number in range(NUM_BEFORE, NUM_BATCHES):
            batches += play(world, 1)
            suggest(result.kind, world, batches[-1], number)
        episodes = [stats.tolist() for stats in world.report().episodes]
    for batch, other in zip(batches, result.batches[NUM_BEFORE:], strict=True):
        for captions, others in zip(batch.captions, other.captions, strict=True):
            np.testing.assert_array_equal(texts(captions), texts(others))
        assert batch.episodes is not None and other.episodes is not None
        for x, y in zip(batch.episodes, other.episodes, strict=True):
            np.testing.assert_array_equal(x, y)
    for trajectory, other in zip(unpacked(world, batches), result.trajectories[NUM_BEFORE:], strict=True):
        jax.tree.map(np.testing.assert_array_equal, valid(trajectory), valid(other))
    before = [stats.tolist() for report in result.reports[NUM_BEFORE + 1 :] for stats in report.episodes]
    assert episodes == before != []


def valid(trajectory: Trajectory) -> Trajectory:
    """The trajectory with zeros in final observations where no episode ended."""
    finals = {
        key: with_finals(np.zeros_like(x), x, ends(trajectory)) for key, x in trajectory.final_observations.items()
    }
    return trajectory._replace(final_observations=finals)


@each()
def test_world_saves_copies(name):
    result = played(name)
    assert [key for key, x in result.saved.items() if not np.array_equal(x, result.copied[key])] == []


@each()
def test_world_refuses_what_it_cannot_restore_and_begins_anew(name):
    kind, saved = WORLDS[name], played(name).copied
    rollout, size = 2 * kind.config.learner.rollout, 2 * kind.config.learner.batch_size
    learner = dataclasses.replace(kind.config.learner, rollout=rollout, recurrence=rollout, batch_size=size)
    with closing(kind.made(dataclasses.replace(kind.config, learner=learner)).world) as other:
        assert not other.restore(saved)
    others = [played(other).copied for other in TESTED if other != name]
    less = {key: x for key, x in saved.items() if key != kind.lacking}
    assert len(less) == len(saved) - bool(kind.lacking)
    world = kind.made().world
    with closing(world):
        assert world.save() == {}  # nothing has been played
        for foreign in ({}, {"unknown": np.zeros(3)}, less, *others):
            assert not world.restore(foreign)
        world.start()
        (trajectory,) = unpacked(world, play(world, 1))
    assert trajectory.is_first[0].all()
    if not world.runs_ahead:
        jax.tree.map(np.testing.assert_array_equal, valid(trajectory), valid(played(name).trajectories[0]))


@each()
def test_world_can_be_closed_before_its_start(name):
    children, threads = left_behind()
    world = WORLDS[name].made().world
    assert bool(actors()) == bool(WORLDS[name].lose)
    world.close()
    children_after, threads_after = left_behind()
    assert children_after <= children and threads_after <= threads


@each()
def test_world_can_be_closed_twice(name):
    world = WORLDS[name].made().world
    world.close()
    world.close()


@pytest.mark.slow
def test_world_keeps_its_promises_on_several_devices():
    words = ["-k", "device_2", "-p", "no:cacheprovider", __file__]
    equal_on_devices(2, "-c", f"import pytest; assert pytest.main({words}) == 0; print('equal')")
