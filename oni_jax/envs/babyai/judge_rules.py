"""Rules of the rule-based judge for BabyAI-Text: what is near, whatever it is. No LLM.

They were written before any study with them. They know the world, not the task: no colour is read, and no kind of
object but that of the goals keys, balls and boxes, for which there are no others. A caption is helpful if an object is
carried or stands at most NEAR steps away, an event if one then is. Of two captions the one with the nearer object is
better, then the one with more objects, then the one without a wall right ahead. Of two segments that is better which
ends nearer to an object that is new: that was not right ahead before. A potential, and goals, are what was written down
here, whatever was asked.
"""

import re

from oni_jax.types import TIE

NEAR = 2  # steps
KINDS = {"keys": "key", "balls": "ball", "boxes": "box"}  # goal -> kind of object
_POTENTIAL = """\
# Written beforehand by rules, not by an LLM: new things are worth coming near to, whatever they are.


def compute_reward(obs, past_obs, past_actions):
    met = []  # what stood right before the robot in the last steps: it is not new
    for seen in past_obs:
        cell = seen["image"][3][5]
        if cell[0] >= 4:
            met.append(cell[:2])
    image, near = obs["image"], 0.0
    for x in range(7):
        for y in range(7):
            cell = image[x][y]
            is_carried = x == 3 and y == 6
            if cell[0] >= 4 and not is_carried and cell[:2] not in met:
                near = max(near, 1.0 / (abs(x - 3) + 6 - y))
    return near, {"near": near}
"""
_GOALS = (
    "You see {thing} 2 steps forward You choose the action: forward. Current observation: You see {thing} 1 step "
    "forward.",
    "You see {thing} 1 step forward You choose the action: pick up the front object. Current observation: You carry "
    "{thing}.",
)
_NO_GOAL = "Current observation: You see something new."
_THING = re.compile(r"You (?:see|carry) (an? (?!wall\b)[a-z ]*[a-z])\b")
_FAR = 100  # more steps than an object can be seen from
_SENTENCE_END = ". "
_WALL, _CARRIED = re.compile(r"You see a wall (\d+) steps? (\w+)"), re.compile(r"(?:You carry|pick up) an? \w+")
_AT = re.compile(r"A \w+ \w+ lies right ahead|put down a ")  # an event's target
_OBJECT = re.compile(r"You see an? (?!wall\b)[\w ]+? (\d.*)")  # and its position
_STEPS = re.compile(r"(\d+) steps?\b")
_NAMED = re.compile(r"You see an? (?!wall\b)([\w ]+?) (\d[\w ]*)")  # an object, and its position
_AHEAD = "1 step forward"
_LAST = "Current observation: "  # before what a segment ends with


def caption_value(caption: bytes, goal: str = "") -> tuple[int, int, int]:
    """Returns (-steps to the nearest object, number of objects in sight, -1 for a wall right ahead else 0).

    goal: one of KINDS, for which there are only objects of its kind.
    """
    nearest, num_objects, wall = _FAR, 0, 0
    for sentence in caption.decode("latin-1").split(_SENTENCE_END):
        if found := _WALL.match(sentence):
            wall -= found[1] == "1" and found[2] == "forward"
        elif goal in KINDS and KINDS[goal] not in sentence.split():
            continue
        elif _CARRIED.match(sentence):
            nearest = 0
        elif _AT.match(sentence):
            num_objects, nearest = num_objects + 1, min(nearest, 1)
        elif found := _OBJECT.match(sentence):
            num_objects += 1
            nearest = min(nearest, sum(map(int, _STEPS.findall(found[1]))))
    return -nearest, num_objects, wall


def judge_caption(goal: str, message: bytes) -> tuple[bool, str]:
    steps, thing = -caption_value(message, goal)[0], KINDS.get(goal, "object")
    away = f"{'an' if thing == 'object' else 'a'} {thing} {steps} {'step' if steps == 1 else 'steps'} away"
    where = f"no {thing} in sight" if steps == _FAR else away
    return steps <= NEAR, where


def judge_pair(goal: str, first: bytes, second: bytes) -> int:
    values = caption_value(first, goal), caption_value(second, goal)
    return TIE if values[0] == values[1] else int(values[1] > values[0])


def segment_value(segment: bytes) -> float:
    """Returns 1 / (steps to the nearest new object at a segment's end), 0 without one."""
    before, _, last = segment.decode("latin-1").rpartition(_LAST)
    met = {name for name, position in _NAMED.findall(before) if position == _AHEAD}
    near = [sum(map(int, _STEPS.findall(position))) for name, position in _NAMED.findall(last) if name not in met]
    return 1 / min(near) if near else 0.0


def judge_segments(first: bytes, second: bytes) -> int:
    values = segment_value(first), segment_value(second)
    return TIE if values[0] == values[1] else int(values[1] > values[0])


def write_potential() -> str:
    """Returns the code of a potential: how near an object is that was not right ahead lately, whatever it is."""
    return _POTENTIAL


def write_goals(segment: bytes) -> list[str]:
    """Returns goals for the end of a segment: to be right before each thing in sight, and to carry it.

    They are phrased as the captions of steps are, with the words that the last caption has for a thing.
    """
    last = segment.decode("latin-1").rpartition("Current observation: ")[2]
    found = [_THING.match(sentence) for sentence in last.split(_SENTENCE_END)]
    things = dict.fromkeys(match[1] for match in found if match)
    goals = [text.format(thing=thing) for thing in things for text in _GOALS]
    return goals or [_NO_GOAL]
