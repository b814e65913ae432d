"""Keys sent to a game, recorded by an engine that plays a script. Recordings in tests/golden check the whole."""

import contextlib
import ctypes

import nle.nethack
import numpy as np
import pytest

from oni_jax.envs.nethack.game import GameArrays, NetHackGame
from oni_jax.envs.nethack.native.layout import EngineLayout
from oni_jax.envs.nethack.native.vector_env import NativeVectorEnv
from oni_jax.envs.nethack.tasks import EXTENDED_KEYS, TASKS
from oni_jax.envs.nethack.vector_env import DEATH, engine_array
from tests.envs.nethack.native import needs_native
from tests.envs.outputs import step_output

SPACE, ESCAPE, CAST, ENHANCE, KEY = 32, 27, ord("Z"), 0x80 | ord("e"), ord("k")
NOTHING, QUESTION, LINE, MORE = None, 1, 2, 3
DEAD = -1


class ScriptedEngine:
    """Answers each key with the script's next (what the game waits for, message), and remembers the keys."""

    def __init__(self):
        self.script, self.keys = [], []
        self.waits: int | None = NOTHING

    def set_buffers(self, message, internal, program_state, **_):
        self.message, self.internal = message, internal
        program_state[3] = 1

    def set_initial_seeds(self, *_): ...

    def reset(self): ...

    def done(self):
        return self.waits == DEAD

    def in_normal_game(self):
        return True

    def show(self, waits, message=b""):
        self.waits = waits
        self.message[:] = np.frombuffer(message.ljust(256, b"\0"), np.uint8)
        self.internal[:] = 0
        if waits is not NOTHING and waits != DEAD:
            self.internal[waits] = 1

    def step(self, key):
        assert not self.done(), "a key pressed after the end"
        self.keys.append(key)
        self.show(*self.script.pop(0))


class PythonGame(NetHackGame):
    """NetHackGame with a scripted engine."""

    def __init__(self, task, message):
        names = [name for name in GameArrays._fields if name != "screen"]
        arrays = GameArrays(**{name: engine_array(name, 1) for name in names}, screen={})
        super().__init__(task, arrays, 0)
        self._engine.show(NOTHING, message)
        self.start(0, 0)

    def take(self, key):
        """(whether dead, message after) of the agent's key."""
        key = self.translate(key)
        self.press_raw(key)
        return self.settle(key), self.message.rstrip(b"\0")


class Head(ctypes.Structure):
    """The head of `engine_buffers` in engine.h."""

    _fields_ = [("action", ctypes.c_int), ("done", ctypes.c_int), ("in_normal_game", ctypes.c_char)]


START = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Head), ctypes.c_void_p, ctypes.c_void_p)
STEP = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(Head))
END = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class NativeGame(NativeVectorEnv):
    """The game of a group in C, whose library is functions of a scripted engine, and whose variables are `_memory`."""

    def __init__(self, task, message):
        self._first_message, self._memory = message, ctypes.create_string_buffer(64)
        super().__init__(task, 1, lambda *_: (0, 0))
        self._out = step_output(self)
        self.reset(self._out)

    def _new_game(self, i):
        self._engine = engine = ScriptedEngine()
        engine.set_buffers(*(getattr(self.arrays, name)[0] for name in ("message", "internal", "program_state")))

        def start(head, ttyrec, settings):
            engine.show(NOTHING, self._first_message)
            head[0].done = 0
            return 1

        def step(context, head):
            engine.step(head[0].action)
            head[0].done = engine.done()
            return context

        self._functions = START(start), STEP(step), END(lambda context: None)
        memory = ctypes.addressof(self._memory)
        functions = [ctypes.cast(function, ctypes.c_void_p).value for function in self._functions]
        layout = EngineLayout(*functions, memory, memory, memory + 32, memory + 64, *[memory, 0] * 2, memory + 8)
        library, group = self._stepper.library, self._group
        assert library.oni_load(group, i, layout, 0, b"folder", b"options") == 0

        class Game:
            follows_clock = False
            start = staticmethod(lambda *seeds: library.oni_start(group, i, *seeds))
            quit = staticmethod(lambda: library.oni_quit(group, i))
            close = staticmethod(lambda: library.oni_unload(group, i))

        return Game()

    def take(self, key):
        self.step(np.array([self._task.keys.index(key)], np.int32), self._out)
        assert not self.num_restarts
        texts, dead = self._out.texts, bool(self.end_status[0] == DEATH)
        return dead, (texts.final_captions if dead else texts.captions)[0]

    @property
    def kill_count(self):  # type: ignore
        return super().kill_count(0)

    def quit(self):
        assert self._games[0].quit() == 0


@pytest.fixture(params=["python", pytest.param("native", marks=needs_native)])
def make_game(monkeypatch, request):
    class FakeNethack:
        def __init__(self, **_):
            self._pynethack = ScriptedEngine()
            self.dlpath = "scripted"

    with contextlib.ExitStack() as stack:
        if request.param == "python":
            monkeypatch.setattr(nle.nethack, "Nethack", FakeNethack)

        def make(name, message=b""):
            task = TASKS[name]._replace(keys=EXTENDED_KEYS)
            if request.param == "python":
                return PythonGame(task, message)
            return stack.enter_context(contextlib.closing(NativeGame(task, message)))

        yield make


