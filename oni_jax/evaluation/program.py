"""The evaluation program: plays, reports, and writes files."""

import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from oni_jax.envs.registry import make_vector_env
from oni_jax.evaluation.config import GOALS, RANDOM, EvaluationConfig
from oni_jax.evaluation.episodes import evaluation_seed
from oni_jax.evaluation.files import as_csv, as_json
from oni_jax.evaluation.intrinsic import EpisodeReturns
from oni_jax.evaluation.players import Player, chosen_players, evaluated_task, players_by_goal, with_scoring
from oni_jax.evaluation.playing import ActorsLostError, play_episodes
from oni_jax.evaluation.report import by_goal_lines, difference_lines, lines
from oni_jax.evaluation.results import Evaluation
from oni_jax.evaluation.step_rewards import StepScorer
from oni_jax.host.files import write_output
from oni_jax.host.reporting import report
from oni_jax.host.runtime import StopRequest
from oni_jax.runs.run import Run
from oni_jax.settings.worlds import ActorConfig
from oni_jax.worlds.actors.pool import num_workers

MakeRecord = Callable[[Player], Callable[[Evaluation], object]]
"""Makes, before anyone plays, the function that later records a player's evaluation."""


def evaluate(
    config: EvaluationConfig,
    stop: StopRequest,
    make_record: MakeRecord | None = None,
) -> int:
    """Evaluates; prints and writes the results.

    Args:
        config: the players and episodes.
        stop: checked between steps.
        make_record: used for all players but the one that they are compared with.

    Returns:
        The exit code: 0; 1 when an actor process was lost, with its error on stderr; 130 when interrupted.

    Raises:
        UserError: there is no such run, checkpoint or task, or a file can't be written.
    """
    task = evaluated_task(config)
    # Loads all players before hours of play: missing files are reported now, and training deletes checkpoints.
    experiment = None if config.policy == RANDOM else config.experiment
    compare = None if config.compare == RANDOM else config.compare
    if config.by_goal:
        chosen = players_by_goal(config, task)
    else:
        chosen = chosen_players(config, task, experiment, config.checkpoint)
    players = [with_scoring(player) for player in chosen]
    compared = chosen_players(config, task, compare, config.compare_checkpoint) if config.compare else []
    others = [with_scoring(player) for player in compared]
    records = [make_record(player) for player in players] if make_record else []
    played = list(_evaluations(config, [*players, *others], stop))
    lost = not stop and any(evaluation.interrupted for evaluation in played)
    evaluations = [evaluation for evaluation in played[: len(players)] if evaluation.episodes]
    other = next((evaluation for evaluation in played[len(players) :] if evaluation.episodes), None)
    if evaluations:
        _report(config, evaluations, other, others)
    elif not lost:
        report("no episode has ended: nothing to report")
    for record, evaluation in zip(records, evaluations):
        if not (lost or stop):
            record(evaluation)
    if stop:
        report(f"{stop.reason}: interrupted")
    return 130 if stop else int(lost)


def _evaluations(config: EvaluationConfig, players: Iterable[Player], stop: StopRequest) -> Iterator[Evaluation]:
    """Plays and prints one evaluation after another, until one is interrupted."""
    for player in players:
        if stop:
            return
        evaluation = play(config, player, stop)
        if player.experiment:
            run = Run(os.path.join(config.train_dir, player.experiment))
            evaluation = evaluation._replace(labels_by=run.labels_by())
        if evaluation.episodes:
            _print(lines(evaluation, _width()))
        yield evaluation
        if evaluation.interrupted:
            return


def _report(
    config: EvaluationConfig, evaluations: Sequence[Evaluation], other: Evaluation | None, others: Sequence[Player]
) -> None:
    """Prints the differences, and writes the files."""
    if config.by_goal:
        _print(by_goal_lines(evaluations, _width()))
    if other:
        for evaluation in evaluations:
            _print(difference_lines(evaluation, other, _width()))
    elif others:
        report(f"{others[0].name} has finished no episode, so there is nothing to compare")
    _write("json", config.json, lambda: as_json(evaluations, other))
    _write("csv", config.csv, lambda: as_csv([*evaluations, *([other] if other else [])]))


def play(config: EvaluationConfig, player: Player, stop: StopRequest | None = None) -> Evaluation:
    """Plays a player's evaluation, which may have no episodes if it was interrupted."""
    seed, env = config.seed, player.env
    scorer, not_reported = player.scoring
    if isinstance(scorer, StepScorer) and config.by_goal:
        scorer = scorer.under_all_goals()
    spec, returns = (scorer.spec, EpisodeReturns(scorer)) if scorer else (player.spec, None)
    on_step = returns.add if returns else lambda step: None
    make_env = functools.partial(
        make_vector_env,
        env,
        seed=evaluation_seed(seed),
        observations=tuple(spec.observations),
        suggested=player.suggested,
    )
    workers = num_workers(ActorConfig(num_workers=config.num_workers))
    try:
        episodes = play_episodes(
            make_env, spec, player.agent, config.episodes, env.max_episode_steps, workers, stop, on_step
        )
        interrupted = stop.reason if stop else ""
    except ActorsLostError as error:
        report(f"error: {error}", to_stderr=True)
        episodes, interrupted = error.episodes, "an actor process was lost"
    if returns:
        found = returns.finish()
        episodes = [episode._replace(intrinsic_returns=found.get(episode.index, {})) for episode in episodes]
        not_reported = {**not_reported, **returns.not_reported}
    return Evaluation(
        player=player.name,
        experiment=player.experiment,
        env_steps=player.env_steps,
        policy=player.policy,
        root_env=env.root_env,
        goals={**{name: value for name in GOALS if (value := getattr(config, name))}, **_goal(player)},
        max_episode_steps=env.max_episode_steps,
        seed=seed,
        num_episodes=config.episodes,
        episodes=episodes,
        interrupted=interrupted,
        achievements=spec.achievements,
        not_reported=not_reported,
    )


def _goal(player: Player) -> Mapping[str, str]:
    return {"goal": player.goal} if player.goal else {}


def _write(flag: str, path: str, make_text: Callable[[], str]) -> None:
    if path:
        write_output(flag, path, make_text().encode())
        report(f"--{flag}: {path}")


def _width() -> int:
    # Lines to a pipe or a file are never wrapped.
    return max(20, shutil.get_terminal_size().columns) if sys.stdout.isatty() else sys.maxsize


def _print(text: list[str]) -> None:
    report("\n".join([*text, ""]))
