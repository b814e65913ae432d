"""The table of NetHack tasks, and their goals."""

import numpy as np
import pytest

from oni_jax.envs.nethack.tasks import EXTENDED_KEYS, ORACLE_GLYPH, TASKS

KEYS = "\rkljhunbyKLJHUNBY<>.\x04es"
"""MORE, eight directions, eight runs, up, down, wait; kick (^D), eat, search."""

IDS = """
NetHackScore-v1 NetHackStaircase-v1 NetHackStaircaseLvl3-v1 NetHackStaircaseLvl4-v1
NetHackStaircaseContinual-v1 NetHackStaircaseLvl3Continual-v1 NetHackStaircaseLvl4Continual-v1
NetHackOracle-v1 NetHackOracleSober-v1
NetHackScoreExtendedActions-v1 NetHackStaircaseExtendedActions-v1 NetHackStaircaseLvl3ExtendedActions-v1
NetHackStaircaseLvl4ExtendedActions-v1 NetHackOracleExtendedActions-v1 NetHackOracleSoberExtendedActions-v1
""".split()


def observation(level=1, message=b"", condition=0, oracle=None):
    """Two games: the first plain, the second as described, its hero at column 40, row 10."""
    blstats = np.zeros((2, 27), np.int64)
    blstats[:, :2] = 40, 10
    blstats[:, 24] = 1
    blstats[1, 24], blstats[1, 25] = level, condition
    messages = np.zeros((2, 256), np.uint8)
    messages[1, : len(message)] = np.frombuffer(message, np.uint8)
    glyphs = np.zeros((2, 21, 79), np.int16)
    if oracle:
        glyphs[1][oracle] = ORACLE_GLYPH
    return blstats, messages, glyphs


def reached(task, **kwargs):
    goal = TASKS[task].goal
    assert goal is not None
    first, second = goal(*observation(**kwargs))
    assert not first
    return bool(second)


def test_ids():
    assert sorted(TASKS) == sorted(IDS)


@pytest.mark.parametrize("name", IDS)
def test_keys(name):
    extended = "Extended" in name
    keys = "".join(map(chr, TASKS[name].keys[:23]))
    assert keys == KEYS
    assert TASKS[name].extended == extended
    assert TASKS[name].continual == ("Continual" in name)
    assert (TASKS[name].goal is None) == ("Score" in name)
    assert len(TASKS[name].keys) == (28 if extended else 23)


def test_extended_keys():
    # M-p is pray; the others are their plain letters.
    assert [chr(key & 0x7F) for key in EXTENDED_KEYS[23:]] == ["Z", "q", "p", ",", "p"]
    assert [key > 0x7F for key in EXTENDED_KEYS[23:]] == [False, False, True, False, False]


@pytest.mark.parametrize(("suffix", "level"), [("", 2), ("Lvl3", 3), ("Lvl4", 4)])
@pytest.mark.parametrize("variant", ["", "Continual", "ExtendedActions"])
def test_descent(suffix, level, variant):
    task = f"NetHackStaircase{suffix}{variant}-v1"
    message = b"You descend the stairs.  You see here a dagger."
    assert reached(task, level=level, message=message)
    assert not reached(task, level=level + 1, message=message)
    assert not reached(task, level=level, message=b"You fall through...")


@pytest.mark.parametrize(("place", "beside"), [((9, 39), True), ((11, 41), True), ((10, 42), False), ((8, 40), False)])
def test_oracle(place, beside):
    assert reached("NetHackOracle-v1", oracle=place) == beside
    assert reached("NetHackOracleSober-v1", oracle=place) == beside
    assert reached("NetHackOracle-v1", oracle=place, condition=512) == beside
    assert not reached("NetHackOracleSober-v1", oracle=place, condition=512)
    assert not reached("NetHackOracleSober-v1", oracle=place, condition=512 | 128)  # and is stunned
    assert reached("NetHackOracleSober-v1", oracle=place, condition=128 | 4) == beside


def test_oracle_at_the_edge():
    goal = TASKS["NetHackOracle-v1"].goal
    assert goal is not None
    blstats, messages, glyphs = observation(oracle=(0, 1))
    blstats[1, :2] = 0
    assert goal(blstats, messages, glyphs).tolist() == [False, True]
