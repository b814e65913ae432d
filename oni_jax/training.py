"""The run loop: updates until a limit, with checkpoints, metrics and an orderly end."""

import dataclasses
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import jax
import numpy as np

from oni_jax.actors.pool import num_workers
from oni_jax.buffers.exchange import TrajectoryExchange
from oni_jax.checkpointing import Checkpoints, Saved
from oni_jax.config import Config
from oni_jax.distributed.peers import Alone, Peers, Wishes
from oni_jax.distributed.sharing import Shared
from oni_jax.gauges import Gauges
from oni_jax.inference.server import InferenceServer
from oni_jax.learner.bad_updates import BadUpdates
from oni_jax.learner.compilations import CompilationCounter
from oni_jax.learner.loop import Annotator, Learner, Metrics
from oni_jax.learner.update import TrainState
from oni_jax.lockstep import Lockstep
from oni_jax.metrics import MultiSink, NullProgress, RollingStats, Row, build_progress, build_sinks, write_json
from oni_jax.rewards.base import Reward
from oni_jax.runtime import Every, StopRequest, Worker, return_memory

LABEL_COUNTS = ("labels_held", "labels_asked", "answers_unreadable", "requests_failed")


@dataclasses.dataclass
class Progress:
    """What a run has done so far, over all its starts. Plain values, for the checkpoint."""

    env_steps: int = 0
    updates: int = 0
    rewarded_steps: int = 0
    policy_lag_sum: float = 0.0  # of the batches' mean lags
    train_secs: float = 0.0
    episodes: int = 0
    actor_restarts: int = 0
    game_restarts: int = 0
    bad_updates: int = 0  # skipped
    labels_of: str = ""  # Annotator.labels_of
    last_episodes: Sequence[Sequence[float]] = ()  # statistics that the means are of


