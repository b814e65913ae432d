"""Rules of the rule-based judge for Catch."""

from oni_jax.types import TIE

WORTH = {b"You catch the ball.": 2, b"The paddle is below the ball.": 1, b"You miss the ball.": -1}


def judge_caption(goal: str, message: bytes) -> tuple[bool, str]:
    return WORTH.get(message, 0) > 0, "where the ball is seen from the paddle"


def judge_pair(goal: str, first: bytes, second: bytes) -> int:
    gain = WORTH.get(second, 0) - WORTH.get(first, 0)
    return TIE if gain == 0 else int(gain > 0)
