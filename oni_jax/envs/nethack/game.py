"""One game of NetHack: presses the agent's keys, and answers the prompts that are not left to the agent."""

import functools
import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np

from oni_jax.envs.nethack.birthday import birthday_of
from oni_jax.envs.nethack.shared_code import SharedCode
from oni_jax.envs.nethack.tasks import Task, nethack

CHARACTER = "Agent-mon-hum-neu-mal"
MAX_OPENING_PRESSES = 1000
MAX_AUTOMATIC_PRESSES = 10_000  # bound between two of the agent's

SPACE, ESCAPE, YES = ord(" "), 27, ord("y")
QUIT = 0x80 | ord("q")
CAST, ENHANCE, FIRST_ITEM = int(nethack.Command.CAST), int(nethack.Command.ENHANCE), ord("a")

# Indices into `internal` of what the game waits for:
IN_QUESTION, IN_LINE_INPUT, IN_MORE = 1, 2, 3

QUESTIONS_LEFT = (b"eat", b"attack", b"direction?", b"pray", b"drink")  # questions left to the agent
CONTINUAL_QUESTIONS_LEFT = QUESTIONS_LEFT[:-1]
EAT_PROMPT, DRINK_PROMPT = b"What do you want to eat", b"What do you want to drink"
FIRST_CHOICE = re.compile(rb"\[([a-zA-Z]+)")
KEPT_MESSAGE = b"You descend the stairs."
SKILL_MESSAGE = b"You feel more confident in"
KILL_TEXT = b"you kill "


class MessageFacts(NamedTuple):
    """Facts parsed from a message, cached by its text since messages repeat."""

    kill: bool
    skill: bool
    kept: bool  # written back after a key has dismissed it
    item_prompts: frozenset[bytes]
    first_choice: int | None  # the first item offered
    questions: frozenset[bytes]


@functools.lru_cache(maxsize=1 << 14)
def message_facts(message: bytes) -> MessageFacts:
    choices = FIRST_CHOICE.search(message)
    return MessageFacts(
        kill=KILL_TEXT in message.lower(),
        skill=SKILL_MESSAGE in message,
        kept=KEPT_MESSAGE in message,
        item_prompts=frozenset(prompt for prompt in (EAT_PROMPT, DRINK_PROMPT) if prompt in message),
        first_choice=choices[1][0] if choices else None,
        questions=frozenset(question for question in QUESTIONS_LEFT if question in message),
    )


class GameArrays(NamedTuple):
    """Arrays that N engines write on every key press."""

    blstats: np.ndarray  # [N, 27] int64
    message: np.ndarray  # [N, 256] uint8
    glyphs: np.ndarray  # [N, 21, 79] int16
    internal: np.ndarray  # [N, 9] int32
    program_state: np.ndarray  # [N, 6] int32
    screen: Mapping[str, np.ndarray]  # screen arrays by the engine's names; see screens.VIEWS

    def of_game(self, i: int) -> dict[str, np.ndarray]:
        """Returns row i of each array by the engine's name."""
        arrays = {**self._asdict(), **self.screen}
        return {name: array[i] for name, array in arrays.items() if name != "screen"}


