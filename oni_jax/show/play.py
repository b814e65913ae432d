"""Playing a task in the terminal: a person, a run's policy or a random one chooses the actions."""

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from oni_jax.envs.base import record_dtype
from oni_jax.envs.display import COLUMNS, ROWS, Display
from oni_jax.envs.history import CAPTION, past_of, sources
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
    terminal_screen,
    text_screen,
)
from oni_jax.evaluation.config import GREEDY, LATEST, RANDOM, EvaluationConfig
from oni_jax.evaluation.episodes import chosen_task
from oni_jax.evaluation.recording import watched_episode
from oni_jax.host.runtime import StopRequest
from oni_jax.rewards.registry import observations_read
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.show import panel
from oni_jax.show.config import HUMAN, PlayConfig
from oni_jax.show.keys import key_help, key_text
from oni_jax.show.labels import Labels, labels_of, run_labels
from oni_jax.show.session import MessageReward, Session, label_reward
from oni_jax.show.shell import Shell

WIDE = COLUMNS + panel.GAP + panel.COLUMNS  # columns needed for all text beside the screen
TEXT_ROWS, HELP_ROWS = 9, 3  # or rows below it; a smaller terminal shows the text instead of the screen
ROWS_BELOW = TEXT_ROWS + HELP_ROWS
QUIT_KEY, PANEL_KEY = ord("X") & 0x1F, ord("\t")
PANEL_HELP = "Tab: panel"
HUMAN_HELP = "^X quits"
MACHINE_HELP = "space pause, . step, + - speed, q quit"
SPEEDS = tuple(2.0**i for i in range(-1, 8))  # a second
LONGEST_WAIT_SECS = 0.1  # between checks for a stop request

Choose = Callable[[Session], int]  # the next action


@dataclasses.dataclass(frozen=True)
class Pace:
    """Speed of automatic play."""

    per_sec: float
    paused: bool = False
    quit: bool = False
    panel: bool = False  # whether a small terminal shows the panel in place of the game

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
    labels: Labels
    reward: MessageReward
    observations: Collection[str]  # that policy and reward read


def play(config: PlayConfig, shell: Callable[[], Shell], stop: StopRequest) -> Session:
    """Plays an episode until it is left, or `stop`.

    Raises:
        UserError: there is no such run, checkpoint or task, or no room for a game's files.
    """
    table = set_up(config)
    env = table.env
    game = watched_episode(table.display, env, config.seed, config.episode, table.observations)
    keys = table.display.keys(env)
    try:
        session = Session(game, keys, env.max_episode_steps, table.labels, table.reward)
        with shell() as own:
            if table.choose is None:
                play_by_hand(session, table, own, stop)
            else:
                play_by_itself(session, table, Pace(config.steps_per_sec), own, stop)
    finally:
        game.close()
    return session


def set_up(config: PlayConfig) -> Table:
    """Raises UserError: there is no such run, checkpoint or task."""
    run = Run(os.path.join(config.train_dir, config.experiment)) if config.experiment else None
    env = chosen_task((run.plan.config if run else Config()).env, config.root_env, config.max_episode_steps)
    display = display_of(env)
    if display is None:
        raise UserError(
            f"--root_env {env.root_env}: can't be played; launch.play plays NetHack, BabyAI-Text and Crafter"
        )
    who, choose = ("a person", None) if config.policy == HUMAN else _chooser(config, env)
    labels = run_labels(run) if run else labels_of(env)
    return Table(
        who=who,
        episode=f"episode {config.episode} of seed {config.seed}",
        env=env,
        display=display,
        choose=choose,
        labels=labels,
        reward=_reward(config, run, labels),
        observations=tuple(env_spec(env, sources(observations_read(run.plan.config))).observations) if run else (),
    )


def _chooser(config: PlayConfig, env: EnvConfig) -> tuple[str, Choose]:
    """Returns the player's name, and its choice of actions."""
    # These import JAX, which takes seconds, and a person does not need it.
    from oni_jax.evaluation.agents import GROUP_SIZE
    from oni_jax.evaluation.players import chosen_players

    evaluation = EvaluationConfig(train_dir=config.train_dir, policy=config.policy, seed=config.seed)
    experiment = None if config.policy == RANDOM else config.experiment
    (player,) = chosen_players(evaluation, env, experiment, config.checkpoint)
    if past_of(player.spec.observations):
        raise UserError(
            f"--experiment {config.experiment}: its policy reads earlier steps, which launch.play does not keep"
        )
    dtype = record_dtype(player.spec)
    episodes = np.full(GROUP_SIZE, config.episode, np.int32)
    # Compiles now, with a group that is not played: the terminal could not be restored during compilation.
    player.agent.act(1, np.zeros(GROUP_SIZE, dtype), episodes, np.zeros(GROUP_SIZE, np.int32))

    def choose(session: Session) -> int:
        # A batch as large as an evaluation's, filled with this game, so that the policy acts as it does there.
        records = np.zeros(GROUP_SIZE, dtype)
        for name in {*(dtype.names or ())} & {*(session.record.dtype.names or ())}:
            records[name] = session.record[name]
        if CAPTION in (dtype.names or ()) and CAPTION not in (session.record.dtype.names or ()):
            text = np.frombuffer(session.message, np.uint8)[: dtype[CAPTION].shape[0]]
            records[CAPTION][:, : len(text)] = text
        steps = np.full(GROUP_SIZE, session.step_count, np.int32)
        return int(player.agent.act(0, records, episodes, steps)[config.episode % GROUP_SIZE])

    return f"{player.name}, {GREEDY}" if player.policy == GREEDY else player.name, choose


