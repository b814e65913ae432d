"""Playing a task in the terminal: a person, a run's policy or a random one chooses the actions."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.base import record_dtype
from oni_jax.envs.display import COLUMNS, ROWS, Display
from oni_jax.envs.episode_goals import fixed_goal, goal_names
from oni_jax.envs.goals import Suggested
from oni_jax.envs.registry import display_of, env_spec
from oni_jax.envs.screen import (
    DARK_GRAY,
    GRAY,
    GREEN,
    SPACE,
    WHITE,
    YELLOW,
    Screen,
    Text,
    ansi_rows,
    cropped,
    joined,
    num_lines,
    terminal_screen,
    text_screen,
)
from oni_jax.evaluation.config import GREEDY, LATEST, RANDOM, EvaluationConfig
from oni_jax.evaluation.episodes import GROUP_SIZE, chosen_task
from oni_jax.evaluation.intrinsic import Scorer
from oni_jax.evaluation.recording import watched_episode
from oni_jax.host.reporting import report
from oni_jax.host.runtime import StopRequest
from oni_jax.rewards.registry import observations_read
from oni_jax.runs.plan import Plan
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.show import panel
from oni_jax.show.config import HUMAN, PlayConfig
from oni_jax.show.keys import key_help, key_text
from oni_jax.show.labels import Labels, labels_of, run_labels
from oni_jax.show.session import LabelScorer, Session
from oni_jax.show.shell import Shell
from oni_jax.types import EPISODE_GOAL, EnvSpec

WIDE = COLUMNS + panel.GAP + panel.COLUMNS  # columns needed for all text beside the screen
TEXT_ROWS, HELP_ROWS = 9, 3  # or rows below it; a smaller terminal shows the text instead of the screen
ROWS_BELOW = TEXT_ROWS + HELP_ROWS
QUIT_KEY, PANEL_KEY, GOAL_KEY = ord("X") & 0x1F, ord("\t"), ord("G") & 0x1F
PANEL_HELP, KEYS_HELP = "Tab: panel", "Tab: keys"
HUMAN_HELP = "^X quits"
MACHINE_HELP = "space pause, . step, + - speed, q quit"
GOAL_HELP = "^G next goal, "
SPEEDS = tuple(2.0**i for i in range(-1, 8))  # a second
LONGEST_WAIT_SECS = 0.1  # longest interval of checks for a stop request

Choose = Callable[[Session], int]  # the next action


@dataclasses.dataclass(frozen=True)
class Pace:
    """Speed of automatic play."""

    per_sec: float
    paused: bool = False
    quit: bool = False
    panel: bool = False  # a small terminal shows the panel instead of the game

    def pressed(self, key: int) -> "Pace":
        """Returns the pace after a key is pressed."""
        match chr(key):
            case " ":
                return dataclasses.replace(self, paused=not self.paused)
            case "\t":
                return dataclasses.replace(self, panel=not self.panel)
            case "+" | "=":  # the same key on many keyboards
                faster = min((speed for speed in SPEEDS if speed > self.per_sec), default=self.per_sec)
                return dataclasses.replace(self, per_sec=faster)
            case "-":
                slower = max((speed for speed in SPEEDS if speed < self.per_sec), default=self.per_sec)
                return dataclasses.replace(self, per_sec=slower)
            case "q":
                return dataclasses.replace(self, quit=True)
        return self


class Table(NamedTuple):
    """Everything that is fixed before the first step."""

    who: str
    episode: str
    env: EnvConfig
    display: Display
    choose: Choose | None  # None: a person chooses
    labels: Mapping[str, Labels]
    scorer: Scorer
    suggested: Suggested | None  # goals by the run's LLM
    not_shown: Mapping[str, str]  # labels of rewards, and why


def play(config: PlayConfig, shell: Callable[[], Shell], stop: StopRequest) -> Session:
    """Plays an episode until it is left, or `stop`.

    Raises:
        UserError: there is no such run, checkpoint or task, or no room for a game's files.
    """
    table = set_up(config)
    env = table.env
    names = tuple(table.scorer.spec.observations)
    if Plan(dataclasses.replace(Config(), env=env)).environment.device:
        report("the environment compiles")
    game = watched_episode(env, table.suggested, config.seed, config.episode, names)
    assert game
    keys, goals = tuple(table.display.keys(env)), goal_names(env.episode_goal)
    goals = goals if EPISODE_GOAL in names else ()
    with contextlib.closing(Session(game, keys, env.max_episode_steps, table.labels, table.scorer, goals)) as session:
        with shell() as terminal:
            if table.choose is None:
                play_by_hand(session, table, terminal, stop)
            else:
                play_by_itself(session, table, Pace(config.steps_per_sec), terminal, stop)
    return session


def set_up(config: PlayConfig) -> Table:
    """Raises UserError: there is no such run, checkpoint or task."""
    run = Run(os.path.join(config.train_dir, config.experiment)) if config.experiment else None
    env = chosen_task((run.plan.config if run else Config()).env, config.root_env, config.max_episode_steps)
    if config.goal:
        env = dataclasses.replace(env, episode_goal=fixed_goal(env.episode_goal, config.goal))
    display = display_of(env)
    if display is None:
        raise UserError(
            f"--root_env {env.root_env}: can't be played; launch.play plays NetHack, BabyAI-Text and Crafter"
        )
    labels = run_labels(run) if run else {"": labels_of(env)}
    scorer, not_shown, suggested = _of_run(config, run, env)
    if scorer is None:
        spec = env_spec(env, observations_read(run.plan.config) if run else ())
        paid = next(iter(labels.values()), None) or labels_of(env)
        scorer = LabelScorer(paid, (run.config if run else Config()).reward, spec)
    who, choose = ("a person", None) if config.policy == HUMAN else _chooser(config, env, scorer.spec)
    return Table(
        who=who,
        episode=f"episode {config.episode} of seed {config.seed}",
        env=env,
        display=display,
        choose=choose,
        labels=labels,
        scorer=scorer,
        suggested=suggested,
        not_shown=not_shown,
    )


def _chooser(config: PlayConfig, env: EnvConfig, shown: EnvSpec) -> tuple[str, Choose]:
    """Returns the player's name, and its choice of actions by what the environment shows."""
    # These import JAX, which takes seconds, and a person does not need it.
    from oni_jax.evaluation.players import chosen_players

    evaluation = EvaluationConfig(
        config.train_dir, config.experiment, policy=config.policy, seed=config.seed, goal=config.goal
    )
    experiment = None if config.policy == RANDOM else config.experiment
    (player,) = chosen_players(evaluation, env, experiment, config.checkpoint)
    episodes = np.full(GROUP_SIZE, config.episode, np.int32)
    # Compiles now, with a group that is not played: the terminal could not be restored during compilation.
    player.agent.act(1, np.zeros(GROUP_SIZE, record_dtype(shown)), episodes, np.zeros(GROUP_SIZE, np.int32))

    def choose(session: Session) -> int:
        # A batch as large as an evaluation's, filled with this game, so that the policy acts as it does there.
        records = np.full(GROUP_SIZE, session.record)
        steps = np.full(GROUP_SIZE, session.step_count, np.int32)
        return int(player.agent.act(0, records, episodes, steps)[config.episode % GROUP_SIZE])

    return f"{player.name}, {GREEDY}" if player.policy == GREEDY else player.name, choose


