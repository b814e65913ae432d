"""Catch: a ball falls down a board, and a paddle at the bottom can catch it. The best return is 1."""

import pathlib
from typing import Any

import numpy as np

from oni_jax.envs.base import Language
from oni_jax.envs.small_env import SmallVectorEnv, small_environment
from oni_jax.types import ArraySpec, EnvSpec

ROWS, COLUMNS = 10, 5
CAPTION_BYTES = 256

# Captions by the sign of (ball's column - paddle's column): 0, 1, -1
TEXTS = (
    (b"The paddle is below the ball.", b"The ball is to the right.", b"The ball is to the left."),
    (b"You catch the ball.", b"You miss the ball.", b"You miss the ball."),  # landed
)
CAPTIONS = np.array([[list(text.ljust(CAPTION_BYTES, b"\0")) for text in texts] for texts in TEXTS], np.uint8)

SPEC = EnvSpec(
    observations={"board": ArraySpec((ROWS * COLUMNS,), "float32"), "message": ArraySpec((CAPTION_BYTES,), "uint8")},
    num_actions=3,
    has_captions=True,
    episode_stats=("return", "length"),
)


class CatchVectorEnv(SmallVectorEnv):
    """Actions 0, 1, 2: left, stay, right. Reward at the end, after nine steps: 1 for a ball caught, -1 for a miss.

    Observations: `board` [50] float32, ten rows of five squares, 1 where the ball or the paddle is;
    `message` [256] uint8, zero-padded text of where the ball is relative to the paddle: also the caption.
    """

    spec = SPEC

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._ball_rows, self._ball_columns, self._paddles = np.zeros((3, self.num_envs), np.int64)

    def begin(self, i: int) -> None:
        self._ball_rows[i] = 0
        self._ball_columns[i] = self.generators[i].integers(COLUMNS)
        self._paddles[i] = COLUMNS // 2

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self._paddles = np.clip(self._paddles + actions - 1, 0, COLUMNS - 1)
        self._ball_rows += 1
        landed = self._ball_rows == ROWS - 1
        return np.where(landed, np.where(self._ball_columns == self._paddles, 1.0, -1.0), 0.0), landed

    def observe(self) -> dict[str, np.ndarray]:
        boards = np.zeros((self.num_envs, ROWS, COLUMNS), np.float32)
        indices = np.arange(self.num_envs)
        boards[indices, self._ball_rows, self._ball_columns] = 1
        boards[indices, ROWS - 1, self._paddles] = 1
        return {"board": boards.reshape(self.num_envs, -1), "message": CAPTIONS[self._situations()]}

    def captions(self) -> list[bytes]:
        landed, sides = self._situations()
        return [TEXTS[i][side] for i, side in zip(landed.tolist(), sides.tolist())]

    def _situations(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns, [N] each, 1 where a ball has landed, else 0, and the sign of its offset from the paddle."""
        return (self._ball_rows == ROWS - 1).astype(np.int64), np.sign(self._ball_columns - self._paddles)


_LANGUAGE = Language(pathlib.Path(__file__).with_name("catch_prompts"), "oni_jax.envs.catch_rules", name="catch")
ENVIRONMENT = small_environment("Catch-v0", CatchVectorEnv, _LANGUAGE)._replace(
    about="Catch a ball, to test a change",
    encoder="mlp_encoder",
    random_play=pathlib.Path(__file__).with_name("catch_random_play.json"),
    limit=lambda config: ROWS - 1,
)