def press(game, key, *script):
    """(keys the engine got, whether dead, message after) of the agent's key; `script`: the engine's answers."""
    engine = game._engine
    engine.script, engine.keys = list(script), []
    dead, message = game.take(key)
    assert not engine.script, "answers left over"
    return engine.keys, dead, message


SCORE, EXTENDED, CONTINUAL = "NetHackScore-v1", "NetHackScoreExtendedActions-v1", "NetHackStaircaseContinual-v1"


def test_plain_key(make_game):
    assert press(make_game(SCORE), KEY, (NOTHING, b"Hi")) == ([KEY], False, b"Hi")


def test_more_is_clicked_through_death_ends(make_game):
    script = (MORE, b"You die..."), (MORE, b"Do you"), (DEAD, b"")
    assert press(make_game(SCORE), KEY, *script) == ([KEY, SPACE, SPACE], True, b"")


def test_text_is_declined(make_game):
    assert press(make_game(SCORE), KEY, (LINE, b"Call it:"), (NOTHING,)) == ([KEY, ESCAPE], False, b"")


@pytest.mark.parametrize(
    ("task", "question", "left"),
    [
        (SCORE, b"What do you want to eat? [a or ?*]", True),
        (SCORE, b"Really attack the gnome?", True),
        (SCORE, b"In what direction?", True),
        (SCORE, b"Are you sure you want to pray?", True),
        (SCORE, b"What do you want to drink? [a or ?*]", True),
        (EXTENDED, b"What do you want to drink? [a or ?*]", True),
        (CONTINUAL, b"What do you want to drink? [a or ?*]", False),
        (CONTINUAL, b"What do you want to eat? [a or ?*]", True),
        (SCORE, b"Beware, there will be no return! Still climb?", False),
    ],
)
def test_questions(make_game, task, question, left):
    game = make_game(task)
    if left:
        assert press(game, KEY, (QUESTION, question)) == ([KEY], False, question)
    else:
        assert press(game, KEY, (QUESTION, question), (NOTHING, b"No.")) == ([KEY, ESCAPE], False, b"No.")


@pytest.mark.parametrize(
    ("task", "prompt", "key", "pressed"),
    [
        (SCORE, b"What do you want to eat? [fgh or ?*]", ord("y"), ord("f")),
        (SCORE, b"What do you want to eat? [fgh or ?*]", KEY, SPACE),
        (SCORE, b"What do you want to eat? [*]", ord("y"), SPACE),
        (SCORE, b"What do you want to drink? [c or ?*]", ord("y"), ord("y")),
        (EXTENDED, b"What do you want to drink? [c or ?*]", ord("y"), ord("c")),
    ],
)
def test_items(make_game, task, prompt, key, pressed):
    assert press(make_game(task, prompt), key, (NOTHING,))[0] == [pressed]


def test_the_way_down_is_not_forgotten(make_game):
    script = (MORE, b"You descend the stairs. There is a fountain."), (MORE, b"Hello."), (NOTHING, b"Welcome.")
    keys, _, message = press(make_game(SCORE), KEY, *script)
    assert keys == [KEY, SPACE, SPACE] and message == script[0][1]


def test_casting_takes_the_first_spell(make_game):
    assert press(make_game(EXTENDED), CAST, (QUESTION, b"Choose a spell"), (NOTHING, b"Zap"))[0] == [CAST, ord("a")]
    assert press(make_game(SCORE), CAST, (NOTHING, b"You don't know any spells."))[0] == [CAST]
    # It is no cast as an answer to another prompt.
    assert press(make_game(EXTENDED, b"What do you want to eat? [f or ?*]"), CAST, (NOTHING,))[0] == [SPACE]


def test_skills_are_enhanced(make_game):
    message = b"You feel more confident in your fighting skills."
    keys = [KEY, ENHANCE, ord("a")]
    assert press(make_game(EXTENDED), KEY, (NOTHING, message), (NOTHING,), (NOTHING, b"Good")) == (keys, False, b"Good")
    keys = [KEY, SPACE, ENHANCE, ord("a")]
    assert press(make_game(EXTENDED), KEY, (MORE, message), (NOTHING,), (NOTHING,), (NOTHING,))[0] == keys
    assert press(make_game(SCORE), KEY, (NOTHING, message))[0] == [KEY]


def test_kills(make_game):
    game = make_game(SCORE, b"You kill the newt!")
    press(game, KEY, (NOTHING, b"You kill it! You kill the rat!"))
    assert game.kill_count == 1
    press(game, KEY, (NOTHING, b"You miss the rat."))
    press(game, KEY, (NOTHING,))
    assert game.kill_count == 2


def test_quitting(make_game):
    game = make_game(SCORE)
    engine = game._engine
    engine.show(QUESTION, b"What do you want to eat? [f or ?*]")
    engine.script = [(NOTHING,), (QUESTION, b"Really quit?"), (MORE, b"Bye"), (DEAD,)]
    game.quit()
    assert engine.keys == [ESCAPE, 0x80 | ord("q"), ord("y"), SPACE] and engine.done()
