"""The run loop: updates until a limit, with checkpoints, metrics and an orderly end."""

import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import jax
import numpy as np

from oni_jax.envs.random_play import beside_random_play
from oni_jax.envs.registry import step_limit
from oni_jax.host.held_folders import HeldFolder
from oni_jax.host.reporting import report
from oni_jax.host.run_files import CHECKPOINTS, DIED, FINISHED, SETTINGS, STOPPED, SUMMARY, UNSAVED, saved_steps
from oni_jax.host.runtime import Every, FolderGoneError, StopRequest, UnsavedError, code_commit, return_memory
from oni_jax.learner.bad_updates import BadUpdates, why_unfit
from oni_jax.learner.compilations import CompilationCounter
from oni_jax.learner.loop import Annotator, Learner, Scalars
from oni_jax.learner.peers.peers import Decision
from oni_jax.metrics.rows import Row, numbers, plain_row
from oni_jax.metrics.sinks import MultiSink, build_sinks, write_json
from oni_jax.metrics.statistics import RollingStats
from oni_jax.ops.episode_sums import INTRINSIC_RETURN
from oni_jax.runs.checkpointing import Checkpoints, Saved
from oni_jax.runs.experiment import write_settings
from oni_jax.runs.labels import asked, labels_by
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config, hparams
from oni_jax.settings.fields import UserError, printable
from oni_jax.settings.json_text import RUN_ID
from oni_jax.show.live.view import NullView, PlainView, build_view
from oni_jax.training.gauges import Gauges
from oni_jax.training.labels import LABEL_COUNTS, label_row, of_servers
from oni_jax.training.limits import find_limit
from oni_jax.worlds.base import World, WorldReport

COUNTS = ("episodes", "actor_restarts", "game_restarts", "bad_updates")  # counts of Progress
OnRow = Callable[[Mapping[str, Any]], object]


@dataclasses.dataclass
class Progress:
    """Counters of a run over all its starts; plain values, for the checkpoint."""

    env_steps: int = 0
    updates: int = 0
    rewarded_steps: int = 0
    policy_lag_sum: float = 0.0  # sum of the batches' mean lags
    train_secs: float = 0.0
    episodes: int = 0
    actor_restarts: int = 0
    game_restarts: int = 0
    bad_updates: int = 0  # number of skipped updates
    reward_sum: float = 0.0  # sum of the rewards that were learnt from
    steps_before_reward: int = 0  # see `learner.guidance`
    labels_of: str = ""  # Annotator.labels_of
    last_episodes: Sequence[Sequence[float]] = ()  # statistics of the episodes in the means
    last_intrinsic_returns: Sequence[Sequence[float]] = ()  # the same of episodes that were learnt from to their end
    last_of: Sequence[str] = ()  # task and names of both