class Training:
    """Owns the progress and the clock; `train` is called once, on the main thread."""

    def __init__(
        self,
        config: Config,
        folder: str,
        learner: Learner,
        reward: Reward,
        annotator: Annotator,
        exchange: TrajectoryExchange,
        server: InferenceServer,
        checkpoints: Checkpoints | None,
        progress: Progress,
        lockstep: Lockstep | None,
        peers: Alone | Peers,
    ):
        self._config, self._folder = config, folder
        self._learner, self._reward, self._annotator = learner, reward, annotator
        self._exchange, self._server, self._checkpoints = exchange, server, checkpoints
        self._lockstep, self._peers = lockstep, peers
        self._told = annotator if isinstance(annotator, Shared) else exchange  # of episodes and failures
        self.progress = progress
        self._stats = RollingStats(exchange.ring.spec.episode_stats, config.run.stats_avg)
        self._stats.add(np.array(progress.last_episodes))
        self._gauges = Gauges(learner, server, exchange, annotator)
        self._busy_secs, self._busy_since = 0.0, time.perf_counter()
        self._notes: set[str] = set()  # told already
        self._bad_updates = BadUpdates(config.learner.max_bad_updates)
        self.compilations = CompilationCounter()
        self._secs_before, self._steps_before = progress.train_secs, progress.env_steps
        self._game_restarts_before = progress.game_restarts
        self._started = time.monotonic()
        learner.message_counts.restore(folder)

    def train(self, stop: StopRequest) -> None:
        """Trains until a limit of `config.run` or a request to stop; always saves what was learnt."""
        shape = self._exchange.ring.shape
        games = f"{shape.num_units * shape.num_envs_per_unit} games in {shape.num_units} groups"
        of_all = f" in each of {self._peers.num} processes" if self._peers.num > 1 else ""
        where = f"{games}{of_all}, learning on {jax.default_backend()}"
        print(f"{where}; compiling takes a while at the first start", flush=True)
        self._server.warm_up()
        acting = Worker("inference", self._server.run)
        run, leads = self._config.run, self._peers.leads
        # Before the clock: W&B takes long.
        sinks = build_sinks(run, self._folder, self.progress.env_steps) if leads else MultiSink([])
        self._started = time.monotonic()
        self._gauges.start(self.progress.env_steps, self.progress.updates)
        at_rest = False  # what fails may leave acting in the middle of a step
        view = build_progress(run) if leads else NullProgress()
        with closing(self.compilations), closing(sinks), closing(view):
            try:
                if not self._lockstep:
                    acting.start()
                self._loop(stop, acting, sinks, view)
                at_rest = True
                if stop or not (self._steps_done() or self._time_is_up()):
                    print(f"{stop.reason or 'another process asks for it'}: saving and leaving", flush=True)
            finally:
                self._server.stop()
                if acting.is_alive():
                    acting.join()
                self._count_failures()
                for failure in self._exchange.failures:  # that the other processes were not told of any more
                    print(f"warning: {failure}", flush=True)
                if not isinstance(sys.exception(), KeyboardInterrupt):  # who interrupts twice does not wait
                    self._save(at_rest)
                    self._annotator.close()  # takes in the answers under way, which the summary counts
                if leads:
                    write_json(os.path.join(self._folder, "summary.json"), self.summary())

    def _loop(self, stop: StopRequest, acting: Worker, sinks: Any, view: Any) -> None:
        run, progress = self._config.run, self.progress
        log_due, save_due = Every(run.log_every_sec), Every(run.save_every_sec)
        steps_saved = progress.env_steps
        metrics: Metrics | None = None
        ended = self._steps_done() or (bool(stop) and self._peers.num == 1)
        if ended and not stop:
            print(f"{progress.env_steps:,} environment steps are done already; raise --train_for_env_steps", flush=True)
        while not ended:
            acting.check()
            self._count_failures()
            new_metrics = self._learner.step()
            if new_metrics is not None:
                metrics = new_metrics
                self._count(metrics)
                self._bad_updates.check(metrics)
            progress.train_secs = self._secs_before + time.monotonic() - self._started
            save_asked, stop.save_due = stop.save_due, False
            wishes = Wishes(bool(stop) or self._time_is_up(), save_asked or (self._peers.leads and save_due()))
            agreed = self._peers.agree(wishes)
            ended = agreed.end or self._steps_done()
            if metrics and (log_due() or ended):
                self._print_notes()
                row = self._row(metrics)
                sinks.write(progress.env_steps, row)
                view.update(row)
            steps_due = run.save_every_steps and progress.env_steps - steps_saved >= run.save_every_steps
            if not ended and (steps_due or agreed.save):
                steps_saved = progress.env_steps
                self._save()
                return_memory()

    def _print_notes(self) -> None:
        """What the environments say of how they run, each text once."""
        for note in self._exchange.ring.notes():
            if note not in self._notes:
                self._notes.add(note)
                print(note, flush=True)

    def _count_failures(self) -> None:
        while self._told.failures:
            self.progress.actor_restarts += 1
            failure = self._told.failures.popleft()
            if self._peers.leads:
                print(f"warning: {failure}", flush=True)
        self.progress.game_restarts = self._game_restarts_before + self._told.num_game_restarts

    def _steps_done(self) -> bool:
        return self.progress.env_steps >= self._config.run.train_for_env_steps

    def _time_is_up(self) -> bool:
        return self.progress.train_secs - self._secs_before >= self._config.run.train_for_seconds

    def _count(self, metrics: Metrics) -> None:
        progress = self.progress
        progress.env_steps += self._config.learner.batch_size
        progress.updates = self._learner.version
        progress.bad_updates += int(metrics["loss/bad_update"])
        progress.rewarded_steps += int(metrics["loss/num_rewarded_steps"])
        progress.policy_lag_sum += metrics["loss/policy_lag_mean"]
        while self._told.episodes:
            self._stats.add(self._told.episodes.popleft())
            progress.episodes += 1

    def _save(self, at_rest: bool = True) -> None:
        if self._checkpoints is None:
            return
        if problem := _problem(self._learner.state):
            print(f"warning: nothing is saved: {problem}; the checkpoints stay as they are", flush=True)
            return
        progress = dataclasses.replace(self.progress, last_episodes=self._stats.save())
        acting = self._lockstep.save() if self._lockstep and at_rest else {}
        saved = Saved(self._learner.state, self._reward.save(), dataclasses.asdict(progress), acting)
        self._checkpoints.save(self.progress.env_steps, saved)
        self._learner.message_counts.save(self._folder)

    def _row(self, metrics: Metrics) -> Row:
        progress, now = self.progress, time.monotonic()
        secs = now - self._started
        row = {
            "env_steps": progress.env_steps,
            "updates": progress.updates,
            "secs": secs,
            "env_steps_per_sec_overall": (progress.env_steps - self._steps_before) / secs,
            "episodes": progress.episodes,
            "actor_restarts": progress.actor_restarts,
            "game_restarts": progress.game_restarts,
            "bad_updates": progress.bad_updates,
            **self._stats.row(),
            "rewarded_steps": progress.rewarded_steps,
            "policy_lag_mean": metrics["loss/policy_lag_mean"],
            "policy_lag_max": metrics["loss/policy_lag_max"],
            "learner_waits_share": self._learner.trajectory_wait.share(),
            "inference_waits_share": self._server.actor_wait.share(),
            "games_paused_share": self._server.learner_wait.share(),
            "actors_wait_share": self._actors_wait_share(),
            "compilations": self.compilations.count,
            "captions_seen": len(self._exchange.captions),
            **self._label_stats(),
            **metrics,
        }
        return {**row, **self._gauges.read(row)}

    def _label_stats(self) -> Row:
        stats = dict(self._annotator.stats())
        if not stats:
            return {}
        named = {"server_state": stats.pop("state"), "labels_backlog": stats.pop("backlog")}
        counts = {name: stats.pop(name) for name in LABEL_COUNTS}
        return {**named, **counts, **{f"annotation/{name}": value for name, value in stats.items()}}

    def _actors_wait_share(self) -> float:
        """1 - the time that actor processes spent stepping, as a share of all their time since the last call."""
        busy, now = float(np.sum(self._exchange.ring.busy_secs)), time.perf_counter()
        processes = num_workers(self._config.actors)
        share = (busy - self._busy_secs) / max(1e-9, (now - self._busy_since) * processes)
        self._busy_secs, self._busy_since = busy, now
        return max(0.0, 1.0 - share)

    def summary(self) -> Mapping[str, Any]:
        progress, stats = self.progress, self._annotator.stats()
        secs = max(1e-9, time.monotonic() - self._started)
        return {
            "env_steps": progress.env_steps,
            "updates": progress.updates,
            "env_steps_per_sec": (progress.env_steps - self._steps_before) / secs,
            "episodes": progress.episodes,
            "actor_restarts": progress.actor_restarts,
            "game_restarts": progress.game_restarts,
            "bad_updates": progress.bad_updates,
            "mean_return": self._stats.row().get("mean_return"),
            "mean_length": self._stats.row().get("mean_length"),
            "rewarded_steps": progress.rewarded_steps,
            **{name: stats.get(name, 0) for name in LABEL_COUNTS},
            "policy_lag_mean": progress.policy_lag_sum / max(1, progress.updates),
            "train_secs": progress.train_secs,
        }


def _problem(state: TrainState) -> str:
    """Why a training state must not be saved; empty when it can."""
    try:
        leaves = jax.device_get(jax.tree.leaves((state.params, state.opt_state)))
    except RuntimeError:
        return "the update that failed has taken the training state with it"
    return "" if all(np.isfinite(x).all() for x in leaves) else "parameters, or Adam's moments, are not finite"
