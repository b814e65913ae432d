"""Rules of the rule-based judge for Crafter: doing something that changes the world or the player is helpful. No LLM.

They were written before any study with them, and name no task. An event is helpful if its verb gathers, builds,
makes, eats, drinks or fights. In a state it is helpful to face something other than the ground. Of two events that with
the verb that comes later in VERBS is better; of two states that in which something is faced.
"""

import re

from oni_jax.types import TIE

VERBS = ("drink", "chop", "eat", "place", "attack", "mine", "make")  # by how much has to come before
GROUND = ("grass", "sand", "path", "water", "lava")
_FACED = re.compile(r"you are targeting ([a-z]+)|You face ([a-z]+)")


def caption_value(caption: bytes) -> int:
    """Returns 0 for what is not helpful; of an event, more for verbs later in VERBS."""
    text = caption.decode("latin-1")
    verb = text.partition(" ")[0]
    if verb in VERBS:
        return VERBS.index(verb) + 1
    faced = _FACED.search(text)
    return int(bool(faced) and (faced[1] or faced[2]) not in GROUND)


def judge_caption(goal: str, message: bytes) -> tuple[bool, str]:
    """Returns whether a caption is helpful, whatever the goal, and why."""
    del goal
    return caption_value(message) > 0, "whether something is done, or something is within reach"


def judge_pair(goal: str, first: bytes, second: bytes) -> int:
    """Returns 0 if the first is better, whatever the goal, 1 if the second is, 2 for a tie."""
    del goal
    values = caption_value(first), caption_value(second)
    return TIE if values[0] == values[1] else int(values[1] > values[0])


def goal_of_words(words: str) -> str:
    del words
    return "defaultgoal"
