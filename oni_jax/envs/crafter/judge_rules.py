"""Rules of the rule-based judge for Crafter: doing something that changes the world or the player is helpful. No LLM.

They were written before any study with them, and name no task. An event is helpful if its verb gathers, builds,
makes, eats, drinks or fights. In a state it is helpful to face something other than the ground. Of two events that with
the verb that comes later in VERBS is better; of two states that in which something is faced. For a goal in GOALS
there are no other events than its, and nothing else that is faced.

Goals are suggested for a state by ELLM's prerequisites, as far as a caption says whether they hold: it does not say how
many of a thing one has.
"""

import re

from oni_jax.envs.crafter.prerequisites import PREREQUISITES
from oni_jax.envs.crafter.rules import SLEEP
from oni_jax.types import TIE

VERBS = ("drink", "chop", "eat", "place", "attack", "mine", "make")  # ordered by how much has to come before
# Goal -> the beginnings of its events, and what is faced
GOALS = {
    "gathering": (("chop", "mine"), ("tree", "stone", "coal", "iron", "diamond")),
    "fighting": (("attack zombie", "attack skeleton"), ("zombie", "skeleton")),
    "building": (("place", "make"), ("table", "furnace")),
    "feeding": (("eat", "drink", "attack cow"), ("cow", "plant", "water")),
}
GROUND = ("grass", "sand", "path", "water", "lava")
_OWNED = re.compile("(?:you|your) have ", re.IGNORECASE)
_TIRED = re.compile(r"sleepy|energy: [0-8]/")
_FACED = re.compile(r"you are targeting ([a-z]+)|You face ([a-z]+)")


def caption_value(caption: bytes, goal: str = "") -> int:
    """Returns 0 for what is not helpful; of an event, more for verbs later in VERBS."""
    text = caption.decode("latin-1")
    verb = text.partition(" ")[0]
    events, things = GOALS.get(goal, (("",), ()))
    if verb in VERBS:
        return (VERBS.index(verb) + 1) * text.startswith(events)
    faced = _FACED.search(text)
    thing = (faced[1] or faced[2]) if faced else ""
    return int(thing in things if things else bool(thing) and thing not in GROUND)


def judge_caption(goal: str, message: bytes) -> tuple[bool, str]:
    return caption_value(message, goal) > 0, "whether something is done, or something is within reach"


def judge_pair(goal: str, first: bytes, second: bytes) -> int:
    values = caption_value(first, goal), caption_value(second, goal)
    return TIE if values[0] == values[1] else int(values[1] > values[0])


def suggest_goals(caption: bytes) -> list[str]:
    """Returns the goals that can be pursued, as far as the caption says."""
    text = caption.decode("latin-1").lower().replace("crafting table", "table")
    seen, _, owned = _OWNED.sub("\0", text, count=1).partition("\0")

    def has(words: str, name: str) -> bool:
        return re.search(rf"\b{name}\b", words) is not None

    def is_possible(goal: str) -> bool:
        needed = PREREQUISITES[goal]
        if goal == SLEEP.words and not _TIRED.search(text) or goal == "place crafting table" and has(seen, "table"):
            return False
        items = ("plant" if name == "sapling" and not has(owned, name) else name for name, _ in needed.uses)
        return all(has(seen, name) for name in needed.seen) and all(has(owned, name) for name in items)

    return [goal for goal in PREREQUISITES if is_possible(goal)]