class Training:
    """The run loop, with its progress and its clock. `train` is called once, on the main thread.

    Args:
        plan: plan of the run.
        folder: folder of the run.
        learner, world, annotator: parts of the run.
        checkpoints: checkpoints of the primary process; None in the others.
        progress: so far.
    """

    def __init__(
        self,
        plan: Plan,
        folder: str,
        learner: Learner,
        world: World,
        annotator: Annotator,
        checkpoints: Checkpoints | None,
        progress: Progress,
    ):
        self._on_row: OnRow = lambda row: None
        self._plan, self._config, self._folder = plan, plan.config, folder
        config = plan.config
        self._held = HeldFolder(folder) if checkpoints else None
        self.learner, self._world, self._annotator = learner, world, annotator
        self._checkpoints, self._peers, self.progress = checkpoints, learner.peers, progress
        self.run_id = checkpoints.run_id if checkpoints else ""  # the primary process's
        self._stats = RollingStats(world.spec.episode_stats, config.run.stats_avg, world.spec.achievements)
        self._last_of = [*_task(config), *world.spec.episode_stats, *learner.reward.paying]
        if list(progress.last_of) != self._last_of:  # other columns, or another task's
            progress.last_episodes = progress.last_intrinsic_returns = ()
        self._stats.add(np.array(progress.last_episodes))
        self._returns = RollingStats([f"{INTRINSIC_RETURN}{x}" for x in learner.reward.paying], config.run.stats_avg)
        self._returns.add(np.array(progress.last_intrinsic_returns))
        self._max_episode_steps = step_limit(config.env)
        self._gauges = Gauges(learner, world, annotator)
        self._unsaved = ""  # reason for skipping the last save
        self._notes: list[str] = []  # notes of the environments, to be printed
        self._metrics: Scalars = {}  # metrics of the last update
        self._bad_updates = BadUpdates(config.learner.max_bad_updates)
        self.compilations = CompilationCounter()
        self._secs_before, self._steps_before = progress.train_secs, progress.env_steps
        self._started = time.monotonic()
        learner.message_counts.restore(folder)

    def train(self, stop: StopRequest, on_row: OnRow = lambda row: None) -> None:
        """Trains until a limit of `config.run` or a stop request; saves at the end, unless interrupted twice.

        on_row: called with each row of metrics by the primary process; the last one when all is saved.
        """
        self._on_row = on_row
        of_all = f" in each of {self._peers.num} processes" if self._peers.num > 1 else ""
        where = f"{self._world.description}{of_all}, learning on {jax.default_backend()}"
        report(f"{where}; compiling the update, some 20 s at the first start, a minute for a GPU")
        run, is_primary = self._config.run, self._peers.is_primary
        # Before the clock: W&B takes long.
        about = {**hparams(self._config), "commit": code_commit()}
        sinks = build_sinks(run, self._folder, self.progress.env_steps, about) if is_primary else MultiSink([])
        at_rest = False  # after an error, acting may be in the middle of a step
        last_row: Row = {}
        view: PlainView = NullView()
        if is_primary:
            labelled_by = ", ".join(asked(self._plan).values())
            view = build_view(run, self._folder, labelled_by, terminal=self._world.terminal)
        with closing(self.compilations), closing(sinks), closing(view):
            self._world.start()
            self._started = time.monotonic()
            self._gauges.start(self.progress.env_steps, self.progress.updates)
            try:
                last_row = self._loop(stop, sinks, view)
                at_rest = True
                stop.awaits("" if stop.reason else "all is saved")
                if stop.reason or not self._limit_is_reached():
                    report(f"{stop.reason or 'another process asks for it'}: saving and leaving")
            except Exception:
                last_row = self._row_at_error()
                raise
            finally:
                self._world.stop()
                self._count_reports()
                self._count(self._world.report(), log=True)  # too late to be all-gathered
                self._returns.add(np.array(self.learner.running_returns.take()))
                if not isinstance(sys.exception(), KeyboardInterrupt):  # interrupted twice: don't wait
                    self._save(at_rest)
                    self._annotator.close()  # waits for answers in flight, which the summary counts
                if last_row:
                    last_row = {**last_row, **self._counts()}
                    self._show(last_row, sinks, view)
                unsaved = "" if isinstance(sys.exception(), KeyboardInterrupt) else self._why_unsaved(at_rest)
                if is_primary:
                    state = DIED if sys.exception() else UNSAVED if unsaved else self._state()
                    summary = {**self.summary(), "state": state}
                    write_json(os.path.join(self._folder, SUMMARY), {**summary, RUN_ID: self.run_id})
                    mean_return = self._stats.row().get("mean_return")
                    num_averaged = min(self._config.run.stats_avg, self.progress.episodes)
                    if line := beside_random_play(self._config.env, mean_return, num_averaged):
                        report(line)
                    if "labels_by" in summary:
                        held = f"{summary['labels_held']:,.0f} answers"
                        if self.learner.reward.asks_about_captions:
                            held += f", {1.0 - self.learner.unanswered_fraction():.1%} of steps"
                        if num := self._annotator.stats().get("events/without_logprobs"):
                            held += f", {num:,.0f} without log-probabilities: 0 or 1"
                        report(printable(f"labels by: {summary['labels_by']} ({held})"))
        self._check_kept(unsaved)
        if last_row:
            self._call_back(last_row)

    def _check_kept(self, unsaved: str) -> None:
        """Raises UnsavedError or FolderGoneError: the run's folder has moved or lacks files. `unsaved`: the reason."""
        lost = self._held.problem() if self._held else ""
        steps, saved = self.progress.env_steps, max(saved_steps(self._folder), default=0)
        if unsaved:
            hint = f"after {lost}" if lost else "make room, and start the same command again"
            raise UnsavedError(
                f"{self._folder}: the last save failed ({unsaved}), {steps - saved:,} of {steps:,} environment steps "
                f"are lost; {hint}"
            )
        if lost:
            raise FolderGoneError(f"{lost}: {self._folder} holds {saved:,} steps; go on with --resume {self._folder}")

    def _why_unsaved(self, at_rest: bool) -> str:
        """Waits for the last save. Returns the reason for its failure; empty: it succeeded."""
        if self._checkpoints is None:
            return self._unsaved
        problem = self._unsaved or self._checkpoints.finish()
        if self._held and not self._unsaved and self._held.save_in() != self._folder:  # lost meanwhile
            self._save(at_rest)
            problem = self._unsaved or self._checkpoints.finish()
        return problem

    def _state(self) -> str:
        return FINISHED if self._limit_is_reached() else STOPPED

    def leave(self, stop: StopRequest) -> None:
        """Ends a run, in one process, that was asked to stop while it started."""
        if not os.path.exists(path := os.path.join(self._folder, SUMMARY)):
            write_json(path, {**self.summary(), "state": STOPPED, RUN_ID: self.run_id})
        report(f"{stop.reason}: left before the first step; the same command starts it again")

    def _loop(self, stop: StopRequest, sinks: Any, view: Any) -> Row:
        """Returns the last row, which is not shown yet: what is in flight will still be counted."""
        run, progress = self._config.run, self.progress
        log_due, save_due = Every(run.log_every_sec), Every(run.save_every_sec)
        steps_saved = progress.env_steps
        row: Row = {}
        ended = self._steps_done() or (bool(stop.reason) and self._peers.num == 1)
        if ended and not stop.reason:
            report(f"{progress.env_steps:,} environment steps are done already; raise --train_for_env_steps")
        while not ended:
            new_metrics = self.learner.step()
            self._count_reports()
            if new_metrics is not None:
                self._metrics = new_metrics
                stop.awaits("the update is computed")
                self._count_update(new_metrics)
                self._bad_updates.check(new_metrics)
            progress.train_secs = self._secs_before + time.monotonic() - self._started
            save_asked, stop.save_due = stop.save_due, False
            decision = Decision(
                bool(stop.reason) or self._time_is_up(), save_asked or (self._peers.is_primary and save_due())
            )
            agreed = self._peers.agree(decision)
            ended = agreed.end or self._steps_done()
            if self._metrics and (log_due() or ended):
                row = self._row(self._metrics)
                if not ended:
                    self._show(row, sinks, view)
                    self._call_back(row)
            steps_due = run.save_every_steps and progress.env_steps - steps_saved >= run.save_every_steps
            if not ended and (steps_due or agreed.save):
                steps_saved = progress.env_steps
                self._save()
                return_memory()
        return row if ended else {}

    def _show(self, row: Row, sinks: Any, view: Any) -> None:
        while self._notes:
            report(self._notes.pop(0))
        sinks.write(self.progress.env_steps, row)
        unknown = dict.fromkeys((f"episode/{name}" for name in self._returns.names), math.nan)
        view.update({**unknown, **row, **self._early()})

    def _call_back(self, row: Row) -> None:
        if self._peers.is_primary:
            self._on_row(plain_row(row))

    def _early(self) -> Row:
        """Returns, as long as the environments have not played an episode of full length, that those ended were short.

        Then the mean over them says little: successes end early, and failures at the limit.
        """
        steps_each = (self.progress.env_steps - self._steps_before) / max(1, self._world.num_envs * self._peers.num)
        is_early = self._stats.longest() <= steps_each < self._max_episode_steps
        return {"short_episodes": steps_each} if is_early else {}

    def _count_reports(self) -> None:
        """Takes in the reports of all processes' worlds, and the intrinsic returns of their episodes."""
        self._returns.add(np.array(self.learner.intrinsic_returns))
        self.learner.intrinsic_returns.clear()
        while self.learner.reports:
            self._count(self.learner.reports.popleft(), self._peers.is_primary)

    def _count(self, news: WorldReport, log: bool) -> None:
        for failure in news.failures if log else ():
            report(f"warning: {failure}")
        self.progress.actor_restarts += len(news.failures)
        self.progress.game_restarts += news.num_restarts
        self.progress.episodes += len(news.episodes)
        self._stats.add(np.array(news.episodes))
        self._notes += news.notes

    def _steps_done(self) -> bool:
        return self.progress.env_steps >= self._config.run.train_for_env_steps

    def _time_is_up(self) -> bool:
        return self.progress.train_secs - self._secs_before >= self._config.run.train_for_seconds

    def _limit_is_reached(self) -> bool:
        return self._steps_done() or self._time_is_up()

    def _count_update(self, metrics: Scalars) -> None:
        progress = self.progress
        progress.env_steps += self._config.learner.batch_size
        progress.updates = self.learner.version
        guidance = self.learner.guidance
        progress.reward_sum, progress.steps_before_reward = guidance.reward_sum, guidance.steps_before
        if metrics["loss/bad_update"]:
            progress.bad_updates += 1
        else:
            progress.rewarded_steps += int(metrics["loss/num_rewarded_steps"])
            progress.policy_lag_sum += metrics["loss/policy_lag_mean"]

    def _save(self, at_rest: bool = True) -> None:
        if self._checkpoints is None:
            return
        self._unsaved = why_unfit(self.learner.state)
        if self._unsaved:
            report(f"warning: nothing is saved: {self._unsaved}; the checkpoints stay as they are")
            return
        try:
            self._follow_folder(self._checkpoints)
        except (OSError, UserError) as error:
            self._unsaved = str(error)
            report(f"warning: nothing is saved: {self._unsaved}")
            return
        progress = dataclasses.replace(
            self.progress,
            last_episodes=self._stats.save(),
            last_intrinsic_returns=self._returns.save(),
            last_of=self._last_of,
        )
        acting = self._world.save() if at_rest else {}
        acting = {**acting, **self.learner.running_returns.save()} if acting else {}
        saved = Saved(self.learner.state, self.learner.reward.save(), dataclasses.asdict(progress), acting)
        self.learner.message_counts.save(self._folder)
        self._checkpoints.save(self.progress.env_steps, saved)

    def _follow_folder(self, checkpoints: Checkpoints) -> None:
        """Follows a folder that was renamed, or makes one in place of a removed one: checkpoints need settings.

        Raises:
            OSError, UserError: none can be made.
        """
        assert self._held
        self._folder = self._held.save_in()
        checkpoints.follow(os.path.join(self._folder, CHECKPOINTS))
        if not os.path.exists(path := os.path.join(self._folder, SETTINGS)):
            report(f"{path} is missing: it is written")
            write_settings(self._config, self._folder, self.run_id)

    def _row(self, metrics: Scalars) -> Row:
        row = self._counted(metrics)
        gauges = self._gauges.read(row)
        limit = find_limit(numbers(gauges), self._plan)
        return {**row, **gauges, **({"limited_by": f"{limit.part}: {limit.advice}"} if limit else {})}

    def _row_at_error(self) -> Row:
        """Returns the row of the last update, without gauges where they fail: the run's error is raised."""
        if not self._metrics:
            return {}
        try:
            return self._row(self._metrics)
        except Exception:  # an error of a part that died
            return self._counted(self._metrics)

    def _counted(self, metrics: Scalars) -> Row:
        """Returns a row of the counters, without gauges."""
        progress, secs = self.progress, time.monotonic() - self._started
        return {
            "env_steps": progress.env_steps,
            "updates": progress.updates,
            "secs": secs,
            "env_steps_per_sec_overall": (progress.env_steps - self._steps_before) / secs,
            **self._counts(),
            "rewarded_steps": progress.rewarded_steps,
            "policy_lag_mean": metrics["loss/policy_lag_mean"],
            "policy_lag_max": metrics["loss/policy_lag_max"],
            "compilations": self.compilations.count,
            **metrics,
        }

    def _counts(self) -> Row:
        """Returns counts that come after the last update: ended episodes, and answers that were in flight."""
        counts = {name: getattr(self.progress, name) for name in COUNTS}
        labels = label_row(self._annotator.stats(), self.learner)
        return {**counts, **self._stats.row(), **self._returns.row(), **labels}

    def summary(self) -> Mapping[str, Any]:
        progress, stats, means = self.progress, self._annotator.stats(), self._stats.row()
        secs, made_by = max(1e-9, progress.train_secs - self._secs_before), labels_by(self._plan, self._folder)
        unanswered = self.learner.unanswered_fraction()
        return {
            "env_steps": progress.env_steps,
            "updates": progress.updates,
            "env_steps_per_sec": (progress.env_steps - self._steps_before) / secs,
            **{name: getattr(progress, name) for name in COUNTS},
            **{name: means.get(name) for name in ("mean_return", "mean_length")},
            **self._returns.row(),
            "rewarded_steps": progress.rewarded_steps,
            **{name: stats.get(name, 0) for name in LABEL_COUNTS},
            **of_servers(stats),
            **({"labels_by": made_by, "steps_unanswered_fraction": unanswered} if made_by else {}),
            "policy_lag_mean": progress.policy_lag_sum / max(1, progress.updates),
            "train_secs": progress.train_secs,
            "hparams": hparams(self._config),
            "commit": code_commit(),
        }


def _task(config: Config) -> list[str]:
    """Returns the task and the names that the episodes' statistics belong to."""
    return [config.env.root_env, config.env.crafter.task]