def _of_run(
    config: PlayConfig, run: Run | None, env: EnvConfig
) -> tuple[Scorer | None, Mapping[str, str], Suggested | None]:
    """Returns the rewards of a run's checkpoint, and the goals that its LLM suggests.

    There are none without a run, of a run that has just begun, and of one without them.
    """
    if run is None or (config.checkpoint == LATEST and not run.steps()):
        return None, {}, None
    from oni_jax.evaluation.goals import load_goals
    from oni_jax.evaluation.players import chosen_checkpoints
    from oni_jax.evaluation.step_rewards import read_scoring

    (env_steps,) = chosen_checkpoints(config.train_dir, config.experiment, config.checkpoint)
    return *read_scoring(run, env, env_steps), load_goals(run, env, env_steps)


def play_by_hand(session: Session, table: Table, shell: Shell, stop: StopRequest) -> None:
    keys, moves = session.keys, table.display.moves
    actions: Mapping[int, int] = {key.key: action for action, key in enumerate(keys)}
    shown: object = None
    panel_shown = False
    while not stop:
        state = (session.step_count, session.hint, session.chosen_goal, panel_shown, shell.size())
        if state != shown:
            help_text = f"{GOAL_HELP if session.goals else ''}{HUMAN_HELP}, {key_help(keys, moves)}"
            shell.draw(view(session, table, help_text, *shell.size(), panel_shown))
            shown = state
        for key in shell.keys(LONGEST_WAIT_SECS):
            if key == QUIT_KEY:
                return
            if key == PANEL_KEY:
                panel_shown = not panel_shown
            elif key == GOAL_KEY and session.goals:
                session.next_goal()
            elif session.end:
                session.hint = f"the episode is over: {HUMAN_HELP}"
            elif key in actions:
                session.step(actions[key])
            else:
                session.hint = f"{key_text(key)} is no action here"