class NetHackGame:
    """An engine that writes into row i of `arrays`, with a task's rules for pressing keys.

    Args:
      task: the task.
      arrays: of the group.
      i: this game's row.
      shared_code: code shared by the process's games; None: each keeps a separate copy.
      ttyrec: file to which the engine records its terminal; None: no recording.

    Attributes:
      message: the observation's message, zero padded; b"" when there is none.
      kill_count: steps of this episode taken after a message about a kill.
      press_raw: presses one key.
      in_normal_game: returns whether the statistics are those of a running game.
      follows_clock: True where shopkeepers' names may differ between games of equal seeds.
    """

    def __init__(
        self, task: Task, arrays: GameArrays, i: int, shared_code: SharedCode | None = None, ttyrec: str | None = None
    ):
        self._nethack = nethack.Nethack(observation_keys=(), playername=CHARACTER, ttyrec=ttyrec, fix_moon_phase=True)
        self._engine = self._nethack._pynethack
        self._engine.set_buffers(**arrays.of_game(i))
        # Reading a number from a memoryview takes half the time of reading it from an array.
        self._internal = memoryview(arrays.internal[i])
        self._program_state = memoryview(arrays.program_state[i])
        self._message = memoryview(arrays.message[i])
        self._shared_code = shared_code
        self._starts = 0
        self.follows_clock = False
        self._extended = task.extended
        self._questions_left = CONTINUAL_QUESTIONS_LEFT if task.continual else QUESTIONS_LEFT
        self._item_prompts = (EAT_PROMPT, DRINK_PROMPT) if task.extended else (EAT_PROMPT,)
        self._read_message()
        self.kill_count = 0
        self.press_raw: Callable[[int], None] = self._engine.step
        self.in_normal_game: Callable[[], bool] = self._engine.in_normal_game

    def start(self, core_seed: int, display_seed: int) -> None:
        """Starts the episode of these seeds, and plays up to its first turn."""
        self._engine.set_initial_seeds(core_seed, display_seed, False, None)
        self._engine.reset()
        if self._shared_code:  # `reset` has reloaded the library
            self._shared_code.share(self._nethack.dlpath, compare=self._starts == 0)
        self._starts += 1
        birthday = birthday_of(self._nethack.dlpath)
        self.follows_clock = birthday is None
        if birthday is not None:
            birthday.value = core_seed % 2**31
        for _ in range(MAX_OPENING_PRESSES):
            if self._program_state[3]:  # set in the move loop
                break
            # The first turn may ask for a name: of a scroll that turns to dust where the hero stands.
            self._engine.step(ESCAPE if self._internal[IN_LINE_INPUT] else SPACE)
        else:
            raise RuntimeError(f"NetHack did not begin within {MAX_OPENING_PRESSES} key presses")
        self.kill_count = 0
        self._read_message()

    # A step is `translate`, `press_raw`, `settle`. All games of a group take each of them before the next one: its code
    # then stays in the processor's caches.

    def translate(self, key: int) -> int:
        """Counts a kill in the message, and returns the key to press for the agent's key."""
        facts = self._facts
        self.kill_count += facts.kill
        if facts.item_prompts and not facts.item_prompts.isdisjoint(self._item_prompts):
            # Yes to a question for an item takes the first one offered; any other key declines.
            return facts.first_choice if facts.first_choice is not None and key == YES else SPACE
        return key

    def settle(self, key: int) -> bool:
        """Answers prompts after `key` was pressed. Returns whether the hero is dead."""
        self._read_message()
        if self._engine.done():
            return True
        internal = self._internal
        if (
            internal[IN_MORE]
            or internal[IN_QUESTION]
            or internal[IN_LINE_INPUT]
            or (self._extended and (key == CAST or self._facts.skill))
        ):
            return self._answer_prompts(key, self._questions_left)
        return False

    def quit(self) -> None:
        """Quits a running game through its prompts, so that the next one starts from a finished one."""
        if self._answer_prompts(SPACE, ()):
            return
        for key in (QUIT, YES):
            if not self._engine.done():
                self._engine.step(key)
        if not self._engine.done():
            self._answer_prompts(SPACE, ())

    def close(self) -> None:
        self._nethack.close()

    def _read_message(self) -> None:
        self.message = self._message.tobytes() if self._message[0] else b""
        self._facts = message_facts(self.message)

    def _answer_prompts(self, pressed: int, questions_left: Collection[bytes]) -> bool:
        """Answers prompts that are not left to the agent. Returns whether the game is over."""
        engine, internal = self._engine, self._internal
        enhance = False
        for _ in range(MAX_AUTOMATIC_PRESSES):
            if engine.done():
                return True
            if self._extended:
                if pressed == CAST:
                    engine.step(FIRST_ITEM)
                    self._read_message()
                enhance = enhance or self._facts.skill
            if internal[IN_MORE]:
                kept = self.message if self._facts.kept else b""
                engine.step(pressed := SPACE)
                if kept:
                    self._message[:] = kept
                self._read_message()
                continue
            if internal[IN_LINE_INPUT]:
                engine.step(pressed := ESCAPE)
                self._read_message()
                continue
            if internal[IN_QUESTION]:
                if not self._facts.questions.isdisjoint(questions_left):
                    return engine.done()
                engine.step(pressed := ESCAPE)
                self._read_message()
            if enhance:
                for key in (ENHANCE, FIRST_ITEM):
                    if not engine.done():
                        engine.step(key)
                self._read_message()
            return engine.done()
        raise RuntimeError(f"NetHack still prompts after {MAX_AUTOMATIC_PRESSES} key presses")
