"""Rules of the rule-based judge for NetHack: events in a message, and the goals that they help. No LLM.

Ranking: a message has value 1 if it is helpful for the goal, -1 if it is not and reports a missed blow or harm to the
player, else 0. A description has the sum over its lines, a line "... (x3)" counted three times; the higher value is
preferred, and equal values are a tie.

A goal in free text becomes combat, gold or stairs by the first keyword in it (GOAL_WORDS), negated clauses ("never",
"not", "avoid") aside; without a keyword it is the default goal.

Of two segments the one whose messages are worth more is better. A potential, and goals, are what was written down here.
"""

import re
from collections.abc import Mapping, Sequence

from oni_jax.types import TIE

# Events in messages: a pattern found anywhere in the message, and words for the answer.
EVENTS: Mapping[str, tuple[re.Pattern[str], str]] = {
    name: (re.compile(pattern), words)
    for name, pattern, words in (
        (
            "kill",
            # A pet arches or hisses at a blow
            r"(?<!It arches!  )(?<!It hisses!  )\bYou (kill|destroy|slay|dispatch|dissolve|vaporize)\b(?! the poor)",
            "a monster killed by the player",
        ),
        (
            "hit",
            r"\bYou (hit|bite|smite|strike|bash|slash|stab|claw|punch|whip|butt|sting|zap) "
            r"(it\b|(the|an?) (?!wall|door|kitten|little dog|pony))"
            r"|\bYou kick (the|an?) (?!door|wall|empty|altar|fountain|sink|throne|kitten|little dog|pony|boulder)|"
            r"\bYour [\w' -]+ (hits?|kills?|bites?|strikes?) (the|it|an?)\b",
            "a blow of the player's that landed",
        ),
        ("experience", r"\bWelcome (back )?to experience level\b|\bYou feel more experienced\b", "experience gained"),
        (
            "gold",
            r"(?<!\S)\$ - |\bYou (see here|find|get|collect|receive|have) [\w ]*?\b(gold pieces?|zorkmids?)\b"
            r"|\b(gold|coins?) (falls?|drops?|lands?) (here|at your feet)",
            "gold found or picked up",
        ),
        (
            "descent",
            r"\b(staircase|ladder|stairs?) down\b|\bYou (descend|climb down|go down|fall through)\b"
            r"|\bThere is a (hole|trap ?door)\b|\b[Aa] trap ?door opens up under you\b|\bYou dig a hole through\b",
            "a way down",
        ),
        (
            "discovery",
            r"\bYou (find|discover) (a|an|some) (hidden|secret)\b|^The door opens\b"
            r"|\b[Tt]he door (crashes|breaks) open\b"
            r"|\bYou (succeed|unlock|pick the lock)\b|\bThe passage widens\b|\bcorridor widens\b",
            "new ground to explore",
        ),
        ("item", r"(?<!\S)[a-zA-Z] - (?!.*\?)", "an item picked up"),
        (
            "recovery",
            r"\bYou (finish eating|feel (much )?better|feel full|can (see|move|hear) again|are healed)\b"
            r"|\b(is|was) (delicious|very good)\b|\bis (well-)?pleased\b|\bhopeful feeling\b"
            r"|\bYou feel (strong|wise|tough|agile|charismatic|smart)\b"
            r"|\bfeel less confused\b|\bfeels better\b|\bhunger is satisfied\b",
            "health, food or strength",
        ),
        ("miss", r"\bYou (just )?miss\b|\bYou attack thin air\b", "a blow of the player's that missed"),
        (
            "harm",
            r"\b(bites?|hits?|stings?|claws?|kicks?|touches|butts)( you)?!"
            r"|\bYou (die|fall|are (hit|weak|hungry|faint))\b"
            r"|\bYou feel (weak|feverish|hungry|sick)\b|\bOuch!|\bYou stop\.|\bdispleased\b",
            "harm to the player",
        ),
        ("pet", r"\b(kitten|housecat|little dog|dog|pony)\b|\bis (killed|destroyed)!", "what others do"),
    )
}

