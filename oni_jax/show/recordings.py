"""Recordings of an evaluation's best, median and worst episodes: a video each, and a ttyrec of a terminal."""

import functools
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from oni_jax.envs.display import COLUMNS, ROWS
from oni_jax.envs.registry import display_of, env_spec
from oni_jax.envs.screen import DARK_GRAY, WHITE, Screen, Text, terminal_screen, text_screen
from oni_jax.evaluation.config import EvaluationConfig
from oni_jax.evaluation.intrinsic import Scorer, beside_states
from oni_jax.evaluation.players import Player
from oni_jax.evaluation.recording import Choice, Replay, chosen_episodes, replay
from oni_jax.evaluation.results import Evaluation
from oni_jax.host.reporting import report
from oni_jax.host.runtime import StopRequest
from oni_jax.settings.fields import UserError, caption_text
from oni_jax.settings.worlds import EnvConfig
from oni_jax.show.keys import action_text
from oni_jax.show.panel import EpisodeStatus, beside, goal_lines, heading, intrinsic_lines, status_lines
from oni_jax.show.picture import picture
from oni_jax.show.video import check_format, write_video

SUFFIX = ".ttyrec3.bz2"
MAX_PICTURES = 600
PICTURES_PER_SEC = 8.0


class Recorder:
    """Records episodes of evaluations, each player's after it has played.

    Args:
      config: settings of the evaluations.
      stop: checked between recordings.

    Raises:
      UserError: the format or the folder can't be written.
    """

    def __init__(self, config: EvaluationConfig, stop: StopRequest):
        self._config, self._stop = config, stop
        check_format(config.record_format)
        run = os.path.join(config.train_dir, config.experiment)
        if not config.recordings_dir and not os.path.isdir(run):
            raise UserError(f"--record {config.record}: there is no {run}; choose a folder with --recordings_dir")
        self._folder = config.recordings_dir or os.path.join(run, "recordings")
        try:
            os.makedirs(self._folder, exist_ok=True)
            tempfile.TemporaryFile(dir=self._folder).close()
        except OSError as error:
            raise self._unwritable(error) from None

    def __call__(self, player: Player) -> Callable[[Evaluation], list[str]]:
        """Returns `record`, as a function of the player's evaluation."""
        return functools.partial(self.record, player)

    def record(self, player: Player, evaluation: Evaluation) -> list[str]:
        """Records, prints what it wrote and returns the files.

        Args:
            player: whose episodes they are.
            evaluation: evaluation of the player.

        Raises:
            UserError: a file can't be written.
        """
        written: list[str] = []
        try:
            for choice in chosen_episodes(evaluation.episodes, self._config.record):
                if self._stop:
                    break
                written += self._record(player, evaluation, choice)
        except OSError as error:
            raise self._unwritable(error) from None
        return written

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(f"{self._folder}: can't be written ({error.strerror}); name another --recordings_dir")

    def _record(self, player: Player, evaluation: Evaluation, choice: Choice) -> list[str]:
        path = os.path.join(self._folder, file_stem(evaluation, choice))
        video = f"{path}.{self._config.record_format}"
        write_video(video, pictures(player, evaluation, choice, path + SUFFIX), PICTURES_PER_SEC)
        files = [*(name for name in [path + SUFFIX] if os.path.exists(name)), video]
        for name in files:
            report(f"--record: {name}")
        return files


def pictures(player: Player, evaluation: Evaluation, choice: Choice, ttyrec: str) -> Iterator[np.ndarray]:
    """Yields the pictures of an episode, which is replayed. `ttyrec`: file for a real terminal's output."""
    num_steps, scorer = len(choice.episode.actions), player.scoring.scorer
    seen = shown_steps(num_steps)
    found = replay(player.env, evaluation, choice.episode, ttyrec, set(seen), scorer, player.suggested)
    if found.mismatch:
        report(found.mismatch)
    notes = reward_notes(player)
    if len(seen) < num_steps + 1:
        notes.insert(0, f"{len(seen)} of {num_steps + 1:,} screens are shown; rewards are sums since the last one")
    if found.mismatch:
        notes.append(found.mismatch)
    yield from map(picture, _screens(evaluation, choice, found, action_names(player.env), scorer, seen, notes))


