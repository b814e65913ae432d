"""N games of NetHack in one process, observed together by few array operations once all have moved."""

import contextlib
import tempfile
from collections.abc import Callable, Collection

import numpy as np

from oni_jax.envs.base import StepOutput, VectorEnv
from oni_jax.envs.display import Terminal
from oni_jax.envs.nethack.game import GameArrays, NetHackGame
from oni_jax.envs.nethack.screens import VIEWS, WINDOW_SIZE, Screens, map_terminal
from oni_jax.envs.nethack.shared_code import SharedCode
from oni_jax.envs.nethack.tasks import GOAL_REWARD, Task, nethack
from oni_jax.host.files import ScratchFolder
from oni_jax.host.limits import allow_open_files
from oni_jax.settings.worlds import NetHackConfig
from oni_jax.types import ArraySpec, EnvSpec

RUNNING, ABORTED, DEATH, TASK_SUCCESSFUL = 0, -1, 1, 2  # end status

BLSTATS_NAMES = (
    *("x", "y", "strength_percentage", "strength", "dexterity", "constitution", "intelligence", "wisdom", "charisma"),
    *("score", "hitpoints", "max_hitpoints", "depth", "gold", "energy", "max_energy", "armor_class", "monster_level"),
    *("experience_level", "experience_points", "turns", "hunger", "burden", "dungeon", "level", "condition"),
    "alignment",
)
BLSTATS_SCALE = np.zeros(27)
BLSTATS_SCALE[[0, 1]] = 1 / 79, 1 / 21  # x, y
BLSTATS_SCALE[[3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 16, 18, 22]] = 1 / 10
BLSTATS_SCALE[13] = 1 / 1000  # gold
BLSTATS_SCALE[19] = 1 / 100  # experience points
BLSTATS_SCALE[20] = 1 / 1000  # turns
BLSTATS_SCALE[21] = 1  # hunger
VECTOR_OBS_BOUND = 5.0

TIME_PENALTY = -0.01
MAX_STARTS = 3  # attempts at an episode before the engine's error is raised
EPISODE_STATS = ("return", "length", "dlvl", "gold", "xlvl", "scout", "kills", "end_status", "turns")

Seeds = Callable[[int, int], tuple[int, int]]
"""(environment's index, its episode's) -> NetHack's two seeds: of the game, and of its display."""


def episode_seeds(seed: int) -> Seeds:
    """Returns seeds that depend on the run, the environment and the episode alone."""

    def seeds(index: int, episode: int) -> tuple[int, int]:
        core, display = np.random.SeedSequence([seed, index, episode]).generate_state(2, np.uint64).tolist()
        return core >> 1, display >> 1  # NetHack takes 63 bits

    return seeds


OBSERVATIONS = {
    "chars": ArraySpec((WINDOW_SIZE, WINDOW_SIZE), "uint8"),
    "colors": ArraySpec((WINDOW_SIZE, WINDOW_SIZE), "uint8"),
    "vector_obs": ArraySpec(nethack.OBSERVATION_DESC["blstats"]["shape"], "float32"),
    "message": ArraySpec(nethack.OBSERVATION_DESC["message"]["shape"], "uint8"),
    "glyphs": ArraySpec(nethack.OBSERVATION_DESC["glyphs"]["shape"], "int16"),
    "hero_xy": ArraySpec((2,), "uint8"),
    "blstats": ArraySpec(nethack.OBSERVATION_DESC["blstats"]["shape"], "int32"),
}
ON_REQUEST = ("glyphs", "hero_xy", "blstats")
DEFAULT_SETTINGS = NetHackConfig()
DEFAULT_OBSERVATIONS = tuple(name for name in OBSERVATIONS if name not in ON_REQUEST)


def nethack_spec(task: Task, observations: Collection[str] = DEFAULT_OBSERVATIONS) -> EnvSpec:
    """Returns the spec with these of OBSERVATIONS; see NetHackVectorEnv."""
    shown = {name: array for name, array in OBSERVATIONS.items() if name in observations}
    return EnvSpec(shown, num_actions=len(task.keys), has_captions=True, episode_stats=EPISODE_STATS)


def engine_array(name: str, num_games: int) -> np.ndarray:
    """Returns zeros [N, ...] of the shape and dtype of the engine's array `name`."""
    description = nethack.OBSERVATION_DESC[name]
    return np.zeros((num_games, *description["shape"]), description["dtype"])