def play_by_itself(session: Session, table: Table, pace: Pace, shell: Shell, stop: StopRequest) -> None:
    assert table.choose is not None
    shown: object = None
    due = time.monotonic() + 1 / pace.per_sec
    while not stop and not pace.quit:
        state = (session.step_count, session.chosen_goal, pace, shell.size())
        if state != shown:
            speed = "paused" if pace.paused else f"{pace.per_sec:g} steps a second"
            help_text = f"{speed}: {GOAL_HELP if session.goals else ''}{MACHINE_HELP}"
            shell.draw(view(session, table, help_text, *shell.size(), pace.panel))
            shown = state
        for key in shell.keys(min(LONGEST_WAIT_SECS, max(0.0, due - time.monotonic()))):
            pace = pace.pressed(key)
            if key == GOAL_KEY and session.goals:
                session.next_goal()
            if key == ord(".") and not session.end:
                pace = dataclasses.replace(pace, paused=True)
                session.step(table.choose(session))
        if time.monotonic() >= due:
            due = time.monotonic() + 1 / pace.per_sec
            if not pace.paused and not session.end:
                session.step(table.choose(session))


def view(
    session: Session, table: Table, help_text: str, rows: int, columns: int, panel_shown: bool = False
) -> list[str]:
    """Returns the rows of a terminal of this size: the game's screen, and the panel beside or below it.

    Args:
        panel_shown: the panel replaces the screen, if there is no room for both; or the keys, where they have none.
    """
    of = session
    status = panel.EpisodeStatus(
        of.step_count, of.max_episode_steps, of.game.turn(), of.action, of.reward, of.returned, of.end
    )
    title = panel.heading(table.who, [table.env.root_env, table.episode])
    progress = [*title, *panel.goal_lines(session.goal, session.chosen_goal), *panel.status_lines(status)]
    message = message_lines(session, table.not_shown)
    last = [*([Text(session.hint, YELLOW)] if session.hint else []), Text(help_text, DARK_GRAY)]
    is_wide, has_both = columns >= WIDE, columns >= WIDE or rows >= ROWS + ROWS_BELOW
    texts = [*progress, Text(""), *message, Text("")] if is_wide else []
    free = rows - num_lines(texts, panel.COLUMNS) if is_wide else rows - TEXT_ROWS - (ROWS if has_both else 1)
    if (too_long := num_lines(last, panel.COLUMNS if is_wide else COLUMNS) > free) and panel_shown:
        return ansi_rows(text_screen([*last, Text("Tab: game", YELLOW)], rows, columns))
    last[-1] = Text(f"{help_text.partition(', ')[0]}, {KEYS_HELP}", DARK_GRAY) if too_long else last[-1]
    screen = terminal_screen(session.game.terminal())
    if is_wide:
        return ansi_rows(cropped(panel.beside(screen, [*texts, *last], rows), rows, columns))
    below = _panel_below(progress, message, last)
    if has_both:
        screen = joined([screen, below], below=True)
    elif panel_shown:
        screen = joined([below, text_screen([Text("Tab: game", YELLOW)], 1, COLUMNS)], below=True)
    else:
        _note(screen, session.hint or session.end)
    return ansi_rows(cropped(screen, rows, columns))


def _panel_below(left: Sequence[Text], right: Sequence[Text], last: Sequence[Text]) -> Screen:
    """Returns two columns of text above the last lines."""
    half = COLUMNS // 2 - 4
    texts = [text for text in left if text.text]
    gap = text_screen([], TEXT_ROWS, panel.GAP)
    sides = [text_screen(texts, TEXT_ROWS, half), gap, text_screen(right, TEXT_ROWS, COLUMNS - half - panel.GAP)]
    return joined([joined(sides), text_screen(last, max(HELP_ROWS, num_lines(last, COLUMNS)), COLUMNS)], below=True)


def _note(screen: Screen, text: str) -> None:
    """Writes a text at the right end of the first row; if it is empty, the panel's key, where the row is blank."""
    note = (text or PANEL_HELP)[:COLUMNS].encode("ascii", "replace")
    cells = screen.chars[0, -len(note) :]
    if text or (cells == SPACE).all():
        cells[:] = list(note)
        screen.colors[0, -len(note) :] = YELLOW


def message_lines(session: Session, not_shown: Mapping[str, str]) -> list[Text]:
    lines, said = [], {name: label for name, label in session.said.items() if panel.is_of_goal(name, session.goal)}
    for name, label in said.items():
        title = name if name and len(said) > 1 else "label"
        lines.append(Text(f"{title:<9} {label.text}", GREEN if label.helpful else GRAY))
        lines.append(Text(f"  by the {label.source}", DARK_GRAY))
    lines = lines or [Text("no message, no label")]
    scorer = session.scorer
    reasons = [f"{label}: {reason}" for label, reason in not_shown.items() if panel.is_of_goal(label, session.goal)]
    return [
        Text("of the message", WHITE),
        *lines,
        *([Text(f"  for the {session.count}. time")] if session.count > 1 else []),
        *panel.intrinsic_lines(scorer, session.rewards, session.totals, session.goal),
        Text(f"  {scorer.problem or scorer.source}", DARK_GRAY),
        *(Text(f"  {reason}", DARK_GRAY) for reason in reasons),
    ]
