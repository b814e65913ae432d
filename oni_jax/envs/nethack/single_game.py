"""One episode of one NetHack game, for people to watch: its terminal can be read, and recorded."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Collection

from oni_jax.envs.display import Terminal, WatchedEnv
from oni_jax.envs.nethack.game import NetHackGame
from oni_jax.envs.nethack.tasks import TASKS, nethack
from oni_jax.envs.nethack.vector_env import DEFAULT_OBSERVATIONS, DEFAULT_SETTINGS, NetHackVectorEnv, engine_array
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import NetHackConfig

TERMINAL = ("tty_chars", "tty_colors", "tty_cursor")


class SingleGame(NetHackVectorEnv, WatchedEnv):
    """The episode of `seeds`, as in `NetHackVectorEnv`, but without a reset after it: don't step it past its end.
    The terminal then still shows the end.

    Args:
      root_env: the task's name in TASKS.
      seeds: NetHack's two.
      max_episode_steps, observations, settings: as in `NetHackVectorEnv`; the code is not shared.
      ttyrec: file to which NLE records the terminal's output and the keys; complete once the episode has ended or
        the game is closed.

    Raises:
      OSError: `ttyrec` can't be written.
      UserError: there is no room for the game's files.
    """

    def __init__(
        self,
        root_env: str,
        seeds: tuple[int, int],
        max_episode_steps: int,
        observations: Collection[str] = DEFAULT_OBSERVATIONS,
        settings: NetHackConfig = DEFAULT_SETTINGS,
        ttyrec: str | None = None,
    ):
        self._ttyrec = ttyrec
        unshared = dataclasses.replace(settings, share_code=False)
        try:
            super().__init__(
                TASKS[root_env], 1, lambda index, episode: seeds, 0, max_episode_steps, observations, unshared
            )
        except OSError as error:
            if ttyrec is not None and error.filename == ttyrec:
                raise
            folder = tempfile.gettempdir()
            raise UserError(f"{folder}: a game can't be started there ({error.strerror}); set $TMPDIR") from None

    def terminal(self) -> Terminal:
        return Terminal(*(self._terminal[name][0].copy() for name in TERMINAL))

    def turn(self) -> int:
        """Returns the game time; after the episode's end, that before its last step."""
        blstats = self.previous_blstats if self.end_status[0] else self.arrays.blstats
        return int(blstats[0, nethack.NLE_BL_TIME])

    def _new_game(self, i: int) -> NetHackGame:
        self._terminal = {**{name: engine_array(name, 1) for name in TERMINAL}, **self.arrays.screen}
        path, self._ttyrec = self._ttyrec, None  # the replacement of a failed game would overwrite the file
        return NetHackGame(self._task, self.arrays._replace(screen=self._terminal), i, ttyrec=path)

    def _end_episode(self, i: int) -> None:
        with contextlib.suppress(Exception):  # an engine that has raised
            self._games[i].close()

    def _begin_episode(self, i: int) -> None:
        if not self.end_status[i]:
            super()._begin_episode(i)