def file_stem(evaluation: Evaluation, choice: Choice) -> str:
    """Returns e.g. best1-experiment-Catch-v0-sample-1024-seed1-episode17; random has no experiment and steps."""
    steps = "" if evaluation.env_steps is None else str(evaluation.env_steps)
    of = [evaluation.experiment.replace("/", "_"), evaluation.root_env.replace("/", "_"), evaluation.policy, steps]
    goals = [value.replace(" ", "_").replace("/", "_") for value in evaluation.goals.values()]
    parts = [f"{choice.rank}{choice.position}", *of, *goals, f"seed{evaluation.seed}", f"episode{choice.episode.index}"]
    return "-".join(filter(None, parts))


def shown_steps(num_steps: int) -> list[int]:
    """Returns at most MAX_PICTURES of the indices 0 to num_steps, evenly spaced, with the first and the last."""
    stride = math.ceil(num_steps / (MAX_PICTURES - 1)) or 1
    return [*range(0, num_steps, stride), num_steps]


def reward_notes(player: Player) -> list[str]:
    """Returns which intrinsic rewards are not shown, and why."""
    scorer, not_reported = player.scoring
    if not player.experiment:
        return ["no intrinsic reward: the actions are random"]
    if not scorer and not not_reported:
        return ["no intrinsic reward: the run has only the environment's"]
    problems = dict.fromkeys(scorer.labels, scorer.problem) if scorer and scorer.problem else {}
    return [f"{label} is left out: {reason}" for label, reason in {**not_reported, **problems}.items()]


def _screens(
    evaluation: Evaluation,
    choice: Choice,
    found: Replay,
    names: Sequence[str],
    scorer: Scorer | None,
    seen: Sequence[int],
    notes: Sequence[str],
) -> Iterator[Screen]:
    episode = choice.episode
    title = heading(
        evaluation.player,
        [evaluation.root_env, f"{choice.rank} {choice.position}: episode {episode.index} of seed {evaluation.seed}"],
    )
    num_steps = len(found.rewards)
    given = beside_states(found.intrinsic, scorer.pays_before) if scorer else np.zeros((0, 0))
    before = -1  # step of the previous screen
    for step in seen:
        if step > num_steps:  # the replay ended early
            return
        acted = episode.actions[step - 1] if step else None
        progress = EpisodeStatus(
            step=step,
            num_steps=len(episode.actions),
            turn=found.turns[step] if found.turns else None,
            action="" if acted is None else names[acted],
            reward=float(found.rewards[max(0, before) : step].sum()),
            returned=float(found.rewards[:step].sum()),
            end=episode.end if step == len(episode.actions) else "",
        )
        intrinsic, goal = [], found.goals[step] if found.goals else ""
        if scorer and not scorer.problem:
            since, so_far = (given[:, start : step + 1].sum(axis=1) for start in (before + 1, 0))
            intrinsic = intrinsic_lines(scorer, since, so_far, goal)
        note_lines = [Text(note, DARK_GRAY) for note in notes]
        texts = [*title, *goal_lines(goal), *status_lines(progress), *intrinsic, Text(""), *note_lines]
        shown = terminal_screen(found.terminals[step]) if found.terminals else _caption_screen(found.captions[step])
        yield beside(shown, texts)
        before = step


def action_names(env: EnvConfig) -> list[str]:
    if display := display_of(env):
        return [action_text(key) for key in display.keys(env)]
    return [f"number {i}" for i in range(env_spec(env).num_actions)]


def _caption_screen(caption: bytes) -> Screen:
    lines = [Text(line, WHITE) for line in caption_text(caption).splitlines()]
    return text_screen(lines or [Text("no caption", DARK_GRAY)], ROWS, COLUMNS)