HELPFUL_EVENTS: Mapping[str, frozenset[str]] = {
    "defaultgoal": frozenset({"kill", "gold", "descent", "experience"}),
    "zeroknowledge": frozenset({"kill", "gold", "descent", "experience", "hit", "discovery", "item", "recovery"}),
    "combat": frozenset({"kill", "hit"}),
    "gold": frozenset({"gold"}),
    "stairs": frozenset({"descent"}),
}


def judge_caption(goal: str, message: bytes) -> tuple[bool, str]:
    """Returns whether a message is helpful for a goal, and the event in it, in words."""
    text = message.decode("latin-1")
    helpful = HELPFUL_EVENTS[goal]
    for name in sorted(EVENTS, key=lambda name: name not in helpful):  # helpful events first, else in the order above
        pattern, words = EVENTS[name]
        if pattern.search(text):
            return name in helpful, words
    return False, "nothing that matters"


_POTENTIAL = """\
# Written beforehand by rules, not by an LLM: to be deep, experienced and healthy is good, whatever the task.


def compute_reward(obs, past_obs, past_actions):
    health = obs["hitpoints"] / max(1, obs["max_hitpoints"])
    parts = {"depth": 0.2 * obs["depth"], "experience": 0.2 * obs["experience_level"], "health": health}
    return sum(parts.values()), parts
"""
_GOALS = (
    "You choose the action: down. Current observation: You descend the stairs.",
    "You choose the action: search. Current observation: You find a hidden door.",
    "Current observation: You kill it!",
    "Current observation: $ - gold pieces.",
)
_ACTION = re.compile(rb"You choose the action: [a-z ]+\.")

HARMFUL_EVENTS = ("miss", "harm")
GOAL_WORDS: Mapping[str, str] = {
    "combat": r"fight\w*|fought|combat|battle\w*|attack\w*|kill\w*|slay\w*|hit|hunt\w*|monsters?",
    "gold": r"gold|coins?|money|rich\w*|wealth\w*|treasures?|zorkmids?",
    "stairs": r"stair\w*|descen\w*|deep\w*|down|downstairs|downwards?|ladders?|trap ?doors?",
}
_GOAL_WORD = re.compile("|".join(rf"(?P<{goal}>\b(?:{words})\b)" for goal, words in GOAL_WORDS.items()), re.I)
_CLAUSE_END = re.compile(r"[.,;:!?]|\b(?:and|but)\b", re.I)
_NO = re.compile(r"\b(?:not|never|no|nor|avoid\w*|without|ignor\w*|instead of|rather than)\b|n['’]t\b", re.I)
_REPEATS = re.compile(r"\(x(\d{1,4})\)\s*$")


def message_value(goal: str, message: bytes) -> int:
    """Returns 1 for a helpful message, -1 for a harmful one, else 0."""
    if judge_caption(goal, message)[0]:
        return 1
    text = message.decode("latin-1")
    return -any(EVENTS[name][0].search(text) is not None for name in HARMFUL_EVENTS)


def description_value(goal: str, description: bytes) -> int:
    """Returns the sum of the values of its lines."""
    total = 0
    for line in description.split(b"\n"):
        repeats = _REPEATS.search(line.decode("latin-1"))
        total += message_value(goal, line) * (int(repeats[1]) if repeats else 1)
    return total


def judge_pair(goal: str, first: bytes, second: bytes) -> int:
    gain = description_value(goal, second) - description_value(goal, first)
    return TIE if gain == 0 else int(gain > 0)


def judge_segments(first: bytes, second: bytes) -> int:
    """Returns 0 if the first segment is better, 1 if the second is, 2 for a tie: by the values of their messages."""
    values = [description_value("zeroknowledge", _ACTION.sub(b"", segment)) for segment in (first, second)]
    return TIE if values[0] == values[1] else int(values[1] > values[0])


def write_potential() -> str:
    """Returns the code of a potential: depth, experience and health, whatever the task."""
    return _POTENTIAL


def write_goals(segment: bytes) -> Sequence[str]:
    """Returns goals for the end of a segment: the same for all, in the words of steps."""
    return _GOALS


def goal_of_words(words: str) -> str:
    """Returns the goal key closest to a goal in free text."""
    wanted = (_GOAL_WORD.search(clause) for clause in _CLAUSE_END.split(words) if not _NO.search(clause))
    return next((match.lastgroup for match in wanted if match and match.lastgroup), "defaultgoal")