class NetHackVectorEnv(VectorEnv):
    """A task of N NetHack games; see `VectorEnv`.

    A game in which NLE raises is truncated, as if at the step limit, and replaced.

    Observations: `chars` and `colors` [12, 12] uint8, the screen around (x, y) of the statistics, zero outside
    (as published, though the terminal's map begins one row lower); `vector_obs` [27] float32, the statistics
    scaled and clipped; `message` [256] uint8, zero padded; on request `glyphs` [21, 79] int16, the whole map,
    `hero_xy` [2] uint8, the hero's column and row in it, and `blstats` [27] int32, the statistics as they are,
    see BLSTATS_NAMES. The caption is the message.

    Episode statistics. As of the observation at which the last action was taken: `dlvl` depth; `gold`; `xlvl`
    experience level; `scout` map squares known, each level as last seen; `kills` steps taken after a message about
    a kill; `turns` of game time. Of the whole episode: `return` of the environment's reward; `length` in steps;
    `end_status` -1 step limit, 1 death, 2 goal reached.

    Args:
      task: the task.
      num_envs: N.
      seeds: gives each episode's seeds.
      first_index: the first environment's index, for `seeds`.
      max_episode_steps: steps after which an episode is truncated.
      observations: names of those to show.
      settings: `view` is the source of `chars` and `colors`: `terminal`, or `map`, which lacks the terminal's line of
        messages, statistics and menus, and is faster. `share_code`: whether games share one copy of the engine's
        code where possible; the games are the same.
      why_python: reason why they are not stepped in C, for the note; "" for none.
    """

    def __init__(
        self,
        task: Task,
        num_envs: int,
        seeds: Seeds,
        first_index: int = 0,
        max_episode_steps: int = 5000,
        observations: Collection[str] = DEFAULT_OBSERVATIONS,
        settings: NetHackConfig = DEFAULT_SETTINGS,
        why_python: str = "",
    ):
        self.spec = nethack_spec(task, observations)
        self.num_envs = num_envs
        self._task = task
        self._seeds = seeds
        self._first_index = first_index
        self._max_episode_steps = max_episode_steps

        self._view = VIEWS[settings.view]
        self._screens = Screens(num_envs, self._view)
        names = ("blstats", "message", "glyphs", "internal", "program_state")
        self.arrays = GameArrays(**{name: engine_array(name, num_envs) for name in names}, screen=self._screens.arrays)
        self.previous_blstats = np.zeros_like(self.arrays.blstats)  # at the step's beginning
        self._previous_glyphs = np.zeros_like(self.arrays.glyphs)
        self.end_status = np.zeros(num_envs, np.int64)  # [N] of the last step

        self._why_python = why_python
        self._shared_code = SharedCode() if settings.share_code else None
        self._failed: dict[int, Exception] = {}  # games of the current step
        self._last_failure = ""
        self.num_restarts = 0
        self._episodes = [-1] * num_envs
        self._lengths = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs)
        self._paid = np.zeros(num_envs, bool)  # continual tasks are rewarded once an episode
        self._known_squares: list[dict[tuple[int, ...], int]] = [{} for _ in range(num_envs)]  # squares of levels left
        allow_open_files()  # a game has two
        self._directory = ScratchFolder()
        self._games: list[NetHackGame] = []
        for i in range(num_envs):
            self._games.append(self._make_game(i))

    def reset(self, out: StepOutput) -> None:
        for i in range(self.num_envs):
            self._begin_episode(i)
        self.end_status[:] = RUNNING
        self._observe(slice(None), out.records)
        out.texts.captions[:] = self._messages(slice(None))
        out.records["is_first"] = True
        for field in ("reward", "terminated", "truncated"):
            out.records[field] = 0

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        np.copyto(self.previous_blstats, self.arrays.blstats)
        np.copyto(self._previous_glyphs, self.arrays.glyphs)
        dead = self._press(actions)
        self._lengths += 1
        rewards = self._rewards(dead)
        self._returns += rewards
        self._remember_levels_left()

        records = out.records
        self._observe(slice(None), records)
        out.texts.captions[:] = self._messages(slice(None))
        records["is_first"] = False
        records["reward"] = rewards
        records["terminated"] = self.end_status > 0
        records["truncated"] = self.end_status == ABORTED
        for i in self.end_status.nonzero()[0].tolist():
            out.finals[i] = records[i]
            out.episode_stats[i] = self._episode_stats(i)
        self._begin_episodes(out)

    def _begin_episodes(self, out: StepOutput) -> None:
        """Starts the next episode of each game whose end status ends one."""
        captions = out.texts.captions
        for i in self.end_status.nonzero()[0].tolist():
            out.texts.final_captions[i] = captions[i]
            self._end_episode(i)
            self._begin_episode(i)
            self._observe(slice(i, i + 1), out.records)
            captions[i] = self._messages(slice(i, i + 1))[0]
            out.records["is_first"][i] = True

    def close(self) -> None:
        for game in self._games:
            game.close()
        self._games = []
        self._directory.close()
        if self._shared_code:
            self._shared_code.close()
            self._shared_code = None

    def note(self) -> str:
        clock = "; shopkeepers are named by the clock: games that meet one may not repeat"
        follows_clock = any(game.follows_clock for game in self._games)
        return f"{self._stepper_note()}{self._code_note()}{clock * follows_clock}{self._last_failure}"

    def terminal(self) -> Terminal:
        blstats = self.arrays.blstats[0]
        chars, colors = (screens[0] for screens in self.arrays.screen.values())
        x, y = blstats[[nethack.NLE_BL_X, nethack.NLE_BL_Y]].tolist()
        if self._view.first_row == 0:
            whole = Terminal(chars.copy(), colors.view(np.uint8).copy())
        else:
            whole = map_terminal(chars, colors, self._messages(slice(1))[0], blstats)
        is_hero = whole.chars[y + 1, x] == ord("@")  # a menu may cover it
        return whole._replace(cursor=np.array([y + 1, x])) if is_hero else whole

    def _stepper_note(self) -> str:
        return f"games are stepped in Python, which is slower: {self._why_python}; " if self._why_python else ""

    def _code_note(self) -> str:
        if not self._shared_code:
            return "each game has a separate copy of the engine's code"
        if self._shared_code.failure:
            return f"games can't share the engine's code: {self._shared_code.failure}"
        return "games share the engine's code"

    def scout(self, i: int) -> int:
        """Returns the map squares known in game i before its last step."""
        return sum({**self._known_squares[i], self._level(i): self._num_known_squares(i)}.values())

    def kill_count(self, i: int) -> int:
        """Returns the steps of game i's episode taken after a message about a kill."""
        return self._games[i].kill_count

    def _make_game(self, i: int) -> NetHackGame:
        # NLE makes each game's folder in tempfile's: set to ours, so that a killed process's are found by name.
        directory, tempfile.tempdir = tempfile.tempdir, self._directory.path
        try:
            return self._new_game(i)
        finally:
            tempfile.tempdir = directory

    def _new_game(self, i: int) -> NetHackGame:
        return NetHackGame(self._task, self.arrays, i, self._shared_code)

    def _replace_game(self, i: int, error: Exception) -> None:
        with contextlib.suppress(Exception):  # closing may fail, too
            self._games[i].close()
        self._games[i] = self._make_game(i)
        self.num_restarts += 1
        self._last_failure = f"; game {self._first_index + i} raised {error!r} and was replaced"

    def _end_episode(self, i: int) -> None:
        if (error := self._failed.get(i)) is not None:
            self._replace_game(i, error)
        elif self.end_status[i] != DEATH:
            try:
                self._games[i].quit()
            except Exception as error:
                self._replace_game(i, error)

    def _begin_episode(self, i: int) -> None:
        """Starts the next episode. Raises the engine's error after MAX_STARTS attempts."""
        self._episodes[i] += 1
        for attempt in range(MAX_STARTS):
            try:
                self._games[i].start(*self._seeds(self._first_index + i, self._episodes[i]))
                break
            except Exception as error:
                if attempt == MAX_STARTS - 1:
                    raise
                self._replace_game(i, error)
        self._lengths[i] = 0
        self._returns[i] = 0
        self._paid[i] = False
        self._known_squares[i].clear()  # ONI: the published 23-action tasks don't clear them, and count on

    def _press(self, actions: np.ndarray) -> np.ndarray:
        """Takes every game's step. Returns [N] bool, True where the hero is dead."""
        games, keys, failed = self._games, self._task.keys, self._failed
        failed.clear()
        pressed = [game.translate(keys[action]) for game, action in zip(games, actions.tolist(), strict=True)]
        for i, game in enumerate(games):
            try:
                game.press_raw(pressed[i])
            except Exception as error:
                failed[i] = error
        dead = np.zeros(self.num_envs, bool)
        for i, game in enumerate(games):
            try:
                dead[i] = i not in failed and game.settle(pressed[i])
            except Exception as error:
                failed[i] = error
        return dead

    def _rewards(self, dead: np.ndarray) -> np.ndarray:
        """Writes all games' end status and returns their rewards [N]."""
        task, arrays, status = self._task, self.arrays, self.end_status
        status[:] = RUNNING
        status[self._lengths >= self._max_episode_steps] = ABORTED
        status[dead] = DEATH
        failed = list(self._failed)
        status[failed] = ABORTED
        if task.goal is None:
            rewards = self._score_rewards()
            rewards[failed] = 0
            return rewards
        reached = task.goal(arrays.blstats, arrays.message, arrays.glyphs) & (status == RUNNING) & ~self._paid
        if task.continual:
            self._paid |= reached
        else:
            status[reached] = TASK_SUCCESSFUL
        return GOAL_REWARD * reached

    def _score_rewards(self) -> np.ndarray:
        before, after = self.previous_blstats, self.arrays.blstats
        rewards = (after[:, nethack.NLE_BL_SCORE] - before[:, nethack.NLE_BL_SCORE]).astype(float)
        for i in rewards.nonzero()[0].tolist():
            if not self._games[i].in_normal_game():  # the statistics are no longer a game's
                rewards[i] = 0
        rewards[after[:, nethack.NLE_BL_TIME] == before[:, nethack.NLE_BL_TIME]] += TIME_PENALTY
        return rewards

    def _remember_levels_left(self) -> None:
        before, after = self.previous_blstats, self.arrays.blstats
        left = (after[:, nethack.NLE_BL_DLEVEL] != before[:, nethack.NLE_BL_DLEVEL]) | (
            after[:, nethack.NLE_BL_DNUM] != before[:, nethack.NLE_BL_DNUM]
        )
        for i in left.nonzero()[0].tolist():
            self._known_squares[i][self._level(i)] = self._num_known_squares(i)

    def _level(self, i: int) -> tuple[int, ...]:
        return tuple(self.previous_blstats[i, [nethack.NLE_BL_DNUM, nethack.NLE_BL_DLEVEL]].tolist())

    def _num_known_squares(self, i: int) -> int:
        return int(np.count_nonzero(self._previous_glyphs[i] != nethack.GLYPH_CMAP_OFF))

    def _episode_stats(self, i: int) -> tuple[float, ...]:
        last = self.previous_blstats[i]
        return (
            self._returns[i],
            self._lengths[i],
            last[nethack.NLE_BL_DEPTH],
            last[nethack.NLE_BL_GOLD],
            last[nethack.NLE_BL_XP],
            self.scout(i),
            self.kill_count(i),
            self.end_status[i],
            last[nethack.NLE_BL_TIME],
        )

    def _messages(self, rows: slice) -> list[bytes]:
        """Returns the messages without zero padding."""
        padded = self.arrays.message[rows]
        return padded.view(f"S{padded.shape[1]}").ravel().tolist()

    def _observe(self, rows: slice, records: np.ndarray) -> None:
        """Writes the observations of these games."""
        blstats, records, shown = self.arrays.blstats[rows], records[rows], self.spec.observations
        if "chars" in shown or "colors" in shown:
            windows = self._screens.windows(rows, blstats[:, nethack.NLE_BL_X], blstats[:, nethack.NLE_BL_Y])
            for plane, name in enumerate(("chars", "colors")):
                if name in shown:
                    records[name] = windows[:, plane]
        if "vector_obs" in shown:
            records["vector_obs"] = (blstats * BLSTATS_SCALE).clip(-VECTOR_OBS_BOUND, VECTOR_OBS_BOUND)
        if "message" in shown:
            records["message"] = self.arrays.message[rows]
        if "glyphs" in shown:
            records["glyphs"] = self.arrays.glyphs[rows]
        if "hero_xy" in shown:
            records["hero_xy"] = blstats[:, : nethack.NLE_BL_Y + 1]
        if "blstats" in shown:
            records["blstats"] = blstats
