"""A task played by a plain loop over NLE, one game at a time: what a step means, written down a second time.

Imports nothing of oni_jax, so that the two can only agree by both being right.
"""

import re
from collections.abc import Iterator
from typing import Any

import nle.nethack
import numpy as np
from nle.env.tasks import TASK_ACTIONS

nethack: Any = nle.nethack
MORE_KEYS = tuple(getattr(nethack.Command, name) for name in ("CAST", "QUAFF", "PRAY", "PICKUP", "PAY"))
SPACE, ESCAPE, CAST = 32, 27, int(nethack.Command.CAST)
ORACLE = [
    glyph
    for glyph in range(nethack.GLYPH_MON_OFF, nethack.GLYPH_PET_OFF)
    if nethack.permonst(nethack.glyph_to_mon(glyph)).mname == "Oracle"
]
LEVELS = {"NetHackStaircaseLvl3": 3, "NetHackStaircaseLvl4": 4, "NetHackStaircase": 2}
DEATH, ABORTED, SUCCESS, RUNNING = 1, -1, 2, 0


class PlainGame:
    """One NLE instance that plays episodes of a task."""

    def __init__(self, root_env: str, max_episode_steps: int):
        self.extended = "ExtendedActions" in root_env
        self.continual = "Continual" in root_env
        self.sober = "Sober" in root_env
        self.level = next((level for name, level in LEVELS.items() if root_env.startswith(name)), None)
        self.oracle = "Oracle" in root_env
        self.keys = [int(key) for key in TASK_ACTIONS] + ([int(key) for key in MORE_KEYS] if self.extended else [])
        self.max_episode_steps = max_episode_steps
        names = ("blstats", "message", "glyphs", "internal", "program_state")
        self.game = nethack.Nethack(
            observation_keys=names, playername="Agent-mon-hum-neu-mal", ttyrec=None, fix_moon_phase=True
        )
        self.questions = [b"eat", b"attack", b"direction?", b"pray"] + ([] if self.continual else [b"drink"])

    def press(self, key: int) -> None:
        observation, self.done = self.game.step(key)
        self.read(observation)

    def read(self, observation) -> None:
        self.blstats, message, self.glyphs, self.internal, self.state = (array.copy() for array in observation)
        self.message = message.tobytes().partition(b"\0")[0]

    def play(self, core_seed: int, display_seed: int, actions: Iterator[int]) -> dict[str, float]:
        """The statistics of an episode; takes as many actions as it has steps."""
        self.game.set_initial_seeds(core_seed, display_seed, False)
        self.done = False
        self.read(self.game.reset())
        while not self.state[3]:
            self.press(ESCAPE if self.internal[2] else SPACE)
        self.returned, self.steps, self.kills, self.paid, self.seen = 0.0, 0, 0, False, {}
        status = RUNNING
        while status == RUNNING:
            status = self.step(self.keys[next(actions)])
        last = self.info
        if status != DEATH:
            self.quit()
        return {"return": self.returned, "length": self.steps, **last, "end_status": status}

    def step(self, key: int) -> int:
        before, glyphs = self.blstats, self.glyphs
        self.kills += b"you kill " in self.message.lower()
        self.seen[before[23], before[24]] = int((glyphs != nethack.GLYPH_CMAP_OFF).sum())
        self.info = {
            "dlvl": int(before[12]),
            "gold": int(before[13]),
            "xlvl": int(before[18]),
            "scout": sum(self.seen.values()),
            "kills": self.kills,
            "turns": int(before[20]),
        }
        if b"What do you want to eat" in self.message or (
            self.extended and b"What do you want to drink" in self.message
        ):
            offered = re.search(rb"\[([a-zA-Z]+)", self.message)
            key = offered[1][0] if offered and key == ord("y") else SPACE
        self.press(key)
        self.known_steps(key, self.questions)
        self.steps += 1
        status = RUNNING
        if self.done:
            status = DEATH
        elif self.steps >= self.max_episode_steps:
            status = ABORTED
        reached = status == RUNNING and self.goal_reached() and not self.paid
        if reached and not self.continual:
            status = SUCCESS
        self.paid = self.paid or reached
        if self.level or self.oracle:
            self.returned += 50.0 * reached
        else:
            gained = self.blstats[9] - before[9] if self.game.in_normal_game() else 0
            self.returned += gained + (-0.01 if self.blstats[20] == before[20] else 0.0)
        return status

    def known_steps(self, pressed: int, questions: list[bytes]) -> None:
        enhance = False
        while not self.done:
            if self.extended and pressed == CAST:
                self.press(ord("a"))
            if self.extended and b"You feel more confident in" in self.message:
                enhance = True
            if self.internal[3]:
                kept = self.message if b"You descend the stairs." in self.message else b""
                self.press(pressed := SPACE)
                self.message = kept or self.message
                continue
            if self.internal[2]:
                self.press(pressed := ESCAPE)
                continue
            if self.internal[1]:
                if any(question in self.message for question in questions):
                    return
                self.press(pressed := ESCAPE)
            if enhance:
                for key in (int(nethack.Command.ENHANCE), ord("a")):
                    if not self.done:
                        self.press(key)
            return

    def goal_reached(self) -> bool:
        if self.level:
            return b"You descend the stairs" in self.message and self.blstats[24] == self.level
        if not self.oracle or (self.sober and self.blstats[25] == 512):
            return False
        x, y = self.blstats[:2]
        return bool(np.isin(self.glyphs[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2], ORACLE).any())

    def quit(self) -> None:
        self.known_steps(SPACE, [])
        for key in (0x80 | ord("q"), ord("y")):
            if not self.done:
                self.press(key)
        self.known_steps(SPACE, [])

    def close(self) -> None:
        self.game.close()