def _reward(config: PlayConfig, run: Run | None, labels: Labels) -> MessageReward:
    if run is None:
        return label_reward(labels, Config().reward)
    from oni_jax.evaluation.players import chosen_checkpoints
    from oni_jax.evaluation.step_rewards import EpisodeRewards
    from oni_jax.runs.rewards import NoRewardError

    settings = run.config.reward
    if config.checkpoint == LATEST and not run.steps():
        return label_reward(labels, settings)
    (env_steps,) = chosen_checkpoints(config.train_dir, config.experiment, config.checkpoint)
    try:
        known = run.rewards(env_steps)
    except NoRewardError:
        return label_reward(labels, settings)
    rewards = EpisodeRewards(known, num_at_once=1)
    each = dict(zip(known.rewards.labels, known.rewards.rewards, strict=True))
    others = [name for name in rewards.labels if not each[name].pays_for or past_of(each[name].other_observations)]
    if others or not rewards.labels:
        reasons = [f"{name} pays for more than a message" for name in others]
        why = "; ".join(reasons) or "; ".join(rewards.left_out.values())
        return MessageReward(lambda message, record: 0.0, settings, f"not shown: {why}")

    def give(message: bytes, record: np.ndarray) -> float:
        seen = {name: np.stack([record[name]] * 2) for name in rewards.observations}
        return float(rewards.of_steps([message, message], seen, counts=(1, 1))[0])

    return MessageReward(give, settings, f"by {config.experiment} at {known.env_steps:,} steps")


def play_by_hand(session: Session, table: Table, shell: Shell, stop: StopRequest) -> None:
    keys, moves = session.keys, table.display.moves
    actions: Mapping[int, int] = {key.key: action for action, key in enumerate(keys)}
    shown: object = None
    panel_shown = False
    while not stop:
        state = (session.step_count, session.hint, panel_shown, shell.size())
        if state != shown:
            shell.draw(view(session, table, f"{HUMAN_HELP}, {key_help(keys, moves)}", *shell.size(), panel_shown))
            shown = state
        for key in shell.keys(LONGEST_WAIT_SECS):
            if key == QUIT_KEY:
                return
            if key == PANEL_KEY:
                panel_shown = not panel_shown
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
        state = (session.step_count, pace, shell.size())
        if state != shown:
            speed = "paused" if pace.paused else f"{pace.per_sec:g} steps a second"
            shell.draw(view(session, table, f"{speed}: {MACHINE_HELP}", *shell.size(), pace.panel))
            shown = state
        for key in shell.keys(min(LONGEST_WAIT_SECS, max(0.0, due - time.monotonic()))):
            pace = pace.pressed(key)
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
        panel_shown: the panel replaces the screen, if there is no room for both.
    """
    of = session
    status = panel.EpisodeStatus(
        of.step_count, of.max_episode_steps, of.game.turn(), of.action, of.reward, of.returned, of.end
    )
    progress = [*panel.heading(table.who, [table.env.root_env, table.episode]), *panel.status_lines(status)]
    message = message_lines(session)
    last = [*([Text(session.hint, YELLOW)] if session.hint else []), Text(help_text, DARK_GRAY)]
    screen = terminal_screen(session.game.terminal())
    if columns >= WIDE:
        return ansi_rows(cropped(panel.beside(screen, [*progress, Text(""), *message, Text(""), *last]), rows, columns))
    below = _panel_below(progress, message, last)
    if rows >= ROWS + ROWS_BELOW:
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
    return joined([joined(sides), text_screen(last, HELP_ROWS, COLUMNS)], below=True)


def _note(screen: Screen, text: str) -> None:
    """Writes a text at the right end of the first row; if it is empty, the panel's key, where the row is blank."""
    note = (text or PANEL_HELP)[:COLUMNS].encode("ascii", "replace")
    cells = screen.chars[0, -len(note) :]
    if text or (cells == SPACE).all():
        cells[:] = list(note)
        screen.colors[0, -len(note) :] = YELLOW


def message_lines(session: Session) -> list[Text]:
    """Returns lines with the message's label and reward."""
    label = session.label
    if label is None:
        lines = [Text("no message, no label")]
    else:
        lines = [
            Text(f"label     {label.text}", GREEN if label.helpful else GRAY),
            Text(f"  by the {label.source}", DARK_GRAY),
        ]
    worth = panel.number(session.discounted)
    if session.count > 1 and session.message_reward:
        exponent = session.rewarding.settings.beta_count_exponent
        worth += f" = {panel.number(session.message_reward)} / {session.count}^{exponent:g}"
    return [
        Text("of the message", WHITE),
        *lines,
        Text(f"reward    {worth}", panel.sign_color(session.discounted)),
        Text(f"  {session.rewarding.source if session.pays else 'no step is rewarded for it'}", DARK_GRAY),
        Text(f"total     {panel.number(session.total)}"),
    ]
